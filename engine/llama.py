"""The Llama decoder as a table of slots: the weights of each slot of each layer, and the forward pass over bound slots.

Per layer, in order: attention_norm, qkv, rope, attention, attention_out, mlp_norm, gate_up, down; after the last layer
final_norm and head. Two regions cover several slots at once: attention_block (the first five, decode only) and
mlp_block (the last three). The embedding lookup is not a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from kernelwright.engine.config import PAGE_SIZE, ModelConfig
from kernelwright.engine.gguf import GgufFile, Weight, dequantize, unpermute
from kernelwright.kernels.registry import define as define_anew
from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from torch import Tensor

    from kernelwright.kernels.definition import Definition

Call = Callable[..., tuple["Tensor", ...]]
ATTENTION_OPS = ("attention_norm", "qkv", "rope", "attention", "attention_out")
MLP_OPS = ("mlp_norm", "gate_up", "down")
HEAD_OPS = ("final_norm", "head")
LINEAR_KINDS = ("q4_1", "q8_0", "q4_0", "q4_k", "q6_k", "bf16")
"""Kinds whose raw rows linear slots, gate_up and mlp_block take; others are dequantised."""


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
    """Bound slots of one layer; a region that is live leaves those it hides None."""

    k_cache: Tensor
    v_cache: Tensor
    attention_block: Call | None = None
    attention_norm: Call | None = None
    qkv: Call | None = None
    rope: Call | None = None
    attention: Call | None = None
    attention_out: Call | None = None
    mlp_block: Call | None = None
    mlp_norm: Call | None = None
    gate_up: Call | None = None
    down: Call | None = None


def forward(layers: Sequence[LayerCalls], step: StepInputs, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Run the decoder layers over embeddings `x` [T, H]; return (x, residual) [T, H] whose sum the final norm takes."""
    residual, x = x, torch.zeros_like(x)
    positions, slots, attention = step.positions, step.slot_mapping, step.attention
    for at in layers:
        k, v = at.k_cache, at.v_cache
        if at.attention_block is not None:
            x, residual = at.attention_block(x, residual, eps, positions, slots, k, v, *attention)
        else:
            x, residual = at.attention_norm(x, residual, eps)  # type: ignore[misc]
            (qkv,) = at.qkv(x)  # type: ignore[misc]
            (q,) = at.rope(qkv, positions, slots, k, v)  # type: ignore[misc]
            (o,) = at.attention(q, k, v, *attention)  # type: ignore[misc]
            (x,) = at.attention_out(o.flatten(1))  # type: ignore[misc]
        if at.mlp_block is not None:
            x, residual = at.mlp_block(x, residual, eps)
        else:
            x, residual = at.mlp_norm(x, residual, eps)  # type: ignore[misc]
            (x,) = at.gate_up(x)  # type: ignore[misc]
            (x,) = at.down(x)  # type: ignore[misc]
    return x, residual


