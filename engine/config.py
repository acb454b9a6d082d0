"""ModelConfig: the shape of a Llama-family model, read from GGUF metadata and refused where not fully understood."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_validator

from kernelwright.profiles.errors import BrokenInput, WrongUse

ARCHITECTURES = ("llama",)
PAGE_SIZE = 16
# hyper-parameters that we honour, and those that say nothing about the computation
KNOWN_KEYS = frozenset(
    "block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv "
    "attention.layer_norm_rms_epsilon attention.key_length attention.value_length rope.freq_base rope.dimension_count "
    "rope.scaling.type vocab_size".split()
)


class ModelConfig(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    name: str
    architecture: str
    hidden: int
    ffn: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    context_length: int
    """Most positions the model was made for."""
    rope_base: float
    eps: float
    """Epsilon of the RMS norms."""

    @property
    def qkv_rows(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


class EngineConfig(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How the engine runs; its digest names the configuration a profile was taken with."""

    max_num_seqs: int = 16
    """Sequences decoded together at most."""
    num_pages: int = 1024
    """Pages of the KV cache, 16 tokens each."""
    token_budget: int = 2048
    """Tokens of one prefill step at most; longer prompts go in chunks."""
    prefix_cache: bool = True
    """Whether requests that begin alike share what is computed of their beginning."""
    threads: int | None = None
    """Threads of torch and OpenMP; None leaves torch's own choice."""

    @model_validator(mode="after")
    def _makes_sense(self) -> EngineConfig:
        for name in ("max_num_seqs", "num_pages", "token_budget", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        return self


def engine_config(**values: Any) -> EngineConfig:
    """Return an EngineConfig; raises WrongUse with the reason instead of pydantic's error."""
    try:
        return EngineConfig(**values)
    except ValueError as error:
        raise WrongUse(f"bad engine configuration: {error}", "Give positive whole numbers") from error


def read_config(path: Path, metadata: Mapping[str, Any], vocab: int) -> ModelConfig:
    """Return the model's shape; `vocab` counts the rows of the embedding.

    Raises BrokenInput on an unknown architecture, hyper-parameter, RoPE scaling or head size, or on a missing key.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise BrokenInput(f"{path}: unknown architecture {architecture!r}", f"This engine runs: {known}")
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    _refuse_unknown(path, values)
    heads = _positive(path, values, "attention.head_count")
    hidden = _positive(path, values, "embedding_length")
    if hidden % heads and "attention.key_length" not in values:
        raise BrokenInput(f"{path}: {hidden} hidden values do not divide into {heads} heads", "Fetch the file again")
    head_dim = _positive(path, values, "attention.key_length", hidden // heads)
    config = ModelConfig(
        name=str(metadata.get("general.name") or path.stem),
        architecture=architecture,
        hidden=hidden,
        ffn=_positive(path, values, "feed_forward_length"),
        num_layers=_positive(path, values, "block_count"),
        num_heads=heads,
        num_kv_heads=_positive(path, values, "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=vocab,
        context_length=_positive(path, values, "context_length"),
        rope_base=float(_positive(path, values, "rope.freq_base", 10000.0)),
        eps=float(_positive(path, values, "attention.layer_norm_rms_epsilon")),
    )
    _check_heads(path, values, config)
    return config


def _refuse_unknown(path: Path, values: Mapping[str, Any]) -> None:
    scaling = [key for key in values if key.startswith("rope.scaling.")]
    if scaling and (scaling != ["rope.scaling.type"] or values["rope.scaling.type"] != "none"):
        raise BrokenInput(
            f"{path}: RoPE scaling ({', '.join(sorted(scaling))}) is not supported", "Use a model without RoPE scaling"
        )
    unknown = sorted(key for key in set(values) - KNOWN_KEYS if values[key] not in (0, 0.0))
    if unknown:
        raise BrokenInput(
            f"{path}: unknown hyper-parameters {', '.join(unknown)}",
            f"This engine knows: {', '.join(sorted(KNOWN_KEYS))}",
        )


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
