"""`f32_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with F32 weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import F32

definition = partial(gate_up_silu.definition, F32)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, F32)
cost = partial(gate_up_silu.cost, F32)
generate = partial(gate_up_silu.generate, F32)
