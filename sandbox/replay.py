"""Replay: judge a verdict again from its evidence. What it says is recomputed or done anew, never believed."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kernelwright.kernels.build import compiler_version
from kernelwright.kernels.definition import StoredInput
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.builder import build_caged, caged_run
from kernelwright.sandbox.bundle import Bundle
from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cases import Case, WeightSets, complete_axes, confirm_cases, search_cases
from kernelwright.sandbox.draw import Key, draw_weights
from kernelwright.sandbox.environment import harness_digest
from kernelwright.sandbox.rederive import check_acceptance, check_decisions, check_statistics
from kernelwright.sandbox.screen_source import expand
from kernelwright.sandbox.screens import screen
from kernelwright.sandbox.verdict import Evaluation, Verdict
from kernelwright.sandbox.verify import CONFIRM_LAUNCHES, Bench

if TYPE_CHECKING:
    import torch

SAME_ERROR = 1e-6
"""Relative difference of two errors that come from equal code on equal inputs."""


class Check(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    name: str
    passed: bool | None
    """None where this machine, or this bundle, does not allow the check; `text` says why."""
    text: str


class Timing(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Incumbent time ÷ candidate time, recorded and here. Machines differ: it is told, and decides nothing."""

    recorded: float | None
    here: float | None
    low: float | None
    high: float | None
    outcome: str
    """Of a fresh search here."""

    @property
    def reproduced(self) -> bool:
        """Whether it is `faster` here too."""
        return self.outcome == "faster"


class Replay(BaseModel, frozen=True, extra="forbid"):
    bundle: str
    outcome: str
    accepted: bool
    checks: tuple[Check, ...]
    timing: Timing | None = None

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)


