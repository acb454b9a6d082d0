"""The decoder as a table of slots: the weights of each slot of each layer, and the forward pass over bound slots.

Per layer, in order: attention_norm, qkv, rope, attention, attention_out, mlp_norm, gate_up, down; after the last layer
final_norm and head. Where an architecture norms its heads, norm_rope stands in the place of rope; where it norms what
attention and MLP give, attention_post_norm and mlp_post_norm follow them. Two regions cover several slots at once, in
layers that are exactly Llama's there: attention_block (the first five, decode only) and mlp_block (the last three of
the plain ones). The embedding lookup is not a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from kernelwright.engine.checkpoint import Checkpoint
from kernelwright.engine.config import PAGE_SIZE, Rope
from kernelwright.engine.gguf import Weight, dequantize, unpermute
from kernelwright.engine.rope import rope_tables
from kernelwright.kernels.registry import OPS, op_named
from kernelwright.kernels.registry import define as define_anew

if TYPE_CHECKING:
    from torch import Tensor

    from kernelwright.kernels.definition import Definition

Call = Callable[..., tuple["Tensor", ...]]
ATTENTION_OPS = ("attention_norm", "qkv", "rope", "norm_rope", "attention", "attention_out", "attention_post_norm")
MLP_OPS = ("mlp_norm", "gate_up", "down", "mlp_post_norm")
"""In order; a layer has those that are in its definitions."""
HEAD_OPS = ("final_norm", "head")

PARTS = {
    "qkv": ("attn_q", "attn_k", "attn_v"), "attention_out": ("attn_output",), "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}  # fmt: skip
"""The matrices behind a slot, row after row."""
NORMS = {
    "attention_norm": "attn_norm", "mlp_norm": "ffn_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
    "attention_post_norm": "post_attention_norm", "mlp_post_norm": "post_ffw_norm",
}  # fmt: skip


@dataclass(slots=True)
class StepInputs:
    """Index tensors of one step, built once and shared by all layers."""

    token_ids: Tensor
    """[T] int64."""
    positions: Tensor
    """[T] int64."""
    slot_mapping: Tensor
    """[T] int64: page · 16 + offset."""
    attention: tuple[Tensor, ...]
    """block_table [B, MB], context_lens [B] and, in prefill, query_start [B + 1], all int32, in this order."""
    rows: Tensor | None
    """Rows of the step whose logits are wanted, int64; None for all of them."""


@dataclass(slots=True)
class LayerCalls:
    """Bound slots of one layer; those it has not, and those that a live region hides, are None."""

    k_cache: Tensor
    v_cache: Tensor
    attention_block: Call | None = None
    attention_norm: Call | None = None
    qkv: Call | None = None
    rope: Call | None = None
    norm_rope: Call | None = None
    attention: Call | None = None
    attention_out: Call | None = None
    attention_post_norm: Call | None = None
    mlp_block: Call | None = None
    mlp_norm: Call | None = None
    gate_up: Call | None = None
    down: Call | None = None
    mlp_post_norm: Call | None = None


def forward(
    layers: Sequence[LayerCalls], step: StepInputs, x: Tensor, eps: float, states: list[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Run the decoder layers over embeddings `x` [T, H]; return (x, residual) [T, H] whose sum the final norm takes.

    `states` is given the residual stream [T, H] behind every layer.
    """
    residual, x = x, torch.zeros_like(x)
    positions, slots, attention = step.positions, step.slot_mapping, step.attention
    for at in layers:
        k, v = at.k_cache, at.v_cache
        if at.attention_block is not None:
            x, residual = at.attention_block(x, residual, eps, positions, slots, k, v, *attention)
        else:
            x, residual = at.attention_norm(x, residual, eps)  # type: ignore[misc]
            (qkv,) = at.qkv(x)  # type: ignore[misc]
            if at.norm_rope is None:
                (q,) = at.rope(qkv, positions, slots, k, v)  # type: ignore[misc]
            else:
                (q,) = at.norm_rope(qkv, eps, positions, slots, k, v)
            (o,) = at.attention(q, k, v, *attention)  # type: ignore[misc]
            (x,) = at.attention_out(o.flatten(1))  # type: ignore[misc]
            if at.attention_post_norm is not None:
                (x,) = at.attention_post_norm(x, eps)
        if at.mlp_block is not None:
            x, residual = at.mlp_block(x, residual, eps)
        else:
            x, residual = at.mlp_norm(x, residual, eps)  # type: ignore[misc]
            (x,) = at.gate_up(x)  # type: ignore[misc]
            (x,) = at.down(x)  # type: ignore[misc]
            if at.mlp_post_norm is not None:
                (x,) = at.mlp_post_norm(x, eps)
        if states is not None:
            states.append(x + residual)
    return x, residual


