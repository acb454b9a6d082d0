"""ModelConfig from GGUF metadata, refused where it is not fully understood.

Keys: the GGUF specification, and what llama.cpp's converter writes and its loader supplies where a key is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.engine.architectures import ARCHITECTURES
from kernelwright.engine.config import MOST_LAYERS, ModelConfig, Rope
from kernelwright.profiles.errors import BrokenInput

# hyper-parameters that we honour, and those that say nothing about the computation
KNOWN_KEYS = frozenset(
    "block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv "
    "attention.layer_norm_rms_epsilon attention.key_length attention.value_length rope.freq_base rope.dimension_count "
    "rope.scaling.type rope.scaling.factor vocab_size".split()
)
LOCAL_KEYS = frozenset({"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"})
"""What Gemma 3 has beside."""
GEMMA3_PATTERN = 6
"""Every sixth layer of Gemma 3 sees all tokens, where the file does not say otherwise."""
GEMMA3_27B_LAYERS = 62
"""The one Gemma 3 whose scores are not scaled by the head size. GGUF has no key for that: llama.cpp tells it by its
layers, too."""


def read_config(path: Path, metadata: Mapping[str, Any], vocab: int) -> ModelConfig:
    """Return the model's shape; `vocab` counts the rows of the embedding.

    Raises BrokenInput on an unknown architecture, hyper-parameter, RoPE scaling or head size, or on a missing key.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise BrokenInput(f"{path}: unknown architecture {architecture!r}", f"This engine runs: {known}")
    traits = ARCHITECTURES[architecture]
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    _refuse_unknown(path, values, KNOWN_KEYS if traits.local_rope_base is None else KNOWN_KEYS | LOCAL_KEYS)
    heads, hidden = (_positive(path, values, key) for key in ("attention.head_count", "embedding_length"))
    if hidden % heads and "attention.key_length" not in values:
        raise BrokenInput(f"{path}: {hidden} hidden values do not divide into {heads} heads", "Fetch the file again")
    num_layers = _positive(path, values, "block_count")
    config = ModelConfig(
        name=str(metadata.get("general.name") or path.stem),
        architecture=architecture,
        hidden=hidden,
        ffn=_positive(path, values, "feed_forward_length"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=_positive(path, values, "attention.head_count_kv", heads),
        head_dim=_positive(path, values, "attention.key_length", hidden // heads),
        vocab=vocab,
        context_length=_positive(path, values, "context_length"),
        eps=float(_positive(path, values, "attention.layer_norm_rms_epsilon")),
        rope=_rope(path, values, traits.rope_base),
        local_rope=_local_rope(path, values, traits.local_rope_base),
        windows=_windows(path, values, num_layers),
        embedding_scale=math.sqrt(hidden) if traits.scaled_embedding else 1.0,
    )
    _check_heads(path, values, config)
    if architecture == "gemma3" and num_layers == GEMMA3_27B_LAYERS:
        scale = math.sqrt(config.head_dim * heads / hidden)
        config = ModelConfig.model_validate({**config.model_dump(), "query_scale": scale})
    return config


def _rope(path: Path, values: Mapping[str, Any], base: float) -> Rope:
    base = float(_positive(path, values, "rope.freq_base", base))
    scaling = sorted(key for key in values if key.startswith("rope.scaling."))
    kind = values.get("rope.scaling.type", "none") if scaling != ["rope.scaling.factor"] else None
    if kind == "none":
        return Rope(base=base)
    if kind == "linear" and "rope.scaling.factor" in values:
        return Rope(base=base, scaling="linear", factor=float(_positive(path, values, "rope.scaling.factor")))
    what = ", ".join(f"{key} = {values[key]}" for key in scaling)
    remedy = "This engine scales linearly (with a factor), or as Llama 3 does; use another model"
    raise BrokenInput(f"{path}: RoPE scaling is not supported: {what}", remedy)


def _local_rope(path: Path, values: Mapping[str, Any], base: float | None) -> Rope | None:
    return None if base is None else Rope(base=float(_positive(path, values, "rope.freq_base_swa", base)))


def _windows(path: Path, values: Mapping[str, Any], num_layers: int) -> tuple[int | None, ...]:
    if not values.get("attention.sliding_window") or num_layers > MOST_LAYERS:
        return ()
    window = _positive(path, values, "attention.sliding_window")
    pattern = values.get("attention.sliding_window_pattern", GEMMA3_PATTERN)
    if isinstance(pattern, list):
        if len(pattern) != num_layers:
            raise BrokenInput(
                f"{path}: the window pattern has {len(pattern)} entries for {num_layers} layers", "Fetch the file again"
            )
        return tuple(window if local else None for local in pattern)
    period = _positive(path, values, "attention.sliding_window_pattern", GEMMA3_PATTERN)
    return tuple(window if (layer + 1) % period else None for layer in range(num_layers))


def _refuse_unknown(path: Path, values: Mapping[str, Any], known: frozenset[str]) -> None:
    # keys of RoPE scaling are judged together, in `_rope`
    unknown = sorted(
        key for key in set(values) - known if values[key] not in (0, 0.0) and not key.startswith("rope.scaling.")
    )
    if unknown:
        remedy = f"This engine knows: {', '.join(sorted(known))}"
        raise BrokenInput(f"{path}: unknown hyper-parameters {', '.join(unknown)}", remedy)
    odd = sorted(key for key in set(values) - known if key.startswith("rope.scaling."))
    if odd:
        raise BrokenInput(f"{path}: RoPE scaling is not supported: {', '.join(odd)}", "Use a model without it")


def _check_heads(path: Path, values: Mapping[str, Any], config: ModelConfig) -> None:
    for key in ("attention.value_length", "rope.dimension_count"):
        if values.get(key, config.head_dim) != config.head_dim:
            raise BrokenInput(
                f"{path}: {key} is {values[key]} where heads have {config.head_dim}",
                "This engine rotates whole heads and needs keys and values of one size",
            )
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        shape = f"{config.num_heads} heads on {config.num_kv_heads} key heads of {config.head_dim}"
        raise BrokenInput(f"{path}: impossible attention shape, {shape}", "The file may be corrupt; fetch it again")


def _positive(path: Path, values: Mapping[str, Any], key: str, default: Any = None) -> Any:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
        raise BrokenInput(f"{path}: hyper-parameter {key} is {value!r}", "The file may be corrupt; fetch it again")
    return value
