"""`q4_0_linear`: y = x w^T with Q4_0 weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import Q4_0

definition = partial(linear.definition, Q4_0)
contract = linear.contract
incumbent = partial(linear.incumbent, Q4_0)
cost = partial(linear.cost, Q4_0)
generate = partial(linear.generate, Q4_0)
