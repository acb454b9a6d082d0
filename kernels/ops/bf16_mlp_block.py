"""`bf16_mlp_block`: residual addition, norm and MLP with BF16 weights; see kernels/ops/mlp_block.py."""

from functools import partial

from kernelwright.kernels.ops import mlp_block
from kernelwright.kernels.ops.weights import BF16

definition = partial(mlp_block.definition, BF16)
contract = partial(mlp_block.contract, BF16)
incumbent = partial(mlp_block.incumbent, BF16)
cost = mlp_block.cost
generate = partial(mlp_block.generate, BF16)
