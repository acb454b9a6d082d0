"""SessionView: all that the screens show of a session, read at one moment. Imports nothing of Textual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from kernelwright.agent.events import Event, ProgressMade
from kernelwright.agent.ledger import Attempt
from kernelwright.profiles.profile import Profile
from kernelwright.profiles.target import Target

Standing = Literal["live", "done", "interrupted", "failed", "killed"]
PhaseState = Literal["waiting", "running", "done", "interrupted"]
PHASES = ("selftest", "incumbent", "profile", "capture", "rank", "solve", "compose", "gate", "commit")
"""The walk as every session goes it; steps beside it are shown once they were begun."""


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One line of the walk; all `solve:…` steps are one phase. Seconds of a phase that runs grow with the clock."""

    name: str
    state: PhaseState
    seconds: float
    running_since: float | None
    budget_s: float | None
    count: str = ""
    """How many parts are done, e.g. `3/8`."""

    def seconds_at(self, now: float) -> float:
        """Return the phase's wall seconds at `now` (unix seconds)."""
        return self.seconds + (max(0.0, now - self.running_since) if self.running_since is not None else 0.0)


@dataclass(frozen=True, slots=True)
class Best:
    """The best attempt at a definition so far, or only how often it was tried."""

    definition: str
    attempt: Attempt | None
    standing: Literal["accepted", "confirmed", "searched", "none"]
    tried: int


class Speed(BaseModel, frozen=True, extra="ignore"):
    """Engine-level A/B of one phase, measured over HTTP."""

    incumbent_tok_s: float | None = None
    patched_tok_s: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    n: int | None = None
    launches: int | None = None
    floor: float | None = None
    """A/A floor of this host, as a fraction."""


class Fidelity(BaseModel, frozen=True, extra="ignore"):
    mean_kld: float | None = None
    null_kld: float | None = None
    p999_kld: float | None = None
    top1: float | None = None
    mismatches_beyond_ties: int = 0
    ln_ppl_ratio: float | None = None
    tokens: int | None = None


class AcceptedKernel(BaseModel, frozen=True, extra="ignore"):
    definition: str
    author: str = ""
    proposer: str = ""
    attempts_judged: int | None = None
    attempts_rejected: int | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    gain_over_default: float | None = None
    hits: int | dict[str, int] | None = None

    @property
    def num_hits(self) -> int | None:
        """Hits in the gate, summed over the phases when they are told apart."""
        return sum(self.hits.values()) if isinstance(self.hits, dict) else self.hits


@dataclass(frozen=True, slots=True)
class GateView:
    """What the gate and the measurement found; empty fields were not measured yet."""

    passed: bool | None
    state: str
    """`pass`, `review` or `refuse`; empty before the gate has ruled."""
    reason: str
    incumbent_tok_s: float | None
    """Decode of the incumbent as measured before anything was changed, for orientation."""
    speed: dict[str, Speed]
    """By phase, `decode` and `prefill`."""
    compiled_tok_s: float | None
    """Decode of torch.compile of the incumbent, in tokens per second."""
    fidelity: dict[str, Fidelity]
    """By scoring run: `decode`, `decode_batch8`, `prefill`."""
    accepted: tuple[AcceptedKernel, ...]
    bytes_per_token: dict[str, float]
    branch: str | None
    commit: str | None
    report: str | None


@dataclass(frozen=True, slots=True)
class SessionView:
    """A frozen picture of the session; `seq` is the last event in it."""

    folder: str
    standing: Standing
    reason: str
    """Why it ended; empty while it runs."""
    arguments: dict[str, Any]
    spent: dict[str, float]
    seconds: float
    running_since: float | None
    phases: tuple[PhaseView, ...]
    progress: ProgressMade | None
    profile: Profile | None
    targets: tuple[Target, ...]
    attempts: tuple[Attempt, ...]
    best: tuple[Best, ...]
    gate: GateView
    events: tuple[tuple[int, Event], ...]
    unreadable: tuple[str, ...]
    """Steps whose result this version cannot make sense of."""

    @property
    def seq(self) -> int:
        return self.events[-1][0] if self.events else 0

    @property
    def budget_s(self) -> float | None:
        """Wall seconds the session may take, from its arguments."""
        minutes = self.arguments.get("minutes")
        return float(minutes) * 60 if isinstance(minutes, int | float) else None

    def seconds_at(self, now: float) -> float:
        """Return the session's wall seconds at `now` (unix seconds), interruptions left out."""
        return self.seconds + (max(0.0, now - self.running_since) if self.running_since is not None else 0.0)

    def outcomes(self) -> dict[str, int]:
        """Return how many attempts there are by outcome; those without one count as `running` or `interrupted`."""
        counts: dict[str, int] = {}
        for attempt in self.attempts:
            counts[outcome_of(attempt)] = counts.get(outcome_of(attempt), 0) + 1
        return counts


def outcome_of(attempt: Attempt) -> str:
    """Return the attempt's outcome, or its state while it has none."""
    return attempt.outcome or attempt.state
