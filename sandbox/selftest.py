"""The selftest: exploits, honest controls, the incumbent against itself and planted effects, on this very machine.

Every candidate takes the way it would take in the loop: search, and where search says `faster`, confirm. An exploit is
accepted when confirm says `faster`, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelwright.kernels.candidate import Candidate
from kernelwright.profiles.profile import Ceilings
from kernelwright.sandbox.attempts import Attempts
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.corpus_index import Entry, candidate_of, load_corpus
from kernelwright.sandbox.environment import harness_digest, host_digest
from kernelwright.sandbox.rules import caught_by
from kernelwright.sandbox.selftest_problems import SelftestProblem, count_planted_steps, planted, problems
from kernelwright.sandbox.selftest_report import Planted, Played, SelfAgainstSelf, SelftestReport, SelfTrial
from kernelwright.sandbox.stats import Launch
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import ALL_ON, Bench

Progress = Callable[[int, int, str], None]
"""(done, total, text)"""
THREADS = 1
"""Small problems are judged on one thread: what a second one would gain or lose says nothing about the judge."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything is played."""

    full: bool
    search_trials: int
    confirm_trials: int
    planted: tuple[tuple[float, int], ...]
    """(percent, trials)"""


FAST = Plan(False, search_trials=3, confirm_trials=0, planted=((-10.0, 1), (50.0, 1)))
FULL = Plan(True, search_trials=24, confirm_trials=6, planted=((-3.0, 1), (3.0, 2), (5.0, 2)))


@dataclass(slots=True)
class _Run:
    plan: Plan
    cage: str
    cache: Path
    ceilings: Ceilings | None
    tell: Progress
    total: int
    done: int = 0
    levels: list[str] = field(default_factory=list)
    floor: float | None = None
    """The A/A floor of the first problem; the fast form calibrates no other."""

    def step(self, text: str) -> None:
        self.tell(self.done, self.total, text)
        self.done += 1


def run_selftest(
    plan: Plan, *, cage: str = "bubblewrap", cache_dir: Path, ceilings: Ceilings | None = None,
    only: Sequence[str] = (), on_progress: Progress | None = None,
) -> SelftestReport:  # fmt: skip
    """Play `plan` and return what was found; `only` names entries to play, all others and all trials are left out.

    Raises EnvironmentLacks without cage or compiler.
    """
    started = time.monotonic()
    entries = choose_entries(plan, only)
    trials = 0 if only else plan.search_trials + plan.confirm_trials + sum(count for _, count in plan.planted)
    run = _Run(plan, cage, cache_dir, ceilings, on_progress or (lambda *_: None), len(entries) + trials)
    played: list[Played] = []
    found = SelfAgainstSelf(search_trials=0, search_faster=0, confirm_trials=0, confirm_faster=0)
    posed = problems()
    for number, (name, problem) in enumerate(posed.items()):
        mine = [entry for entry in entries if entry.problem == name]
        parts = len(posed) if plan.full else 1  # the fast form opens no bench for this alone
        search = 0 if only or number >= parts else share(plan.search_trials, parts, number)
        confirm = 0 if only or number >= parts else share(plan.confirm_trials, parts, number)
        if not mine and not search + confirm:
            continue
        with open_selftest_bench(problem, run.cage, run.cache, run.ceilings, floor=run.floor) as bench:
            found = _against_itself(run, bench, name, found, search, confirm)
            played += [_play(run, bench, problem, entry) for entry in mine]
            run.floor = None if plan.full else bench.floor
    effects = () if only else _plant_all(run)
    return SelftestReport(
        full=plan.full, harness=harness_digest(), host=host_digest(), finished=time.time(),
        seconds=time.monotonic() - started, isolation=min(run.levels, default="L0"), played=tuple(played), aa=found,
        planted=effects,
    )  # fmt: skip


def choose_entries(plan: Plan, only: Sequence[str]) -> list[Entry]:
    """Return the entries of the corpus that `plan` plays, or those called `only`."""
    corpus = load_corpus()
    if only:
        return [entry for entry in corpus if entry.name in only]
    return [entry for entry in corpus if plan.full or entry.fast]


def share(total: int, parts: int, number: int) -> int:
    """Return how many of `total` fall to part `number` of `parts`."""
    return total * (number + 1) // parts - total * number // parts


