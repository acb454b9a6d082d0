"""`f32_gate_up_gelu`: y = gelu(x w_gate^T) * (x w_up^T) with F32 weights; see kernels/ops/gate_up_gelu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_gelu
from kernelwright.kernels.ops.weights import F32

definition = partial(gate_up_gelu.definition, F32)
contract = gate_up_gelu.contract
incumbent = partial(gate_up_gelu.incumbent, F32)
cost = partial(gate_up_gelu.cost, F32)
generate = partial(gate_up_gelu.generate, F32)
