"""`q4_0_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with Q4_0 weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import Q4_0

definition = partial(gate_up_silu.definition, Q4_0)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, Q4_0)
cost = partial(gate_up_silu.cost, Q4_0)
generate = partial(gate_up_silu.generate, Q4_0)
