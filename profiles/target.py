"""Target: a slot chosen for work, with the reason in numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from kernelwright.profiles.profile import Phase


class Target(BaseModel, frozen=True, extra="forbid"):
    schema_version: Literal[1] = 1
    profile: str
    """Digest of the Profile it came from."""
    definition: str
    phase: Phase
    tokens: int
    share: float
    """Fraction of the phase's step time."""
    ns_per_call: float
    headroom: float | None
    """Time now ÷ time at the roofline; None without a model."""
    roofline_ns: float | None
    bound: Literal["memory", "compute", "overhead", "unknown"]
    ceiling: float
    """Best engine-level speed-up by Amdahl if this slot ran at its roofline (or took no time, without a model)."""
    reachable: bool
    """Whether a slot exists through which a candidate can be put in place."""
    excluded: str | None = None
    """Why it is not worked on, in words; None if it is."""
