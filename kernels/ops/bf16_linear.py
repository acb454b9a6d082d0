"""`bf16_linear`: y = x w^T with BF16 weights; see kernels/ops/linear.py."""

from functools import partial

from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.weights import BF16

definition = partial(linear.definition, BF16)
contract = linear.contract
incumbent = partial(linear.incumbent, BF16)
cost = partial(linear.cost, BF16)
generate = partial(linear.generate, BF16)
