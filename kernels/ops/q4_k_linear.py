"""`q4_k_linear`: y = x w^T with Q4_K weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import Q4_K

definition = partial(linear.definition, Q4_K)
contract = linear.contract
incumbent = partial(linear.incumbent, Q4_K)
cost = partial(linear.cost, Q4_K)
generate = partial(linear.generate, Q4_K)
