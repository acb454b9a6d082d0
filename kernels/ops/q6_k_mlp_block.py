"""`q6_k_mlp_block`: residual addition, norm and MLP with Q6_K weights; see kernels/ops/mlp_block.py."""

from functools import partial

from kernelwright.kernels.ops import mlp_block
from kernelwright.kernels.ops.weights import Q6_K

definition = partial(mlp_block.definition, Q6_K)
contract = partial(mlp_block.contract, Q6_K)
incumbent = partial(mlp_block.incumbent, Q6_K)
cost = mlp_block.cost
generate = partial(mlp_block.generate, Q6_K)
