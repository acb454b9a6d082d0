"""`q6_k_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with Q6_K weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import Q6_K

definition = partial(gate_up_silu.definition, Q6_K)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, Q6_K)
cost = partial(gate_up_silu.cost, Q6_K)
generate = partial(gate_up_silu.generate, Q6_K)
