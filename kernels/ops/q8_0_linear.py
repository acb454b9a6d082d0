"""`q8_0_linear`: y = x w^T with Q8_0 weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import Q8_0

definition = partial(linear.definition, Q8_0)
contract = linear.contract
incumbent = partial(linear.incumbent, Q8_0)
cost = partial(linear.cost, Q8_0)
generate = partial(linear.generate, Q8_0)
