"""Derive a verdict's conclusions again from the evidence in it. Pure: a verdict in, (passed, text) out."""

from __future__ import annotations

import math

import numpy as np

from kernelwright.sandbox.stats import Launch, conclude
from kernelwright.sandbox.verdict import Verdict

CLOSE = 1e-9
"""Relative difference that another machine's log and exp may make; times are compared to it too."""
MEASURED = ("faster", "slower", "inconclusive")
FOUND_WRONG = ("incorrect", "invalid", "suspect")
LEAST_LAUNCHES = 5
Finding = tuple[bool | None, str]


def check_statistics(verdict: Verdict) -> Finding:
    """Compute the interval from the raw samples again, and the outcome from the interval."""
    recorded = verdict.comparison
    if recorded is None:
        if verdict.outcome in ("faster", "slower") or verdict.launches:
            return False, "the samples and the comparison do not go together"
        return None, "nothing was timed"
    launches = [Launch(**dict(samples)) for samples in verdict.launches]
    if not launches or any(len(x.incumbent) != len(x.candidate) for x in launches):
        return False, "there are no whole pairs of raw samples for its comparison"
    times = np.concatenate([np.asarray((*x.incumbent, *x.candidate)) for x in launches])
    if not times.size or not np.isfinite(times).all() or not (times > 0).all():
        return False, "some raw samples are no times"
    waits = [waited for x in launches for waited in (x.incumbent_waited, x.candidate_waited)]
    lengths = [len(x.incumbent) if verdict.launches[0].incumbent_waited else 0 for x in launches for _ in range(2)]
    if [len(w) for w in waits] != lengths or any(not (np.asarray(w) >= 0).all() for w in waits):
        return False, "some waits for a processor are no times, or are missing"
    if not 0.5 <= recorded.confidence < 1 or not 0 <= recorded.floor < 1:
        return False, "its confidence or floor is impossible"
    found = conclude(launches, recorded.floor, recorded.confidence)
    interval, outcome = found.interval, found.outcome
    medians = [
        float(np.median(np.concatenate([getattr(x, arm) for x in launches]))) * 1e6
        for arm in ("incumbent", "candidate")
    ]
    again = (interval.ratio, interval.low, interval.high, interval.n, interval.launches, *medians)
    written = (
        recorded.ratio, recorded.low, recorded.high, recorded.n, recorded.launches, recorded.incumbent_us,
        recorded.candidate_us,
    )  # fmt: skip
    if not all(math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(again, written, strict=True)):
        return (
            False,
            f"the samples give {interval.ratio:.4g} [{interval.low:.4g}, {interval.high:.4g}], not what is recorded",
        )
    if verdict.outcome in ("faster", "slower") and verdict.outcome != outcome:
        return False, f"the samples say {outcome}"
    if verdict.outcome == "inconclusive" and outcome != "inconclusive" and all(d.passed for d in verdict.decisions):
        return False, f"the samples say {outcome}, and nothing speaks against it"
    return True, f"{interval.n} pairs of {interval.launches} launches give the recorded interval"


def check_decisions(verdict: Verdict) -> Finding:
    """Hold the rules that were applied, and the evaluations, against the outcome."""
    failed = [decision.rule for decision in verdict.decisions if not decision.passed]
    wrong = [e.workload for e in verdict.evaluations if e.status != "PASSED"]
    if verdict.outcome in ("faster", "slower") and wrong:
        return False, f"it failed on {wrong[0]}"
    if verdict.outcome == "faster" and failed:
        return False, f"a rule did not pass: {failed[0]}"
    if verdict.outcome == "faster" and not verdict.decisions:
        return False, "no rule is recorded"
    for decision in verdict.decisions:
        if decision.rule.startswith("lower end of the speed-up") and verdict.comparison is not None:
            if decision.found != verdict.comparison.low or decision.passed != (
                decision.found > float(decision.allowed)
            ):
                return False, f"its own numbers speak against {decision.rule!r}"
    return (
        True,
        f"{len(verdict.decisions)} rules and {len(verdict.evaluations)} evaluations agree with {verdict.outcome}",
    )


def check_acceptance(verdict: Verdict) -> Finding:
    """Check that a win in confirm has what a patch needs: L3, every control on, launches and keys of their own."""
    if verdict.outcome != "faster" or verdict.phase != "confirm":
        return True, "it claims no acceptance"
    keys = (verdict.key or "").split(",")
    lacks = [
        what
        for what, there in (
            ("isolation L3", verdict.isolation in ("L3", "L4")),
            ("all controls on", "controls_off" not in verdict.isolation_facts),
            (f"{LEAST_LAUNCHES} launches", len(verdict.launches) >= LEAST_LAUNCHES),
            ("a key of its own for each launch", len(set(keys)) == len(keys) == len(verdict.launches)),
            ("evaluations", bool(verdict.evaluations)),
        )
        if not there
    ]
    return not lacks, f"it lacks {', '.join(lacks)}" if lacks else "it was confirmed in a cage that holds"
