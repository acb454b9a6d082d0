"""`q8_0_mlp_block`: residual addition, norm and MLP with Q8_0 weights; see kernels/ops/mlp_block.py."""

from functools import partial

from kernelwright.kernels.ops import mlp_block
from kernelwright.kernels.ops.weights import Q8_0

definition = partial(mlp_block.definition, Q8_0)
contract = partial(mlp_block.contract, Q8_0)
incumbent = partial(mlp_block.incumbent, Q8_0)
cost = mlp_block.cost
generate = partial(mlp_block.generate, Q8_0)