@contextmanager
def open_selftest_bench(
    problem: SelftestProblem, cage: str, cache: Path, ceilings: Ceilings | None, controls: Controls = ALL_ON,
    floor: float | None = None,
) -> Iterator[Bench]:  # fmt: skip
    """Open a bench on one of the selftest's problems; its confirms are counted nowhere else."""
    with Bench(
        problem.problem, problem_dir=cache, weights=problem.weights, cage=cage, threads=THREADS,
        cache_dir=cache / "builds", ceilings=ceilings, controls=controls, call_timeout_s=10.0, attempts=Attempts(),
        spares=2, floor=floor,
    ) as bench:  # fmt: skip
        yield bench


def _play(run: _Run, bench: Bench, problem: SelftestProblem, entry: Entry) -> Played:
    run.step(f"{entry.kind} {entry.name}")
    started = time.monotonic()
    verdict = judge_as_the_loop_does(bench, candidate_of(entry, problem.problem), entry)
    timed = verdict.comparison
    return Played(
        name=entry.name, kind=entry.kind, problem=entry.problem, family=entry.family, text=entry.text,
        outcome=verdict.outcome, reason=verdict.reason, phase=verdict.phase,
        caught_by=caught_by(verdict) if entry.kind == "exploit" else "",
        ratio=timed.ratio if timed else None, low=timed.low if timed else None, faster=entry.faster,
        seconds=time.monotonic() - started,
    )  # fmt: skip


def judge_as_the_loop_does(bench: Bench, candidate: Candidate, entry: Entry) -> Verdict:
    """Return the verdict that decides: search's, or confirm's where search said `faster` of an exploit.

    Exploits are played past the screens, which obfuscation evades: something else must stop them. What nothing else
    stops is judged once more with the screens.
    """
    if entry.kind == "honest":
        return bench.search(candidate)
    for screened in (False, True):
        verdict = bench.search(candidate, screened)
        if verdict.outcome == "faster":
            verdict = bench.confirm(candidate, f"{entry.name} {screened}", screened)
        if verdict.outcome != "faster":
            break
    return verdict


def _against_itself(
    run: _Run, bench: Bench, name: str, found: SelfAgainstSelf, search: int, confirm: int
) -> SelfAgainstSelf:
    incumbent = bench.problem.incumbent
    faster, seen = {"search": 0, "confirm": 0}, list(found.trials)
    for phase, trials in (("search", search), ("confirm", confirm)):
        for number in range(trials):
            run.step(f"the incumbent of {name} against itself, {phase}")
            judged = bench.search(incumbent) if phase == "search" else bench.confirm(incumbent, lineage=f"aa-{number}")
            faster[phase] += judged.outcome == "faster"
            seen.append(_note_trial(name, judged))
            run.levels.append(judged.isolation)
    return SelfAgainstSelf(
        trials=tuple(seen),
        search_trials=found.search_trials + search,
        search_faster=found.search_faster + faster["search"],
        confirm_trials=found.confirm_trials + confirm,
        confirm_faster=found.confirm_faster + faster["confirm"],
    )


def _note_trial(name: str, judged: Verdict) -> SelfTrial:
    plain = SelfTrial(problem=name, phase=judged.phase, outcome=judged.outcome)
    found = judged.comparison
    if found is None:
        return plain
    launches = [Launch(samples.incumbent, samples.candidate) for samples in judged.launches]
    ratios = tuple(math.exp(float(np.median(launch.log_ratios()))) for launch in launches)
    evidence = {"ratio": found.ratio, "low": found.low, "floor": found.floor, "launches": ratios}
    return plain.model_copy(update=evidence)


def _plant_all(run: _Run) -> tuple[Planted, ...]:
    """Judge candidates that do a known share less (or more) of the incumbent's work, in search."""
    steps = count_planted_steps()
    posed = SelftestProblem(planted(0.0, steps)[0], ({},))
    found = []
    with open_selftest_bench(posed, run.cage, run.cache, None, floor=run.floor) as bench:
        for percent, trials in run.plan.planted:
            outcomes = []
            for _ in range(trials):
                run.step(f"a kernel made {percent:+g} % faster")
                outcomes.append(bench.search(planted(percent, steps)[1]).outcome)
            faster, slower = outcomes.count("faster"), outcomes.count("slower")
            found.append(Planted(percent=percent, trials=trials, faster=faster, slower=slower))
    return tuple(found)
