"""What one `optimize` run was asked to do. Stored in the ledger; a resumed run takes it from there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field


class OptimizeOptions(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    model: Path
    """The GGUF file or Hugging Face folder that is served and optimised."""
    out: Path
    """Session folder."""
    repo: Path | None = None
    """Repository the kernels are committed to; None makes a kernel-pack repository in the session folder."""
    minutes: float = Field(default=15.0, gt=0)
    """Wall time of the whole session, set-up apart."""
    max_attempts: int = Field(default=500, ge=1)
    max_tokens: int = Field(default=4000, ge=0)
    """Tokens the brain may generate."""
    brains: tuple[str, ...] = ("templates", "self")
    """Proposers: `templates`, `self` (the served model) or the URL of an OpenAI-compatible endpoint."""
    only: tuple[str, ...] = ()
    """Work on these definitions only; empty means every target, best first."""
    cage: Literal["bubblewrap", "docker", "process"] = "bubblewrap"
    threads: int = Field(ge=1)
    """Threads of the engine; part of the configuration that the profile belongs to."""
    seed: int = 0
    command: str = ""
    """The command line, for the report: numbers travel with the command that made them."""
