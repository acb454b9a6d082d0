"""The forward pass over slots equals a Llama written down independently, in float64, in the file's own terms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernelwright.engine import decoder
from kernelwright.engine.gguf import dequantize, read_gguf
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.score import ForcedSequence

TOKENS = torch.randint(0, 300, (70,), generator=torch.Generator().manual_seed(0)).tolist()


def rotate_pairs(x: torch.Tensor, base: float) -> torch.Tensor:
    """RoPE on neighbouring pairs, for q and k as the file stores them: no un-permutation. x [T, heads, D]."""
    angle = torch.arange(len(x), dtype=torch.float64)[:, None] * base ** (
        -torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1]
    )
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.view_as_real(turned).flatten(-2)


def independent_logits(path: Path, tokens: list[int]) -> torch.Tensor:
    weights = {name: dequantize(w).double() for name, w in read_gguf(path).tensors.items()}
    x = weights["token_embd.weight"][tokens]

    def norm(values: torch.Tensor, name: str) -> torch.Tensor:
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + 1e-5) * weights[f"{name}.weight"]

    for layer in range(2):

        def linear(values: torch.Tensor, name: str, at: str = f"blk.{layer}") -> torch.Tensor:
            return values @ weights[f"{at}.{name}.weight"].T

        h = norm(x, f"blk.{layer}.attn_norm")
        q, k = (rotate_pairs(linear(h, name).unflatten(-1, (-1, 32)), 10000.0) for name in ("attn_q", "attn_k"))
        v = linear(h, "attn_v").unflatten(-1, (-1, 32))
        scores = torch.einsum("qhd,kd->hqk", q, k[:, 0]) / 32**0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf).softmax(-1)
        x = x + linear(torch.einsum("hqk,kd->qhd", scores, v[:, 0]).flatten(1), "attn_output")
        h = norm(x, f"blk.{layer}.ffn_norm")
        x = x + linear(F.silu(linear(h, "ffn_gate")) * linear(h, "ffn_up"), "ffn_down")
    return norm(x, "output_norm") @ weights["token_embd.weight"].T


@pytest.mark.parametrize(("kind", "head"), [("Q4_1", "Q8_0"), ("Q8_0", "F16"), ("F32", "F32"), ("BF16", "Q4_1")])
def test_logits_equal_an_independent_llama(
    make_tiny_model: Callable[..., Path], tmp_path: Path, kind: str, head: str
) -> None:
    path = make_tiny_model(tmp_path / "model.gguf", kind=kind, head=head, seed=3)
    expected = independent_logits(path, TOKENS)
    engine = LLMEngine(path, num_pages=8)
    rows = list(engine.score([ForcedSequence(tuple(TOKENS))], "prefill"))
    assert [(sequence, position) for sequence, position, _ in rows] == [(0, p) for p in range(70)]
    found = torch.stack([logits for _, _, logits in rows])
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def test_the_comparison_sees_a_missing_unpermutation(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "unpermute", lambda weight, heads: weight)
    engine = LLMEngine(tiny_model, num_pages=8)
    found = torch.stack([logits for _, _, logits in engine.score([ForcedSequence(tuple(TOKENS))], "prefill")])
    expected = independent_logits(tiny_model, TOKENS)
    assert (found - expected).abs().max() > 1e-2 * expected.abs().max()


def test_slots_take_their_inputs_in_the_order_the_forward_pass_gives_them(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=8)
    source = inspect.getsource(decoder.forward)
    short = {"positions": "positions", "slot_mapping": "slots", "k_cache": "k", "v_cache": "v"}
    attention = {"block_table", "context_lens", "query_start"}
    for slot, definition in engine.dispatch.weights.definitions(0).items():
        contract = engine.dispatch.contract(definition.name)
        names = [name for name in definition.inputs if name not in contract.weights]
        assert [n for n in names if n in attention] == names[len(names) - len(attention & set(names)) :]
        given = [short.get(name, name) for name in names if name not in attention]
        given += ["*attention"] if attention & set(names) else []
        call = slot.replace("decode_", "").replace("prefill_", "")
        if call == "attention_out":
            given = ["o.flatten(1)"]
        assert f"at.{call}({', '.join(given)})" in source


def test_quantised_models_have_regions_and_dense_ones_do_not(
    make_tiny_model: Callable[..., Path], tiny_model: Path, tmp_path: Path
) -> None:
    quantised = LLMEngine(tiny_model, num_pages=4).dispatch.weights.definitions(0)
    dense = LLMEngine(make_tiny_model(tmp_path / "f.gguf", kind="F16"), num_pages=4).dispatch.weights.definitions(0)
    assert quantised["mlp_block"].name == "q4_1_mlp_block_f96_h64"
    assert quantised["attention_block"].name == "q4_1_attention_block_h64_q2_kv1_d32_p16"
    assert "mlp_block" not in dense and dense["gate_up"].name == "f32_gate_up_silu_f96_h64"
