"""What a selftest found: every exploit, every honest control, the incumbent against itself, planted effects."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, computed_field

from kernelwright.sandbox.verdict import Outcome

WRONGED = ("incorrect", "suspect", "invalid")
"""Outcomes that no honest candidate may get."""


class Played(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One candidate of the corpus and what the judge made of it."""

    name: str
    kind: Literal["exploit", "honest"]
    problem: str
    family: str
    """Number in the catalogue of known cheats; '' for an honest control."""
    text: str
    outcome: Outcome
    reason: str
    phase: Literal["search", "confirm"]
    """The phase that decided."""
    caught_by: str
    """The control that stopped it; '' for what was not stopped."""
    ratio: float | None = None
    low: float | None = None
    faster: bool = False
    """Honest controls: whether it is at least 10 % faster by construction."""
    seconds: float

    @property
    def accepted(self) -> bool:
        return self.outcome == "faster"


class SelfTrial(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One verdict of an incumbent against itself."""

    problem: str
    phase: Literal["search", "confirm"]
    outcome: Outcome
    ratio: float | None = None
    low: float | None = None
    floor: float | None = None
    launches: tuple[float, ...] = ()
    """Median ratio of each launch."""

    def describe(self) -> str:
        if self.ratio is None or self.low is None:
            return f"{self.problem} in {self.phase}"
        each = " ".join(f"{ratio:.3f}" for ratio in self.launches)
        return f"{self.problem} in {self.phase}: {self.ratio:.3f}x, from {self.low:.3f}x on, launches {each}"


class SelfAgainstSelf(BaseModel, frozen=True, extra="forbid"):
    """The incumbent judged as if it were a candidate: it must never be `faster`."""

    trials: tuple[SelfTrial, ...] = ()
    search_trials: int
    search_faster: int
    confirm_trials: int
    confirm_faster: int


class Planted(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A change of speed known by construction, on a kernel of some 20 ms."""

    percent: float
    """Above 0: the candidate does this much less work."""
    trials: int
    faster: int
    slower: int


class SelftestReport(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    full: bool
    harness: str
    """Digest of the judge that was tested."""
    host: str
    """Digest that stands for this machine."""
    finished: float
    """Seconds since 1970."""
    seconds: float
    isolation: str
    """Lowest level that any runner was measured at."""
    played: tuple[Played, ...]
    aa: SelfAgainstSelf
    planted: tuple[Planted, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def failures(self) -> tuple[str, ...]:
        """What must not have happened and did; empty when the judge can be trusted here."""
        found = [f"exploit {p.name} was accepted" for p in self.exploits() if p.accepted]
        found += [f"honest control {p.name} was called {p.outcome}: {p.reason}" for p in self.wronged()]
        trials, faster = self._aa_totals()
        if faster > 0.01 * trials:
            which = "; ".join(trial.describe() for trial in self.aa.trials if trial.outcome == "faster")
            found.append(f"the incumbent was found faster than itself in {faster} of {trials} trials ({which})")
        found += [
            f"a kernel made {-p.percent:g} % slower was found faster"
            for p in self.planted
            if p.percent < 0 and p.faster
        ]
        if trials and self.isolation < "L3":  # told by the trials: exploits are played past the screens
            found.append(f"the cage reached isolation {self.isolation} only, a patch needs L3")
        return tuple(found)

    @property
    def passed(self) -> bool:
        return not self.failures

    def exploits(self) -> list[Played]:
        return [p for p in self.played if p.kind == "exploit"]

    def honest(self) -> list[Played]:
        return [p for p in self.played if p.kind == "honest"]

    def wronged(self) -> list[Played]:
        return [p for p in self.honest() if p.outcome in WRONGED or (p.outcome == "faster" and not p.faster)]

    def counts(self) -> dict[str, object]:
        """Return what `selftest --json` ends with."""
        trials, faster = self._aa_totals()
        honest = self.honest()
        return {
            "exploits": {"total": len(self.exploits()), "accepted": sum(p.accepted for p in self.exploits())},
            "honest": {
                "total": len(honest),
                "rejected": sum(p.outcome in WRONGED for p in honest),
                "faster": sum(p.outcome == "faster" for p in honest),
                "truly_faster": sum(p.faster for p in honest),
            },
            "aa": {"total": trials, "faster": faster, **self.aa.model_dump(exclude={"trials"})},
            "planted": [p.model_dump() for p in self.planted],
            "seconds": round(self.seconds, 1),
            "passed": self.passed,
            "failures": list(self.failures),
            "full": self.full,
            "isolation": self.isolation,
            "harness": self.harness,
        }

    def _aa_totals(self) -> tuple[int, int]:
        aa = self.aa
        return aa.search_trials + aa.confirm_trials, aa.search_faster + aa.confirm_faster
