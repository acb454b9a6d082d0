"""Which control of the judge stopped a candidate, told from the reason its verdict gives."""

from __future__ import annotations

from kernelwright.sandbox.judge import GATE, TROUBLE
from kernelwright.sandbox.ruling import FAILURE
from kernelwright.sandbox.trial import TIMED_TROUBLE
from kernelwright.sandbox.verdict import Verdict

_BY_TROUBLE = {"late": "read twice", "guard": "guard zones", "unwritten": "poison", "inputs": "protected inputs"}
_BY_GATE = {
    "non-finite values": "masks", "exact case": "fp64 reference", "error against the incumbent": "fp64 reference",
    "error in one slice": "every slice", "a-priori bound": "a-priori bound", "integers differ": "fp64 reference",
    "tolerance": "fp64 reference",
}  # fmt: skip
_BY_TIMED = {
    "timed": "timed calls judged", "cpu": "processor time", "nonlinear": "linear time", "waits": "linear time",
    "forked": "one process", "busy": "watched after the bell",
}  # fmt: skip
_BY_FAILURE = {"crashed": "cage", "hung": "time limit", "refused": "loader", "misbehaved": "bell in turn"}
_BY_WORD = {
    "race": "race tests", "confirms": "confirms counted", "machine can move": "roofline", "held before": "two poisons",
    "screen": "screens", "asks for": "screens", "compile": "builder", "sanitizer": "sanitizer", "cover": "ranges",
    "slower beside it": "drift alarm",
}  # fmt: skip


def caught_by(verdict: Verdict) -> str:
    """Return the control's name in words; '' when the verdict is `faster`."""
    if verdict.outcome == "faster":
        return ""
    if verdict.outcome in ("slower", "inconclusive") and verdict.comparison is not None:
        return "the clock: no gain"
    for table, names in (
        (TROUBLE, _BY_TROUBLE),
        (GATE, _BY_GATE),
        ({k: v[1] for k, v in TIMED_TROUBLE.items()}, _BY_TIMED),
        ({k: v[0] for k, v in FAILURE.items()}, _BY_FAILURE),
    ):
        for key, reason in table.items():
            if verdict.reason == reason and key in names:
                return names[key]
    return next((name for word, name in _BY_WORD.items() if word in verdict.reason), "judge")
