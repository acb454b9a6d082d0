"""Compose the stack: which accepted kernels go into the pack together.

A live region hides the ops inside it, so it must beat them: its time against the sum of theirs (the accepted kernel's
where there is one, the incumbent's else), all at the timed shape. Ops stay in the pack beside a region: they serve the
steps outside the region's range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import SlotContract
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Accepted:
    """A kernel the judge accepted."""

    candidate: Candidate
    verdict: Verdict

    @property
    def microseconds(self) -> float:
        assert self.verdict.comparison is not None  # `faster` implies it
        return self.verdict.comparison.candidate_us


def compose(
    accepted: Mapping[str, Accepted], contracts: Mapping[str, SlotContract], lone: Mapping[str, Target]
) -> tuple[list[str], dict[str, str]]:
    """Return the definitions to switch on, and why each region left out was left out.

    `lone` maps a definition to its decode target at one token, whose `ns_per_call` is the incumbent's time.
    """
    chosen, left_out = [], {}
    for name, kernel in accepted.items():
        parts = contracts[name].regions
        if not parts:
            chosen.append(name)
            continue
        apart = sum(_op_microseconds(part, accepted, lone) for part in parts)
        if kernel.microseconds < apart:
            chosen.append(name)
        else:
            left_out[name] = f"{kernel.microseconds:.0f} us, its ops apart take {apart:.0f} us"
    return chosen, left_out


def _op_microseconds(name: str, accepted: Mapping[str, Accepted], lone: Mapping[str, Target]) -> float:
    if name in accepted:
        return accepted[name].microseconds
    return lone[name].ns_per_call / 1e3 if name in lone else float("inf")
