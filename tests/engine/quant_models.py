"""Small Llamas of random raw blocks of any type, and the same models as floats, read by the gguf package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

from kernelwright.kernels.ops.weights import QUANTISED

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 256, 512, 4, 2, 64
"""Rows are whole blocks of 256."""
METADATA = {
    "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS, "llama.attention.key_length": HEAD_DIM,
    "llama.attention.value_length": HEAD_DIM, "llama.rope.dimension_count": HEAD_DIM,
}  # fmt: skip
SHAPES = {
    "attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM), "ffn_gate": (FFN, HIDDEN),
    "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN), "token_embd": (300, HIDDEN),
}  # fmt: skip
Tensors = dict[str, tuple[str, np.ndarray]]
"""Name → its type's name in lower case and its rows, raw bytes where it is quantised."""


def draw_tensors(kind: str, mixed: Mapping[str, str] | None = None, seed: int = 0) -> Tensors:
    """Return two layers and a tied embedding of type `kind`; `mixed` gives the types of some, by the name's last part.

    Values are about as large as a trained model's: random blocks have a mean and a scale that depend on the kind.
    """
    generator, tensors = torch.Generator().manual_seed(seed), Tensors()
    names = ["token_embd", *(f"blk.{layer}.{name}" for layer in range(2) for name in SHAPES if name != "token_embd")]
    for name in names:
        last = name.split(".")[-1]
        of = (mixed or {}).get(last, kind)
        rows = QUANTISED[of].draw(*SHAPES[last], generator, "normal")
        assert isinstance(rows, torch.Tensor)
        tensors[f"{name}.weight"] = (of, rows.numpy())
    for norm in ("output_norm", *(f"blk.{layer}.{name}" for layer in range(2) for name in ("attn_norm", "ffn_norm"))):
        tensors[f"{norm}.weight"] = ("f32", 1 + 0.1 * torch.randn(HIDDEN, generator=generator).numpy())
    return tensors


def as_floats(tensors: Tensors) -> Tensors:
    """Return the same tensors as float32, dequantised by the gguf package."""
    found = Tensors()
    for name, (kind, rows) in tensors.items():
        raw = GGMLQuantizationType[kind.upper()]
        found[name] = ("f32", rows if kind == "f32" else quants.dequantize(rows.view(np.uint8), raw))
    return found


def write_model(path: Path, tensors: Tensors, make_tiny_model: Callable[..., Path]) -> Path:
    """Write a model of these tensors; vocabulary and all else are the tiny model's."""
    base = make_tiny_model(path.with_suffix(".base"), kind="F32", head="F32", metadata=METADATA)
    writer = GGUFWriter(path, "llama")
    for name, field in GGUFReader(base).fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        of_items = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], of_items)
    for name, (kind, rows) in tensors.items():
        quantised = kind != "f32"
        raw = GGMLQuantizationType[kind.upper()] if quantised else None
        writer.add_tensor(name, np.ascontiguousarray(rows.view(np.uint8) if quantised else rows), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    base.unlink()
    return path
