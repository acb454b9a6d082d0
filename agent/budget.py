"""Budget: wall time, attempts and tokens of a session, with the share each phase may take.

Wall time of an interrupted run counts: the ledger keeps what was spent, and a resumed run starts from there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

# Shares of the session's wall time. Solving takes what the others leave; a phase that ends early gives its rest back.
GATE_SHARE = 0.48
GATED_SESSION_S = 480.0
REPORT_SECONDS = 6.0


@dataclass
class Budget:
    """Mutable on purpose: a clock that runs. Times in seconds."""

    total_s: float
    max_attempts: int
    max_tokens: int
    spent_before_s: float = 0.0
    attempts: int = 0
    tokens: int = 0
    _started: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """Wall seconds spent by this run and the interrupted ones before it."""
        return self.spent_before_s + time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        return max(0.0, self.total_s - self.spent_s)

    @property
    def gate_s(self) -> float:
        """Seconds kept back for the gate; none in a session too short for one, whose time goes to solving."""
        return self.total_s * GATE_SHARE if self.total_s >= GATED_SESSION_S else 0.0

    @property
    def solve_left_s(self) -> float:
        """Seconds left for solving, the gate and the report kept back."""
        return max(0.0, self.left_s - self.gate_s - REPORT_SECONDS)

    def lacks_for_gate(self, incumbent_tok_s: float) -> str | None:
        """Return why the gate cannot be run in the time left, in words; None when it can.

        The gate's least is mostly tokens decoded by the incumbent, about 3,500 at batch 1 with all that goes around
        them, and a minute of starting engines.
        """
        needed = 60.0 + 3500.0 / max(incumbent_tok_s, 0.1)
        if self.left_s >= 0.8 * needed:
            return None
        return (
            f"the gate takes about {needed:.0f} s on this machine, {self.left_s:.0f} s were left: give it more minutes"
        )

    def exhausted(self) -> str | None:
        """Return which budget has run out, in words; None while all last."""
        if self.solve_left_s <= 0:
            return "wall time"
        if self.attempts >= self.max_attempts:
            return "attempts"
        return None

    def tokens_left(self) -> int:
        return max(0, self.max_tokens - self.tokens)