def replay(
    bundle: Bundle,
    *,
    weights: Sequence[Mapping[str, torch.Tensor]] | None = None,
    cage: str = "bubblewrap",
    threads: int = 1,
    full: bool = True,
    timed: bool = True,
    digest: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Replay:
    """Check everything the bundle allows.

    `weights`: one {name: tensor} per layer, those of the model it was judged with; None draws others, and then results
    are judged but not compared with the recorded ones. `digest`: what was published as the bundle's, the one anchor
    that a forger cannot compute anew. Not `full`: nothing is built or run. Raises EnvironmentLacks where the cage or
    compiler is missing.
    """
    checks = [
        _check_manifest(bundle, digest),
        _check_belonging(bundle),
        _check_problem(bundle),
        _check_judge(bundle.verdict),
    ]
    checks += [Check(name=n, passed=p, text=t) for n, p, t in (
        ("statistics", *check_statistics(bundle.verdict)),
        ("decisions", *check_decisions(bundle.verdict)),
        ("acceptance", *check_acceptance(bundle.verdict)),
    )]  # fmt: skip
    timing = None
    if full and all(check.passed is not False for check in checks):  # what was tampered with is not run
        with tempfile.TemporaryDirectory(prefix="kernelwright-replay-") as folder:
            done = _Rerun(bundle, Path(folder), cage, threads, on_progress or (lambda _text: None))
            checks += done.build()
            with done.open(weights) as bench:
                checks.append(done.judge(bench, weights))
                timing = done.time(bench) if timed else None
    verdict = bundle.verdict
    return Replay(
        bundle=bundle.digest,
        outcome=verdict.outcome,
        accepted=verdict.accepted,
        checks=tuple(checks),
        timing=timing,
    )


def _check_manifest(bundle: Bundle, digest: str | None) -> Check:
    if digest is not None and digest != bundle.digest:
        return Check(name="files", passed=False, text=f"its digest is {bundle.digest}, not the one that was published")
    text = f"differ: {', '.join(bundle.altered)}" if bundle.altered else "every file has its listed digest"
    return Check(name="files", passed=not bundle.altered, text=text)


def _check_belonging(bundle: Bundle) -> Check:
    verdict, own = bundle.verdict, {source.path: source.content for source in bundle.candidate.sources}
    wrong = [
        what
        for what, right in (
            ("the problem", verdict.problem == digest_of(bundle.problem)),
            ("the candidate", verdict.candidate == digest_of(bundle.candidate)),
            ("the sources", bundle.sources == own),
            ("the definition", bundle.candidate.definition == bundle.problem.definition.name),
        )
        if not right
    ]
    text = f"the verdict is not about {', '.join(wrong)}" if wrong else "verdict, problem, candidate and sources agree"
    return Check(name="belonging", passed=not wrong, text=text)


def _check_problem(bundle: Bundle) -> Check:
    """Say whether reference, contract and incumbent are those shipped here: a verdict is worth what it was held to."""
    problem = bundle.problem
    definition = problem.definition
    consts = re.findall(r"_([a-z]+)(\d+)", definition.name.removeprefix(definition.op_type))
    try:
        op = op_of(definition)
        shipped = define(definition.op_type, **{name: int(value) for name, value in consts})
    except (ValueError, TypeError, KeyError):
        return Check(name="problem", passed=None, text=f"there is no op {definition.op_type} here to compare with")
    own = [
        what
        for what, same in (
            ("definition", definition == shipped),
            ("contract", problem.contract == op.contract(shipped)),
            ("incumbent", problem.incumbent == op.incumbent(shipped)),
        )
        if not same
    ]
    if own:
        return Check(name="problem", passed=None, text=f"of its own, not those shipped here: {', '.join(own)}")
    return Check(name="problem", passed=True, text="definition, contract and incumbent are those shipped here")


def _check_judge(verdict: Verdict) -> Check:
    if verdict.harness == harness_digest():
        return Check(name="judge", passed=True, text="recorded by this very judge")
    return Check(name="judge", passed=None, text="recorded by another version of the judge")


def parse_keys(verdict: Verdict) -> list[Key]:
    """Return the revealed keys, one for each launch. Raises ValueError when they are no keys."""
    keys = [Key(bytes.fromhex(part)) for part in (verdict.key or "").split(",") if part]
    if any(len(key.secret) != 32 for key in keys):
        raise ValueError("a key has 32 bytes")
    return keys


class _Rerun:
    """Building, screening, judging and timing a bundle's candidate on this machine."""

    def __init__(self, bundle: Bundle, folder: Path, cage: str, threads: int, say: Callable[[str], None]) -> None:
        self._bundle, self._folder, self._cage, self._threads, self._say = bundle, folder, cage, threads, say
        self._same_binary = bundle.candidate.language == "python"

    def build(self) -> list[Check]:
        """Rebuild from source, compare digests, and look at the result through the screens."""
        bundle, cage = self._bundle, open_cage(self._cage)
        if bundle.candidate.language != "cpp":
            return [self._screens(None, "")]
        self._say("compiling")
        built = build_caged(bundle.candidate, self._folder / "builds", cage)
        recorded = bundle.verdict.binary
        if built.binary is None or recorded is None:
            agree = built.binary is None and recorded is None
            text = "does not compile" if built.binary is None else "compiles, but the verdict names no binary"
            return [Check(name="build", passed=agree, text=text)]
        self._same_binary = built.digest == recorded
        expanded = expand(bundle.candidate, self._folder / "expanded", caged_run(cage))
        return [self._compare_build(), self._screens(built.binary.read_bytes(), expanded)]

    def _compare_build(self) -> Check:
        if self._same_binary:
            return Check(name="build", passed=True, text="rebuilt: the very binary that was judged")
        then, now = self._bundle.verdict.environment.get("compiler", "unknown"), compiler_version()
        if then == now:
            return Check(name="build", passed=False, text=f"rebuilt: differs, though the compiler is the same ({now})")
        return Check(name="build", passed=None, text=f"rebuilt: differs; compiler then: {then}, here: {now}")

    def _screens(self, binary: bytes | None, expanded: str) -> Check:
        verdict, policy = self._bundle.verdict, self._bundle.problem.precision
        found = [screen(self._bundle.candidate, binary, policy, text) for text in dict.fromkeys((expanded, ""))]
        if found[0].refused:
            refused = verdict.outcome == "invalid"
            return Check(name="screens", passed=refused, text=f"they refuse it: {found[0].refused}")
        if not verdict.labels and not verdict.tripwires:
            return Check(name="screens", passed=None, text="the verdict records none; they refuse nothing")
        agree = any((f.labels, f.tripwires) == (verdict.labels, verdict.tripwires) for f in found)
        if not agree and not self._same_binary:
            return Check(name="screens", passed=None, text="they differ, as the binary does")
        text = f"labels {', '.join(found[0].labels) or 'none'}; tripwires: {len(found[0].tripwires)}"
        return Check(name="screens", passed=agree, text=text if agree else f"they differ here: {text}")

    def judge(self, bench: Bench, weights: Sequence[Mapping[str, torch.Tensor]] | None) -> Check:
        """Draw the inputs of the recorded keys again and judge the candidate on them in a cage."""
        verdict, problem = self._bundle.verdict, self._bundle.problem
        try:
            keys = parse_keys(verdict)
        except ValueError as error:
            return Check(name="judgement", passed=False, text=f"the keys are no keys: {error}")
        if not keys or verdict.outcome == "unmeasured":
            return Check(name="judgement", passed=None, text="nothing was drawn for this verdict")
        self._say(f"judging again on the inputs of {len(keys)} keys")
        ruling = bench.judge_again(self._bundle.candidate, keys, self._share)
        compare = self._same_binary and weights is not None and len(weights) == problem.num_weight_sets
        return _compare(verdict, ruling.evaluations, ruling.reason, compare or not problem.contract.weights)

    def _share(self, sets: WeightSets, first: Key, number: int) -> list[Case]:
        bundle = self._bundle
        if bundle.verdict.phase == "confirm":
            cases = confirm_cases(bundle.problem, bundle.candidate, sets, first)[number::CONFIRM_LAUNCHES]
        else:
            cases = search_cases(bundle.problem, bundle.candidate, sets, first) if number == 0 else []
        return [case for case in cases if not _is_withheld(case)]

    def time(self, bench: Bench) -> Timing:
        """Search once more, with fresh keys, on what the bundle holds."""
        verdict = bench.search(self._bundle.candidate)
        then, now = self._bundle.verdict.comparison, verdict.comparison
        return Timing(
            recorded=then.ratio if then else None, here=now.ratio if now else None, low=now.low if now else None,
            high=now.high if now else None, outcome=verdict.outcome,
        )  # fmt: skip

    def open(self, weights: Sequence[Mapping[str, torch.Tensor]] | None) -> Bench:
        """Return a bench for the bundle's problem without what was withheld."""
        problem = self._bundle.problem
        kept = tuple(w for w in problem.workloads if not any(isinstance(i, StoredInput) for i in w.inputs.values()))
        key = self._bundle.verdict.weights_key
        return Bench(
            problem.model_copy(update={"workloads": kept}),
            problem_dir=self._folder,
            weights=weights if weights is not None else draw_model(problem),
            cage=self._cage,
            threads=self._threads,
            cache_dir=self._folder / "builds",
            on_progress=self._say,
            weights_key=Key(bytes.fromhex(key)) if key else None,
        )


def draw_model(problem: Problem) -> list[dict[str, torch.Tensor]]:
    """Return generated weights in place of the model's, one set per layer."""
    if not problem.contract.weights:
        return [{} for _ in range(problem.num_weight_sets)]
    axes = {"P": 2048, **problem.timed_axes}
    whole = complete_axes(problem.definition, axes, {})
    key = Key(bytes(32))
    return [
        draw_weights(problem.definition, problem.contract, whole, "normal", key.generator("model", layer))
        for layer in range(problem.num_weight_sets)
    ]


def _is_withheld(case: Case) -> bool:
    return case.workload is not None and any(isinstance(i, StoredInput) for i in case.workload.inputs.values())


def _compare(verdict: Verdict, found: Sequence[Evaluation], reason: str, equal_inputs: bool) -> Check:
    """Compare the recorded evaluations with those found again on the same cases."""
    recorded = {e.workload: e for e in verdict.evaluations if not e.workload.startswith("timed-")}
    failed = [e for e in recorded.values() if e.status != "PASSED"]
    if failed and not reason:
        return Check(name="judgement", passed=False, text=f"it failed then on {failed[0].workload} and passes here")
    if reason and not failed:
        return Check(name="judgement", passed=False, text=f"it passed then, and here: {reason}")
    if not equal_inputs:
        return Check(name="judgement", passed=True, text=f"{len(found)} cases judged alike, on other weights or code")
    differing = [e.workload for e in found if e.workload in recorded and not _same(recorded[e.workload], e)]
    missing = [e.workload for e in found if e.workload not in recorded]
    if differing or missing:
        text = f"its results are not the recorded ones: {', '.join((differing + missing)[:5])}"
        return Check(name="judgement", passed=False, text=text)
    return Check(name="judgement", passed=True, text=f"{len(found)} cases give the recorded errors")


def _same(recorded: Evaluation, found: Evaluation) -> bool:
    if recorded.status != found.status or (recorded.correctness is None) != (found.correctness is None):
        return False
    if recorded.correctness is None or found.correctness is None:
        return True
    a, b = recorded.correctness.max_absolute_error, found.correctness.max_absolute_error
    return math.isclose(a, b, rel_tol=SAME_ERROR) or (math.isnan(a) and math.isnan(b))
