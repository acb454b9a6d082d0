"""`f32_linear_bias`: y = x w^T + b with F32 weights; see kernels/ops/linear_bias.py."""

from functools import partial

from kernelwright.kernels.ops import linear_bias
from kernelwright.kernels.ops.weights import F32

definition = partial(linear_bias.definition, F32)
contract = linear_bias.contract
incumbent = partial(linear_bias.incumbent, F32)
cost = partial(linear_bias.cost, F32)
generate = partial(linear_bias.generate, F32)
