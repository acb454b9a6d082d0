"""`bf16_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with BF16 weights; see kernels/ops/gate_up_silu.py."""

from functools import partial

from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.weights import BF16

definition = partial(gate_up_silu.definition, BF16)
contract = gate_up_silu.contract
incumbent = partial(gate_up_silu.incumbent, BF16)
cost = partial(gate_up_silu.cost, BF16)
generate = partial(gate_up_silu.generate, BF16)
