"""`q4_k_mlp_block`: residual addition, norm and MLP with Q4_K weights; see kernels/ops/mlp_block.py."""

from functools import partial

from kernelwright.kernels.ops import mlp_block
from kernelwright.kernels.ops.weights import Q4_K

definition = partial(mlp_block.definition, Q4_K)
contract = partial(mlp_block.contract, Q4_K)
incumbent = partial(mlp_block.incumbent, Q4_K)
cost = mlp_block.cost
generate = partial(mlp_block.generate, Q4_K)
