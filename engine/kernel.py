"""One pack kernel inside the engine, and what service has shown of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.load import Implementation
from kernelwright.profiles.profile import Phase


@dataclass(frozen=True, slots=True)
class Trip:
    """A kernel is switched off because of what it did in service."""

    kind: Literal["shadow", "not_finite", "raised"]
    reason: str
    at: float
    """Seconds since 1970."""


@dataclass(slots=True, eq=False)
class Kernel:
    """One pack kernel inside the engine."""

    candidate: Candidate
    implementation: Implementation | None
    digest: str
    binary: str | None
    failure: str = ""
    ranges: dict[str, AxisRange] = field(default_factory=dict)
    trip: Trip | None = None
    trips: Counter[str] = field(default_factory=Counter)
    """By kind, since the start."""
    checks: Counter[Phase] = field(default_factory=Counter)
    checked_layers: set[int] = field(default_factory=set)

    @property
    def is_sound(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.failure and self.trip is None

    def covers(self, axes: dict[str, int]) -> bool:
        """Return whether every axis value lies in the proven ranges."""
        return all(r.low <= axes[axis] <= r.high for axis, r in self.ranges.items() if axis in axes)
