"""`q4_1_mlp_block`: residual addition, norm and MLP with Q4_1 weights; see kernels/ops/mlp_block.py."""

from functools import partial

from kernelwright.kernels.ops import mlp_block
from kernelwright.kernels.ops.weights import Q4_1

definition = partial(mlp_block.definition, Q4_1)
contract = partial(mlp_block.contract, Q4_1)
incumbent = partial(mlp_block.incumbent, Q4_1)
cost = mlp_block.cost
generate = partial(mlp_block.generate, Q4_1)
