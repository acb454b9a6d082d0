"""`q8_0_linear_bias`: y = x w^T + b with Q8_0 weights; see kernels/ops/linear_bias.py."""

from functools import partial

from kernelwright.kernels.ops import linear_bias
from kernelwright.kernels.ops.weights import Q8_0

definition = partial(linear_bias.definition, Q8_0)
contract = linear_bias.contract
incumbent = partial(linear_bias.incumbent, Q8_0)
cost = partial(linear_bias.cost, Q8_0)
generate = partial(linear_bias.generate, Q8_0)