class DecoderWeights:
    """Tensors of a checkpoint by layer and slot. Joined copies (q, k, v in one) are made when asked for, not kept."""

    def __init__(self, checkpoint: Checkpoint, max_positions: int) -> None:
        self.config = checkpoint.config
        self.max_positions = max_positions
        self._interleaved = checkpoint.interleaved
        self._tensors = dict(checkpoint.tensors)
        self._embedding = self._tensors["token_embd.weight"]
        self._tables: dict[Rope, tuple[Tensor, Tensor]] = {}

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [T, H] float32 of `token_ids` [T] int64."""
        rows = self._embedding.data.index_select(0, token_ids)
        found = dequantize(Weight(self._embedding.kind, rows))
        return found if self.config.embedding_scale == 1.0 else found * self.config.embedding_scale

    def is_own(self, tensor: Tensor) -> bool:
        """Return whether a slot's weight is no copy: a tensor of the file, or a table that layers share."""
        at = tensor.data_ptr()
        tables = (table for pair in self._tables.values() for table in pair)
        mine = (*tables, *(weight.data for weight in self._tensors.values()))
        return any(start <= at < start + t.nbytes for t in mine if (start := t.data_ptr()) <= at)

    def definitions(self, layer: int) -> dict[str, Definition]:
        """Return the definition of each slot and region of `layer`; `num_layers` stands for final norm and head."""
        c, traits = self.config, self.config.traits
        if layer == c.num_layers:
            head = self._head()
            linear = define(_op_type({head.kind}, "linear"), n=head.num_rows, k=head.num_columns)
            return {"final_norm": define("add_rmsnorm", h=c.hidden), "head": linear}
        shape = {"q": c.num_heads, "kv": c.num_kv_heads, "d": c.head_dim, "p": PAGE_SIZE}
        window = c.window_of(layer)
        sliding, seen = ("", shape) if window is None else ("sliding_", {**shape, "w": window})
        found = {
            "attention_norm": define("add_rmsnorm", h=c.hidden),
            "qkv": define(self._type(layer, "qkv"), n=c.qkv_rows, k=c.hidden),
            **({"norm_rope": define("norm_rope_cache", **shape)} if traits.qk_norm else {}),
            **({"rope": define("rope_cache", **shape)} if not traits.qk_norm else {}),
            "decode_attention": define(f"{sliding}decode_attention", **seen),
            "prefill_attention": define(f"{sliding}prefill_attention", **seen),
            "attention_out": define(self._type(layer, "attention_out"), n=c.hidden, k=c.num_heads * c.head_dim),
            "mlp_norm": define("add_rmsnorm", h=c.hidden),
            "gate_up": define(self._type(layer, "gate_up"), f=c.ffn, h=c.hidden),
            "down": define(self._type(layer, "down"), n=c.hidden, k=c.ffn),
        }
        if traits.post_norms:
            found["attention_post_norm"] = found["mlp_post_norm"] = define("rmsnorm", h=c.hidden)
        return found | self._regions(layer, found)

    def _regions(self, layer: int, found: dict[str, Definition]) -> dict[str, Definition]:
        """Return the regions whose definition is what this layer does there, op for op."""
        c = self.config
        plain = {"h": c.hidden, "q": c.num_heads, "kv": c.num_kv_heads, "d": c.head_dim, "p": PAGE_SIZE}
        covered = {
            "attention_block": ("attention_norm", "qkv", "rope", "decode_attention", "attention_out"),
            "mlp_block": ("mlp_norm", "gate_up", "down"),
        }
        regions = {}
        for region, consts in (("attention_block", plain), ("mlp_block", {"f": c.ffn, "h": c.hidden})):
            kind = found["attention_out" if region == "attention_block" else "down"].op_type.removesuffix("_linear")
            if f"{kind}_{region}" not in OPS or f"{region.split('_')[0]}_post_norm" in found:
                continue
            hidden = op_named(f"{kind}_{region}").contract(define(f"{kind}_{region}", **consts)).regions
            if hidden == tuple(found[slot].name if slot in found else "" for slot in covered[region]):
                regions[region] = define(f"{kind}_{region}", **consts)
        return regions

    def slot(self, layer: int, slot: str) -> dict[str, Tensor]:
        """Return the weights of one slot under the names of its definition; raw blocks for quantised kinds."""
        match slot:
            case "attention_norm" | "mlp_norm" | "final_norm" | "attention_post_norm" | "mlp_post_norm":
                return {"weight": self._norm(layer, slot)}
            case "qkv" if self.config.traits.qkv_bias:
                return {"w": self._joined(layer, slot), "b": self._bias(layer)}
            case "qkv" | "attention_out" | "gate_up" | "down":
                return {"w": self._joined(layer, slot)}
            case "head":
                head = self._head()
                return {"w": dequantize(head) if _is_dense(_op_type({head.kind}, "linear")) else head.raw}
            case "rope":
                return self._rope(layer)
            case "norm_rope":
                q, k = self._norm(layer, "q_norm"), self._norm(layer, "k_norm")
                return {"q_weight": q * self.config.query_scale, "k_weight": k, **self._rope(layer)}
            case "attention_block":
                joined = {"w_qkv": self._joined(layer, "qkv"), "w_o": self._joined(layer, "attention_out")}
                return {"weight": self._norm(layer, "attention_norm"), **joined, **self._rope(layer)}
            case "mlp_block":
                joined = {"w_gate_up": self._joined(layer, "gate_up"), "w_down": self._joined(layer, "down")}
                return {"weight": self._norm(layer, "mlp_norm"), **joined}
        return {}

    def _parts(self, layer: int, slot: str) -> list[Weight]:
        return [self._tensors[f"blk.{layer}.{name}.weight"] for name in PARTS[slot]]

    def _type(self, layer: int, slot: str) -> str:
        """Return the op type of a slot with joined matrices: that of their kind where all are of one, else dense."""
        traits = self.config.traits
        suffix = f"gate_up_{traits.activation}" if slot == "gate_up" else "linear"
        suffix += "_bias" if slot == "qkv" and traits.qkv_bias else ""
        return _op_type({part.kind for part in self._parts(layer, slot)}, suffix)

    def _joined(self, layer: int, slot: str) -> Tensor:
        parts = self._parts(layer, slot)
        if slot == "qkv" and self._interleaved:
            parts[:2] = unpermute(parts[0], self.config.num_heads), unpermute(parts[1], self.config.num_kv_heads)
        dense = _is_dense(self._type(layer, slot))
        stored = [dequantize(part) if dense else part.raw for part in parts]
        return stored[0] if len(stored) == 1 else torch.cat(stored)

    def _bias(self, layer: int) -> Tensor:
        return torch.cat([dequantize(self._tensors[f"blk.{layer}.{name}.bias"]) for name in PARTS["qkv"]])

    def _norm(self, layer: int, slot: str) -> Tensor:
        name = "output_norm" if slot == "final_norm" else f"blk.{layer}.{NORMS[slot]}"
        return dequantize(self._tensors[f"{name}.weight"])

    def _rope(self, layer: int) -> dict[str, Tensor]:
        rope = self.config.rope_of(layer)
        if rope not in self._tables:
            divisors = self._tensors.get("rope_freqs.weight")
            self._tables[rope] = rope_tables(
                rope, self.max_positions, self.config.head_dim, None if divisors is None else dequantize(divisors)
            )
        cos, sin = self._tables[rope]
        return {"cos": cos, "sin": sin}

    def _head(self) -> Weight:
        # no tensor of its own: the head is tied to the embedding
        return self._tensors.get("output.weight", self._embedding)


@cache
def define(op_type: str, **consts: int) -> Definition:
    """Return the definition of an op; layers of one shape share the very object."""
    return define_anew(op_type, **consts)


def _op_type(kinds: set[str], suffix: str) -> str:
    """Return the op for weights of `kinds`: over raw weights where there is one, else over float32."""
    raw = f"{next(iter(kinds))}_{suffix}" if len(kinds) == 1 else ""
    return raw if raw in OPS else f"f32_{suffix}"


def _is_dense(op_type: str) -> bool:
    return op_type.startswith("f32_")
