"""`q4_1_linear_bias`: y = x w^T + b with Q4_1 weights; see kernels/ops/linear_bias.py."""

from functools import partial

from kernelwright.kernels.ops import linear_bias
from kernelwright.kernels.ops.weights import Q4_1

definition = partial(linear_bias.definition, Q4_1)
contract = linear_bias.contract
incumbent = partial(linear_bias.incumbent, Q4_1)
cost = partial(linear_bias.cost, Q4_1)
generate = partial(linear_bias.generate, Q4_1)
