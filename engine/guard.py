"""Guard: notice a generation that has collapsed while it runs.

Two signs, both cheap enough for every token: one token drawn many times in a row, and logits that are not finite. What
to do about it is a choice: `observe` counts, `stop` also ends the generation with finish reason `collapse`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["observe", "stop"]
Collapse = Literal["repeat", "not_finite"]


@dataclass(slots=True)
class _Run:
    token: int = -1
    length: int = 0
    reported: bool = False


@dataclass(slots=True)
class Guard:
    max_repeats: int = 64
    """A token drawn more often than this in a row is a collapse."""
    action: Action = "observe"
    trips: Counter[str] = field(default_factory=Counter)
    """Collapses seen since the start, by kind; a generation counts once for each kind."""
    _runs: dict[str, _Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_repeats < 1:
            raise ValueError(f"max_repeats must be at least 1, not {self.max_repeats}")

    def observe(self, request: str, token: int | None) -> Collapse | None:
        """Take note of one step of `request`; return the kind of collapse that it completes, else None.

        `token` is None when the sampler refused to draw because the logits were not finite.
        """
        if token is None:
            self.trips["not_finite"] += 1
            return "not_finite"
        run = self._runs.setdefault(request, _Run())
        if run.token != token:
            run.token, run.length = token, 0
        run.length += 1
        if run.length <= self.max_repeats or run.reported:
            return None
        run.reported = True
        self.trips["repeat"] += 1
        return "repeat"

    def forget(self, request: str) -> None:
        """Drop what is known about a request that has ended."""
        self._runs.pop(request, None)
