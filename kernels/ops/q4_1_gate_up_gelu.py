"""`q4_1_gate_up_gelu`: y = gelu(x w_gate^T) * (x w_up^T) with Q4_1 weights; see kernels/ops/gate_up_gelu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_gelu
from kernelwright.kernels.ops.weights import Q4_1

definition = partial(gate_up_gelu.definition, Q4_1)
contract = gate_up_gelu.contract
incumbent = partial(gate_up_gelu.incumbent, Q4_1)
cost = partial(gate_up_gelu.cost, Q4_1)
generate = partial(gate_up_gelu.generate, Q4_1)
