"""`q6_k_linear`: y = x w^T with Q6_K weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import Q6_K

definition = partial(linear.definition, Q6_K)
contract = linear.contract
incumbent = partial(linear.incumbent, Q6_K)
cost = partial(linear.cost, Q6_K)
generate = partial(linear.generate, Q6_K)
