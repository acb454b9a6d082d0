"""ModelConfig: the shape of a model, however it is stored; EngineConfig: how the engine runs it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, model_validator

from kernelwright.engine.architectures import ARCHITECTURES, Architecture
from kernelwright.profiles.errors import WrongUse

PAGE_SIZE = 16
MOST_LAYERS = 1 << 16
"""More are a flipped byte, and nothing is listed for each: that there are no tensors for them is found when they are
counted."""


class Rope(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A rotary embedding: its base, and how its frequencies are stretched (`engine/rope.py`)."""

    base: float
    scaling: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_factor: float = 1.0
    """llama3: wavelengths above original_context / low_factor are stretched in full …"""
    high_factor: float = 4.0
    """… and those below original_context / high_factor not at all."""
    original_context: int = 8192
    """llama3: positions the model was trained on before it was stretched."""


class ModelConfig(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    name: str
    architecture: str
    """A key of `ARCHITECTURES`."""
    hidden: int
    ffn: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    context_length: int
    """Most positions the model was made for."""
    eps: float
    """Epsilon of all its RMS norms."""
    rope: Rope
    local_rope: Rope | None = None
    """Rotary embedding of the layers that have a window; None: the same as the others'."""
    windows: tuple[int | None, ...] = ()
    """Tokens that attention sees in each layer, the query's own among them; None = all before it. () = all."""
    embedding_scale: float = 1.0
    """What embeddings are multiplied with."""
    query_scale: float = 1.0
    """What normed queries are multiplied with, beside the usual 1 / sqrt(head_dim) of scores."""

    @property
    def traits(self) -> Architecture:
        """Return what sets the architecture apart from a plain Llama."""
        return ARCHITECTURES[self.architecture]

    @property
    def qkv_rows(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    def window_of(self, layer: int) -> int | None:
        """Return the tokens that attention of `layer` sees; None when it sees all."""
        return self.windows[layer] if self.windows else None

    def rope_of(self, layer: int) -> Rope:
        """Return the rotary embedding of `layer`."""
        return self.local_rope if self.local_rope is not None and self.window_of(layer) is not None else self.rope


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