class LlamaWeights:
    """Tensors of a GGUF file by layer and slot. Joined copies (q, k, v in one) are made when asked for, not kept."""

    def __init__(self, file: GgufFile, config: ModelConfig, max_positions: int) -> None:
        self.config = config
        self.max_positions = max_positions
        self._tensors = dict(file.tensors)
        self._check(file)
        self._embedding = self._tensors["token_embd.weight"]
        self.cos, self.sin = rope_tables(max_positions, config.head_dim, config.rope_base)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [T, H] float32 of `token_ids` [T] int64."""
        rows = self._embedding.data.index_select(0, token_ids)
        return dequantize(Weight(self._embedding.kind, rows))

    def definitions(self, layer: int) -> dict[str, Definition]:
        """Return the definition of each slot and region of `layer`; `num_layers` stands for final norm and head."""
        c = self.config
        shape = {"q": c.num_heads, "kv": c.num_kv_heads, "d": c.head_dim, "p": PAGE_SIZE}
        if layer == c.num_layers:
            head = self._head()
            linear = define(f"{_linear_kind(head)}_linear", n=head.num_rows, k=head.num_columns)
            return {"final_norm": define("add_rmsnorm", h=c.hidden), "head": linear}
        qkv, out, gate_up, down = (self._kind(layer, key) for key in ("qkv", "attention_out", "gate_up", "down"))
        found = {
            "attention_norm": define("add_rmsnorm", h=c.hidden),
            "qkv": define(f"{qkv}_linear", n=c.qkv_rows, k=c.hidden),
            "rope": define("rope_cache", **shape),
            "decode_attention": define("decode_attention", **shape),
            "prefill_attention": define("prefill_attention", **shape),
            "attention_out": define(f"{out}_linear", n=c.hidden, k=c.num_heads * c.head_dim),
            "mlp_norm": define("add_rmsnorm", h=c.hidden),
            "gate_up": define(f"{gate_up}_gate_up_silu", f=c.ffn, h=c.hidden),
            "down": define(f"{down}_linear", n=c.hidden, k=c.ffn),
        }
        if qkv == out == "q4_1":
            found["attention_block"] = define("q4_1_attention_block", h=c.hidden, **shape)
        if gate_up == down and down in LINEAR_KINDS:
            found["mlp_block"] = define(f"{down}_mlp_block", f=c.ffn, h=c.hidden)
        return found

    def slot(self, layer: int, slot: str) -> dict[str, Tensor]:
        """Return the weights of one slot under the names of its definition; raw blocks for quantised kinds."""
        rope = {"cos": self.cos, "sin": self.sin}
        match slot:
            case "attention_norm" | "mlp_norm" | "final_norm":
                return {"weight": self._norm(layer, slot)}
            case "qkv" | "attention_out" | "gate_up" | "down":
                return {"w": self._joined(layer, slot)}
            case "head":
                head = self._head()
                return {"w": head.raw if head.kind in LINEAR_KINDS else dequantize(head)}
            case "rope":
                return rope
            case "attention_block":
                joined = {"w_qkv": self._joined(layer, "qkv"), "w_o": self._joined(layer, "attention_out")}
                return {"weight": self._norm(layer, "attention_norm"), **joined, **rope}
            case "mlp_block":
                joined = {"w_gate_up": self._joined(layer, "gate_up"), "w_down": self._joined(layer, "down")}
                return {"weight": self._norm(layer, "mlp_norm"), **joined}
        return {}

    def _parts(self, layer: int, slot: str) -> list[Weight]:
        def named(name: str) -> Weight:
            return self._tensors[f"blk.{layer}.{name}.weight"]

        c = self.config
        match slot:
            case "qkv":
                q, k = unpermute(named("attn_q"), c.num_heads), unpermute(named("attn_k"), c.num_kv_heads)
                return [q, k, named("attn_v")]
            case "attention_out":
                return [named("attn_output")]
            case "gate_up":
                return [named("ffn_gate"), named("ffn_up")]
        return [named("ffn_down")]

    def _kind(self, layer: int, slot: str) -> str:
        kinds = {_linear_kind(part) for part in self._parts(layer, slot)}
        return kinds.pop() if len(kinds) == 1 else "f32"

    def _joined(self, layer: int, slot: str) -> Tensor:
        raw = self._kind(layer, slot) in LINEAR_KINDS
        parts = [part.raw if raw else dequantize(part) for part in self._parts(layer, slot)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _norm(self, layer: int, slot: str) -> Tensor:
        name = {"attention_norm": f"blk.{layer}.attn_norm", "mlp_norm": f"blk.{layer}.ffn_norm"}.get(
            slot, "output_norm"
        )
        return dequantize(self._tensors[f"{name}.weight"])

    def _head(self) -> Weight:
        # no tensor of its own: the head is tied to the embedding
        return self._tensors.get("output.weight", self._embedding)

    def _check(self, file: GgufFile) -> None:
        if self.config.num_layers > len(file.tensors):  # or a flipped byte would have us name 16 million of them
            raise BrokenInput(
                f"{file.path} claims {self.config.num_layers} layers and holds {len(file.tensors)} tensors",
                "The file may be corrupt; fetch it again",
            )
        expected = expected_shapes(self.config)
        found = {name: (*w.data.shape[:-1], w.num_columns) for name, w in file.tensors.items()}
        missing = sorted(set(expected) - set(found) - {"output.weight"})
        unknown = sorted(set(found) - set(expected))
        wrong = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
        for what, names in (("lacks", missing), ("has unknown", unknown), ("has wrongly shaped", wrong)):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                raise BrokenInput(
                    f"{file.path} {what} tensors: {', '.join(names[:3])}{more}",
                    "This engine runs plain Llama decoders; fetch the file again or use another model",
                )


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the tensors a plain Llama file holds, [rows, columns] each; `output.weight` may be absent."""
    c = config
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    layer = {
        "attn_norm": (c.hidden,),
        "attn_q": (q, c.hidden),
        "attn_k": (kv, c.hidden),
        "attn_v": (kv, c.hidden),
        "attn_output": (c.hidden, q),
        "ffn_norm": (c.hidden,),
        "ffn_gate": (c.ffn, c.hidden),
        "ffn_up": (c.ffn, c.hidden),
        "ffn_down": (c.hidden, c.ffn),
    }
    shapes = {f"blk.{i}.{name}.weight": shape for i in range(c.num_layers) for name, shape in layer.items()}
    ends = {"token_embd.weight": (c.vocab, c.hidden), "output.weight": (c.vocab, c.hidden)}
    return {**shapes, **ends, "output_norm.weight": (c.hidden,)}


def rope_tables(max_positions: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin, [max_positions, head_dim / 2] float32 each, of position · base^(-2i / head_dim).

    Computed in float32 throughout, as the model was trained and as `transformers` does (Su et al. 2021).
    """
    frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * frequencies
    return angles.cos(), angles.sin()


@cache
def define(op_type: str, **consts: int) -> Definition:
    """Return the definition of an op; layers of one shape share the very object."""
    return define_anew(op_type, **consts)


def _linear_kind(weight: Weight) -> str:
    return weight.kind if weight.kind in LINEAR_KINDS else "f32"
