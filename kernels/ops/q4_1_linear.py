"""`q4_1_linear`: y = x w^T with Q4_1 weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import Q4_1

definition = partial(linear.definition, Q4_1)
contract = linear.contract
incumbent = partial(linear.incumbent, Q4_1)
cost = partial(linear.cost, Q4_1)
generate = partial(linear.generate, Q4_1)
