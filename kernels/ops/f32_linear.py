"""`f32_linear`: y = x w^T with F32 weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import F32

definition = partial(linear.definition, F32)
contract = linear.contract
incumbent = partial(linear.incumbent, F32)
cost = partial(linear.cost, F32)
generate = partial(linear.generate, F32)
