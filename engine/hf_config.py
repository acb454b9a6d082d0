"""ModelConfig from a Hugging Face config.json, refused where it is not fully understood.

Keys and defaults are those of the configuration classes of `transformers`, in their old form (`rope_theta`,
`rope_scaling`) and their new one (`rope_parameters`). What those classes do not read says nothing about the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.engine.architectures import ARCHITECTURES, Architecture
from kernelwright.engine.config import MOST_LAYERS, ModelConfig, Rope
from kernelwright.profiles.errors import BrokenInput

OTHER_MODEL = "Use another model"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
MUST_BE_OFF = (
    "attention_bias", "mlp_bias", "use_bidirectional_attention", "attn_logit_softcapping", "final_logit_softcapping",
)  # fmt: skip
"""Each changes the computation in a way that this engine does not have."""
ACTIVATIONS = {"silu": "silu", "gelu": "gelu_pytorch_tanh"}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
GEMMA3_PATTERN = 6


def read_hf_config(path: Path, raw: Mapping[str, Any], name: str) -> ModelConfig:
    """Return the shape of the model whose config.json says `raw`; `path` is that file, for messages.

    Raises BrokenInput on an unknown architecture, experts, quantised weights, a RoPE scaling, activation or option that
    this engine does not have, and on a value that is missing or makes no sense.
    """
    traits = _architecture(path, raw)
    _refuse_options(path, raw, traits)
    heads, hidden, layers = (
        _positive(path, raw, key) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    if hidden % heads and raw.get("head_dim") is None:
        raise BrokenInput(f"{path}: {hidden} hidden values do not divide into {heads} heads", "Fetch the file again")
    head_dim = _positive(path, raw, "head_dim", hidden // heads)
    rope, local_rope = _ropes(path, raw, traits)
    windows = _windows(path, raw, layers, traits)
    config = ModelConfig(
        name=name,
        architecture=traits.name,
        hidden=hidden,
        ffn=_positive(path, raw, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_positive(path, raw, "num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=_positive(path, raw, "vocab_size"),
        context_length=_positive(path, raw, "max_position_embeddings"),
        eps=float(_positive(path, raw, "rms_norm_eps", 1e-6)),
        rope=rope,
        local_rope=local_rope,
        windows=windows,
        embedding_scale=_embedding_scale(raw, hidden) if traits.scaled_embedding else 1.0,
        query_scale=_query_scale(path, raw, head_dim, traits),
    )
    if heads % config.num_kv_heads or head_dim % 2:
        shape = f"{heads} heads on {config.num_kv_heads} key heads of {head_dim}"
        raise BrokenInput(f"{path}: impossible attention shape, {shape}", "The file may be corrupt; fetch it again")
    return config


def is_tied(raw: Mapping[str, Any]) -> bool:
    """Return whether the head is the embedding, whatever else the folder holds."""
    name = (raw.get("architectures") or [None])[0]
    default = any(a.hugging_face == name and a.tied for a in ARCHITECTURES.values())
    return bool(raw.get("tie_word_embeddings", default))


def _architecture(path: Path, raw: Mapping[str, Any]) -> Architecture:
    names = raw.get("architectures")
    known = {a.hugging_face: a for a in ARCHITECTURES.values()}
    if not isinstance(names, list) or len(names) != 1 or names[0] not in known:
        raise BrokenInput(f"{path}: unknown architecture {names!r}", f"This engine runs: {', '.join(known)}")
    return known[names[0]]


def _refuse_options(path: Path, raw: Mapping[str, Any], traits: Architecture) -> None:
    if raw.get("quantization_config") is not None:
        how = raw["quantization_config"]
        method = how.get("quant_method", "unknown") if isinstance(how, dict) else "unknown"
        raise BrokenInput(
            f"{path}: the weights are quantised ({method})", "Use the unquantised model, or a GGUF file of it"
        )
    if experts := [key for key in EXPERTS if raw.get(key)]:
        raise BrokenInput(f"{path}: a mixture of experts ({experts[0]} = {raw[experts[0]]!r})", OTHER_MODEL)
    if odd := [key for key in MUST_BE_OFF if raw.get(key) and not (key == "attention_bias" and traits.qkv_bias)]:
        raise BrokenInput(f"{path}: {odd[0]} = {raw[odd[0]]!r} is not supported", OTHER_MODEL)
    if raw.get("partial_rotary_factor") not in (None, 1, 1.0):
        what = f"partial_rotary_factor = {raw['partial_rotary_factor']!r}"
        raise BrokenInput(f"{path}: {what} is not supported; this engine rotates whole heads", OTHER_MODEL)
    key = "hidden_activation" if traits.activation == "gelu" else "hidden_act"
    expected = ACTIVATIONS[traits.activation]
    if raw.get(key, expected) != expected:
        raise BrokenInput(f"{path}: {key} is {raw[key]!r} where {expected!r} is supported", OTHER_MODEL)


def _ropes(path: Path, raw: Mapping[str, Any], traits: Architecture) -> tuple[Rope, Rope | None]:
    """Return the rotary embedding of layers that see all, and of those with a window where it is another."""
    # `rope_scaling` wins where both are given, as in `transformers`
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, dict):
        raise BrokenInput(f"{path}: RoPE scaling is {given!r}", "Fetch the file again")
    by_layer = {key: value or {} for key, value in given.items() if key in (LOCAL, GLOBAL)}
    if traits.local_rope_base is None:
        if by_layer:
            raise BrokenInput(f"{path}: RoPE scaling that differs by layer is not supported", OTHER_MODEL)
        return _rope(path, raw, given, raw.get("rope_theta", traits.rope_base)), None
    local_base = raw.get("rope_local_base_freq", traits.local_rope_base)
    everywhere = by_layer.get(GLOBAL, {} if by_layer else given)
    return (
        _rope(path, raw, everywhere, raw.get("rope_theta", traits.rope_base)),
        _rope(path, raw, by_layer.get(LOCAL, {}), local_base),
    )


def _rope(path: Path, raw: Mapping[str, Any], given: Mapping[str, Any], base: Any) -> Rope:
    kind = given.get("rope_type", given.get("type", "default"))
    if given.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise BrokenInput(f"{path}: RoPE scaling of a part of each head is not supported", OTHER_MODEL)
    base = float(_positive(path, {"rope_theta": base, **given}, "rope_theta"))
    if kind == "default":
        return Rope(base=base)
    if kind == "linear":
        return Rope(base=base, scaling="linear", factor=float(_positive(path, given, "factor")))
    if kind == "llama3":
        low, high = (float(_positive(path, given, f"{end}_freq_factor")) for end in ("low", "high"))
        key = "original_max_position_embeddings"
        context = _positive(path, {**raw, **given}, key, raw.get("max_position_embeddings"))
        if low >= high:
            remedy = "The file may be corrupt; fetch it again"
            raise BrokenInput(f"{path}: RoPE scaling has low_freq_factor {low}, not below {high}", remedy)
        return Rope(
            base=base, scaling="llama3", factor=float(_positive(path, given, "factor")), low_factor=low,
            high_factor=high, original_context=int(context),
        )  # fmt: skip
    remedy = "This engine knows the RoPE scalings default, linear and llama3"
    raise BrokenInput(f"{path}: RoPE scaling {kind!r} is not supported", remedy)


def _windows(path: Path, raw: Mapping[str, Any], layers: int, traits: Architecture) -> tuple[int | None, ...]:
    if layers > MOST_LAYERS:
        return ()
    if traits.local_rope_base is not None:
        period = _positive(path, raw, "sliding_window_pattern", GEMMA3_PATTERN)
        window = raw.get("sliding_window", 4096)
        kinds = [LOCAL if (layer + 1) % period else GLOBAL for layer in range(layers)]
    else:
        window = raw.get("sliding_window", 4096) if raw.get("use_sliding_window") else None
        last = raw.get("max_window_layers", 28)
        kinds = [LOCAL if window is not None and layer >= last else GLOBAL for layer in range(layers)]
    kinds = raw.get("layer_types") or kinds
    if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= {LOCAL, GLOBAL}:
        raise BrokenInput(f"{path}: layer_types does not name {layers} layers, each {LOCAL} or {GLOBAL}", OTHER_MODEL)
    if traits.name == "llama" or LOCAL not in kinds or window is None:
        return ()
    window = _positive(path, {"sliding_window": window}, "sliding_window")
    return tuple(window if kind == LOCAL else None for kind in kinds)


def _query_scale(path: Path, raw: Mapping[str, Any], head_dim: int, traits: Architecture) -> float:
    if not traits.scaled_embedding:
        return 1.0
    return math.sqrt(head_dim / _positive(path, raw, "query_pre_attn_scalar", 256))


def _embedding_scale(raw: Mapping[str, Any], hidden: int) -> float:
    """Return sqrt(hidden), rounded to the model's own type: so it was trained, and so `transformers` runs it."""
    import torch

    types = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    dtype = types.get(str(raw.get("dtype") or raw.get("torch_dtype")), torch.float32)
    return float(torch.tensor(math.sqrt(hidden), dtype=dtype))


def _positive(path: Path, raw: Mapping[str, Any], key: str, default: Any = None) -> Any:
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
        raise BrokenInput(f"{path}: {key} is {value!r}", "The file may be corrupt; fetch it again")
    return value
