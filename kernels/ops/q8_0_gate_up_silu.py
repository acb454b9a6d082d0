"""`q8_0_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with Q8_0 weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import Q8_0

definition = partial(gate_up_silu.definition, Q8_0)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, Q8_0)
cost = partial(gate_up_silu.cost, Q8_0)
generate = partial(gate_up_silu.generate, Q8_0)
