"""Small shapes of every op, and how a slot is run beside its fp64 reference; shared by the kernel tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kernelwright.kernels.build import BuildResult, build_cached
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.load import Implementation, load_implementation
from kernelwright.kernels.registry import define, op_of

SMALL: dict[str, dict[str, int]] = {
    "add_rmsnorm": {"h": 96},
    "q4_1_linear": {"n": 42, "k": 96},
    "q8_0_linear": {"n": 35, "k": 64},
    "q4_0_linear": {"n": 42, "k": 96},
    "q4_k_linear": {"n": 35, "k": 512},
    "q6_k_linear": {"n": 42, "k": 256},
    "bf16_linear": {"n": 35, "k": 96},
    "f32_linear": {"n": 7, "k": 32},
    "q4_1_gate_up_silu": {"f": 28, "h": 64},
    "q4_0_gate_up_silu": {"f": 28, "h": 64},
    "q8_0_gate_up_silu": {"f": 20, "h": 96},
    "q4_k_gate_up_silu": {"f": 28, "h": 256},
    "q6_k_gate_up_silu": {"f": 20, "h": 512},
    "bf16_gate_up_silu": {"f": 28, "h": 96},
    "f32_gate_up_silu": {"f": 28, "h": 64},
    "rope_cache": {"q": 6, "kv": 2, "d": 32},
    "decode_attention": {"q": 6, "kv": 2, "d": 32},
    "prefill_attention": {"q": 6, "kv": 2, "d": 32},
    "rmsnorm": {"h": 96},
    "q4_1_linear_bias": {"n": 42, "k": 96},
    "q8_0_linear_bias": {"n": 35, "k": 64},
    "f32_linear_bias": {"n": 7, "k": 32},
    "q4_1_gate_up_gelu": {"f": 28, "h": 64},
    "f32_gate_up_gelu": {"f": 28, "h": 64},
    "norm_rope_cache": {"q": 6, "kv": 2, "d": 32},
    "sliding_decode_attention": {"q": 6, "kv": 2, "d": 32, "w": 21},
    "sliding_prefill_attention": {"q": 6, "kv": 2, "d": 32, "w": 21},
    "q4_1_mlp_block": {"f": 64, "h": 96},
    "q4_0_mlp_block": {"f": 96, "h": 64},
    "q8_0_mlp_block": {"f": 64, "h": 96},
    "q4_k_mlp_block": {"f": 256, "h": 256},
    "q6_k_mlp_block": {"f": 256, "h": 256},
    "bf16_mlp_block": {"f": 96, "h": 96},
    "q4_1_attention_block": {"h": 96, "q": 6, "kv": 2, "d": 32},
}
"""Odd row counts, so that the last tiles are partial."""
Inputs = dict[str, Any]


def small(op_type: str) -> Definition:
    return define(op_type, **SMALL[op_type])


def draw_inputs(definition: Definition, tokens: int, distribution: str, seed: int = 0) -> Inputs:
    batch = min(tokens, 3) if definition.op_type.endswith("prefill_attention") else tokens
    axes = {"T": tokens, "B": batch, "B1": batch + 1, "MB": 5, "PAGES": 5 * batch, "P": 96}
    return op_of(definition).generate(definition, axes, torch.Generator().manual_seed(seed), distribution)


def cloned(inputs: Inputs) -> Inputs:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def reference_outputs(definition: Definition, inputs: Inputs) -> dict[str, torch.Tensor]:
    namespace: dict[str, Any] = {}
    exec(definition.reference, namespace)
    wide = {
        name: value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
        for name, value in inputs.items()
    }
    return dict(zip(definition.outputs, namespace["run"](**wide), strict=True))


def slot_outputs(implementation: Implementation, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return all outputs by name, those written in place among them; `inputs` stay as they are."""
    mine = cloned(inputs)
    fresh = iter(implementation.bind(mine)(**mine))
    aliases = implementation.contract.aliases
    return {name: mine[aliases[name]] if name in aliases else next(fresh) for name in implementation.definition.outputs}


def load_incumbent(definition: Definition) -> Implementation:
    op = op_of(definition)
    return load_implementation(op.incumbent(definition), None, definition, op.contract(definition))


def load_built(definition: Definition, candidate: Candidate, cache: Path) -> Implementation:
    built: BuildResult = build_cached(candidate, cache)
    assert built.status == "PASSED", built.log
    return load_implementation(candidate, built.binary, definition, op_of(definition).contract(definition))


def max_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max()) if got.numel() else 0.0
