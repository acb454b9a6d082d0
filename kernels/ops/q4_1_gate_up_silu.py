"""`q4_1_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with Q4_1 weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import Q4_1

definition = partial(gate_up_silu.definition, Q4_1)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, Q4_1)
cost = partial(gate_up_silu.cost, Q4_1)
generate = partial(gate_up_silu.generate, Q4_1)
