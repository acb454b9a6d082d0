"""AttemptView: one attempt with its source, what it was derived from, the difference and the verdict."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from kernelwright.agent.ledger import Attempt, Ledger
from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.verdict import Verdict
from kernelwright.tui.view import SessionView


@dataclass(frozen=True, slots=True)
class AttemptView:
    attempt: Attempt
    candidate: Candidate
    base: Candidate | None
    """What the difference is taken against: the parent, else the family's first point on this definition."""
    base_name: str
    """What `base` is, in words; says why there is none when there is none."""
    changes: tuple[str, ...]
    """Parameters, flags and the like that differ, one sentence each."""
    diff: str
    """Unified diff of the sources; empty when they are equal or there is nothing to compare with."""
    verdict: Verdict | None


def read_attempt(ledger: Ledger, view: SessionView, attempt: Attempt) -> AttemptView:
    """Return the attempt in full; raises BrokenInput when a record it rests on is missing or was changed."""
    candidate = ledger.load(attempt.candidate, Candidate)
    base, base_name = _find_base(ledger, view, attempt, candidate)
    return AttemptView(
        attempt=attempt,
        candidate=candidate,
        base=base,
        base_name=base_name,
        changes=_changes(base, candidate) if base else (),
        diff=_diff(base, candidate) if base else "",
        verdict=ledger.load(attempt.verdict, Verdict) if attempt.verdict else None,
    )


def _find_base(
    ledger: Ledger, view: SessionView, attempt: Attempt, candidate: Candidate
) -> tuple[Candidate | None, str]:
    if candidate.parent is not None:
        if candidate.parent in ledger.objects:
            return ledger.load(candidate.parent, Candidate), f"its parent {candidate.parent[:8]}"
        return None, f"its parent {candidate.parent[:8]} is not in this session"
    if candidate.proposer != "templates":
        return None, "it has no parent: written from nothing"
    family = [a for a in view.attempts if (a.definition, a.author) == (attempt.definition, attempt.author)]
    if family and family[0].candidate != attempt.candidate:
        default = family[0].candidate
        return ledger.load(default, Candidate), f"the family's default {default[:8]}"
    return None, "it is the family's default point"


def _changes(base: Candidate, candidate: Candidate) -> tuple[str, ...]:
    changes = []
    for name in sorted({*base.parameters, *candidate.parameters}):
        before, after = base.parameters.get(name, "–"), candidate.parameters.get(name, "–")
        if before != after:
            changes.append(f"{name} {before} → {after}")
    if base.compile_flags != candidate.compile_flags:
        changes.append(f"flags {' '.join(base.compile_flags) or '–'} → {' '.join(candidate.compile_flags) or '–'}")
    if base.isa != candidate.isa:
        changes.append(f"isa {base.isa} → {candidate.isa}")
    return tuple(changes)


def _diff(base: Candidate, candidate: Candidate) -> str:
    before = {source.path: source.content.splitlines() for source in base.sources}
    after = {source.path: source.content.splitlines() for source in candidate.sources}
    lines: list[str] = []
    for path in dict.fromkeys([*before, *after]):
        lines += difflib.unified_diff(before.get(path, []), after.get(path, []), f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines)
