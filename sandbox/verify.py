"""Bench: the only public door of the judge. `search` is quick, `confirm` decides.

with Bench(problem, problem_dir=folder, weights=sets, threads=2, cache_dir=cache) as bench:
    bench.calibrate()
    verdict = bench.search(candidate)
    if verdict.outcome == "faster":
        verdict = bench.confirm(candidate)
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.triton_load import has_triton
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import KernelwrightError, WrongUse
from kernelwright.profiles.profile import Ceilings
from kernelwright.sandbox.attempts import ALPHAS, Attempts
from kernelwright.sandbox.builder import build_caged, caged_run
from kernelwright.sandbox.cage import Cage, open_cage
from kernelwright.sandbox.cases import (
    Case,
    WeightSets,
    add_drawn_weights,
    confirm_cases,
    covered_ranges,
    end_cases,
    search_cases,
)  # fmt: skip
from kernelwright.sandbox.cell import RunnerFailed
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key
from kernelwright.sandbox.judge_link import JudgeLink
from kernelwright.sandbox.ruling import Ruling, write_verdict
from kernelwright.sandbox.runners import Runners
from kernelwright.sandbox.screen_source import expand
from kernelwright.sandbox.screens import screen
from kernelwright.sandbox.stats import Launch, calibrate_floor, conclude, find_drift, is_doubtful, is_narrow
from kernelwright.sandbox.supervisor import Arm
from kernelwright.sandbox.trial import BLOCK_ORDERS, Trial, TrialSetup, time_alone
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.weights import WeightBox

if TYPE_CHECKING:
    import torch

ALL_ON = Controls()
SEARCH_PAIRS = 32
SEARCH_ALPHA = 0.05
CONFIRM_LAUNCHES, CONFIRM_PAIRS = 5, 24
CALIBRATE_LAUNCHES, CALIBRATE_PAIRS = 4, 24
NARROW_LAUNCHES, NARROW_PAIRS = 12, 24


class Bench:
    """Judges candidates of one problem. Keeps the incumbent's runner alive across searches.

    `weights`: one {name: tensor} per layer, as stored (the ring a timed batch walks). `cage`: 'bubblewrap', 'docker'
    (L3) or 'process' (L1, never accepted). `threads`: the engine's thread count. `ceilings`: what this machine reaches,
    to tell a miracle from a win. `floor`: the host's A/A floor where it is known; None calibrates it when needed.
    `attempts`: where confirms are counted (None: as long as this bench lives), and `lineage` who they are charged to.
    `weights_key` draws the generated weight sets again as an earlier verdict had them. `spares`: cages that load ahead.
    Raises EnvironmentLacks where the cage or compiler is missing.
    """

    def __init__(
        self, problem: Problem, *, problem_dir: Path, weights: Sequence[Mapping[str, torch.Tensor]],
        cage: str = "bubblewrap", threads: int, cache_dir: Path, ceilings: Ceilings | None = None,
        env: Mapping[str, str] | None = None, on_progress: Callable[[str], None] | None = None,
        controls: Controls = ALL_ON, call_timeout_s: float = 20.0,
        floor: float | None = None, attempts: Attempts | None = None, lineage: str = "session",
        weights_key: Key | None = None, spares: int = 1,
    ) -> None:  # fmt: skip
        if not weights:
            raise WrongUse(
                "a bench needs at least one weight set", "pass one dict per layer, empty for weightless slots"
            )
        self.problem, self._threads, self._cache = problem, threads, cache_dir
        self._ceilings, self._controls = ceilings, controls
        self._say = on_progress or (lambda _text: None)
        self._cage: Cage = open_cage(cage)
        self._floor, self._aa = floor, list[Launch]()
        self._attempts, self._lineage = attempts or Attempts(), lineage
        self._spares = spares
        self._stack = contextlib.ExitStack()
        self._hidden = problem
        if not controls.hidden_shapes:
            only = {a: AxisRange(low=problem.timed_axes[a], high=problem.timed_axes[a]) for a in problem.ranges}
            self._hidden = problem.model_copy(update={"ranges": only})
        self._weights_key = weights_key or Key.draw()
        whole, self._sets = add_drawn_weights(problem, weights, self._weights_key)
        self._box = WeightBox(whole)
        self._stack.callback(self._box.close)
        judge = JudgeLink(problem, self._box, controls, cage=self._cage, threads=threads)
        self._stack.callback(judge.close)
        self._setup = TrialSetup(
            problem=problem, problem_dir=problem_dir, judge=judge, sets=self._sets, weights=whole, threads=threads,
            controls=controls, timeout_s=call_timeout_s,
        )  # fmt: skip
        self._runners = Runners(
            problem, self._box, cage=self._cage, threads=threads, env=dict(env or {}),
            mailbox_bytes=self._setup.mailbox_bytes(), controls=controls,
        )  # fmt: skip
        self._stack.callback(self._runners.close)
        self._runners.prepare(2)

    @property
    def floor(self) -> float | None:
        """The host's A/A floor as given or calibrated; None before the first comparison."""
        return self._floor

    def calibrate(self, launches: int = CALIBRATE_LAUNCHES, pairs: int = CALIBRATE_PAIRS) -> float:
        """Time the incumbent against itself in two cages; return and keep the A/A floor of a search (0.01 = 1 %)."""
        self._say("timing the incumbent against itself")
        self._time_alone()  # tells how many calls a batch has
        for _ in range(launches):
            with self._runners.start_incumbent() as first, self._runners.start_incumbent(1, first) as second:
                self._runners.settle()
                self._aa.append(Trial(self._setup, first, second, self._draw_key()).time(pairs).launch())
        self._floor = calibrate_floor(self._aa, launches=1, pairs=SEARCH_PAIRS)
        return self._floor

    def _floor_for(self, launches: Sequence[Launch]) -> float:
        """Return the A/A floor of a judgement by such launches; they share one given for a search as chance would."""
        if self._floor is None:
            self.calibrate()
        if not self._aa:
            return (self._floor or 0.0) / math.sqrt(len(launches))
        return calibrate_floor(self._aa, launches=len(launches), pairs=min(len(x.incumbent) for x in launches))

    def search(self, candidate: Candidate, screened: bool = True) -> Verdict:
        """Judge quickly: public workloads, a few distributions, one launch. Never enough for a patch.

        Not `screened`: the selftest asks what stops a candidate that no screen knows; such a verdict claims no level.
        """
        ruling = self._new_ruling(candidate, "search", screened)
        binary = self._prepare(candidate, ruling)
        if candidate.language == "triton" and not ruling.settled:
            self._judge_interpreted(candidate, ruling)
        if not ruling.settled:
            try:
                launches = self._search_launch(candidate, binary, ruling)
                looked = launches
                if is_doubtful(launches):
                    looked = self._launch_again(candidate, binary, ruling, 1, SEARCH_PAIRS)
                    launches = [*launches, *looked]
                if is_narrow(looked):
                    launches = self._launch_again(candidate, binary, ruling, NARROW_LAUNCHES, NARROW_PAIRS)
                self._decide(ruling, launches)
            except RunnerFailed as failure:
                self._answer_failure(ruling, failure)
        self._runners.prepare(self._spares)
        return self._write(ruling)

    def _search_launch(self, candidate: Candidate, binary: bytes | None, ruling: Ruling) -> list[Launch]:
        with self._start_both(candidate, binary, ruling) as (incumbent, arm):
            trial = Trial(self._setup, incumbent, arm, self._draw_key(), ruling)
            if not trial.judge_all(self._kinds(search_cases(self.problem, candidate, self._sets, trial.key))):
                return []
            self._runners.settle()
            launch = trial.time_and_judge(SEARCH_PAIRS)
            return [launch] if launch else []

    def _judge_interpreted(self, candidate: Candidate, ruling: Ruling) -> None:
        """Judge a triton candidate's results in Triton's interpreter, then its block orders. Nothing is timed."""
        try:
            with self._runners.start_incumbent() as incumbent, self._runners.start(candidate, None, incumbent) as arm:
                trial = Trial(self._setup, incumbent, arm, self._draw_key(), ruling)
                if not trial.judge_all(search_cases(self.problem, candidate, self._sets, trial.key)):
                    return
                num_cases, notes = len(ruling.evaluations), []
                for case in end_cases(self.problem, candidate, trial.key):
                    notes.append(trial.try_block_orders(case))
                    if ruling.settled:
                        return
        except RunnerFailed as failure:
            self._answer_failure(ruling, failure)
            return
        found = f"right in Triton's interpreter over {num_cases} cases and {len(BLOCK_ORDERS)} block orders"
        said = "; ".join([found, *dict.fromkeys(note for note in notes if note)])
        ruling.settle("unmeasured", f"this machine cannot time triton: {said}")

    def _launch_again(
        self, candidate: Candidate, binary: bytes | None, ruling: Ruling, count: int, pairs: int
    ) -> list[Launch]:
        """Time `count` fresh launches: where pages lie differs by launch, and may pass for a small win or loss."""
        launches: list[Launch] = []
        for _ in range(count):
            with self._start_both(candidate, binary, ruling) as (incumbent, arm):
                trial = Trial(self._setup, incumbent, arm, self._draw_key(), ruling)
                launch = trial.time_and_judge(pairs)
                launches += [launch] if launch else []
            if ruling.settled:
                break
        return launches

    def confirm(self, candidate: Candidate, lineage: str | None = None, screened: bool = True) -> Verdict:
        """Judge in full: fresh processes and keys for each launch, hidden shapes, all gates, races, poisons.

        Charged to `lineage` (default: this bench's); a confirm that is not granted is `inconclusive`.
        """
        ruling = self._new_ruling(candidate, "confirm", screened)
        binary = self._prepare(candidate, ruling)
        if candidate.language == "triton" and not ruling.settled:
            self._judge_interpreted(candidate, ruling)
        if not ruling.settled:
            self._charge(ruling, lineage or self._lineage)
        launches: list[Launch] = []
        plan: list[Case] = []
        for number in range(CONFIRM_LAUNCHES):
            if ruling.settled:
                break
            self._say(f"confirming, launch {number + 1} of {CONFIRM_LAUNCHES}")
            try:
                launches += self._confirm_launch(candidate, binary, ruling, plan, number)
            except RunnerFailed as failure:
                self._answer_failure(ruling, failure)
        if not ruling.settled:
            self._check_drift(ruling)
        self._decide(ruling, launches)
        return self._write(ruling)

    def _confirm_launch(
        self, candidate: Candidate, binary: bytes | None, ruling: Ruling, plan: list[Case], number: int
    ) -> list[Launch]:
        alone = self._time_alone()
        launch = self._confirm_beside(candidate, binary, ruling, plan, number)
        if launch:
            ruling.beside.append((alone + self._time_alone(), launch.incumbent))
        return [launch] if launch else []

    def _time_alone(self) -> list[float]:
        """Time a launch of the incumbent that is never compared: calls before a comparison change what it shows."""
        with self._runners.start_incumbent() as arm:
            return time_alone(self._setup, arm)

    def _confirm_beside(
        self, candidate: Candidate, binary: bytes | None, ruling: Ruling, plan: list[Case], number: int
    ) -> Launch | None:
        with self._start_both(candidate, binary, ruling) as (incumbent, arm):
            trial = Trial(self._setup, incumbent, arm, self._draw_key(), ruling)
            if not plan:  # drawn once the first runner has loaded; each launch then judges its share of it
                plan += self._kinds(confirm_cases(self._hidden, candidate, self._sets, trial.key))
            ends = end_cases(self._hidden, candidate, trial.key)
            if not trial.judge_all(plan[number::CONFIRM_LAUNCHES]):
                return None
            launch = trial.time_and_judge(CONFIRM_PAIRS)
            # behind the timing, as the candidate alone goes through it: it leaves threads and a heap of another shape
            if not launch or not all(map(trial.try_two_poisons, ends)):
                return None
            if number < len(ends) and not trial.try_races(ends[number]):
                return None
            sanitized = number == 0 and candidate.language == "cpp" and self._controls.sanitizer
            return launch if not sanitized or trial.try_sanitizers(ends[-1], self._cage, self._cache) else None

    def judge_again(
        self, candidate: Candidate, keys: Sequence[Key], share: Callable[[WeightSets, Key, int], Sequence[Case]]
    ) -> Ruling:
        """Judge earlier cases again, on the inputs of revealed keys, one launch per key; nothing is timed.

        `share(sets, first key, number)` are the cases of launch `number`. Returns what was found, not yet a verdict.
        """
        ruling = self._new_ruling(candidate, "search", screened=True)
        binary = self._prepare(candidate, ruling)
        for number, key in enumerate(keys):
            if ruling.settled:
                break
            try:
                with self._runners.start_incumbent() as beside, self._runners.start(candidate, binary, beside) as arm:
                    trial = Trial(self._setup, beside, arm, key, ruling)
                    trial.judge_all(share(self._sets, keys[0], number))
            except RunnerFailed as failure:
                self._answer_failure(ruling, failure)
        return ruling

    def _kinds(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases; without the control on distributions, those of normal inputs only."""
        plain = ("normal", "exact", "stored")
        return [case for case in cases if self._controls.distributions or case.distribution in plain]

    @contextlib.contextmanager
    def _start_both(self, candidate: Candidate, binary: bytes | None, ruling: Ruling) -> Iterator[tuple[Arm, Arm]]:
        """Launch incumbent and candidate, the first of them by lot, and note how long the candidate worked."""
        if not self._setup.walks:
            self._time_alone()  # tells how many calls a batch has
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(self._runners.start_incumbent()) if secrets.randbelow(2) else None
            arm = stack.enter_context(self._runners.start(candidate, binary, first))
            incumbent = first or stack.enter_context(self._runners.start_incumbent(beside=arm))
            try:
                yield incumbent, arm
            finally:
                ruling.worked_s += arm.worked_s

    def _charge(self, ruling: Ruling, lineage: str) -> None:
        ruling.attempt = self._attempts.begin(digest_of(self.problem), lineage)
        number = ruling.attempt.number if ruling.attempt else len(ALPHAS) + 1
        if not ruling.note("confirms of this problem this week", number, len(ALPHAS), ruling.attempt is not None):
            ruling.settle("inconclusive", f"its author has had {len(ALPHAS)} confirms of this problem this week")

    def _check_drift(self, ruling: Ruling) -> None:
        """Void the launches if the incumbent was slower beside the candidate than alone: something held it up."""
        drift = find_drift(ruling.beside, self._floor or 0.0)
        if not ruling.note("drift of the incumbent", drift, 0.0, drift == 0):
            ruling.settle("inconclusive", "the incumbent was slower beside it than alone: its times do not count")

    def _prepare(self, candidate: Candidate, ruling: Ruling) -> bytes | None:
        """Check what can be told without running it, and build it; settle the ruling when that is the end."""
        if candidate.definition != self.problem.definition.name:
            raise WrongUse(
                f"the candidate is for {candidate.definition}, the problem is {self.problem.definition.name}",
                "judge it on the bench of its own problem",
            )
        if not candidate.covers(self.problem.timed_axes) or covered_ranges(self.problem, candidate) is None:
            ruling.settle("invalid", "it does not cover the shape that is timed")
        elif candidate.language == "cuda" or (candidate.language == "triton" and not has_triton()):
            ruling.settle("unmeasured", f"this machine cannot time {candidate.language}")
        elif candidate.language == "cpp":
            self._say("compiling")
            built = build_caged(candidate, self._cache, self._cage)
            if built.binary is not None:
                ruling.binary = built.digest
                content = built.binary.read_bytes()
                self._screen(candidate, content, ruling)
                return content
            ruling.settle_build(built)
        else:
            self._screen(candidate, None, ruling)
        return None

    def _screen(self, candidate: Candidate, binary: bytes | None, ruling: Ruling) -> None:
        """Look at source and binary: what no kernel needs is refused, what is merely odd is noted."""
        if not ruling.controls.screens:
            return
        expanded = ""
        if candidate.language == "cpp" and ruling.phase == "confirm":  # search reads macros as they are written
            expanded = expand(candidate, self._cache / "expanded" / digest_of(candidate)[:16], caged_run(self._cage))
        found = screen(candidate, binary, self.problem.precision, expanded)
        ruling.labels, ruling.tripwires = found.labels, found.tripwires
        if not ruling.note("screens", found.refused or "nothing refused", "nothing refused", not found.refused):
            ruling.settle("invalid", f"a screen refuses it: {found.refused}")

    def _decide(self, ruling: Ruling, launches: Sequence[Launch]) -> None:
        if ruling.settled or not launches:
            return
        floor = self._floor_for(launches)
        confidence = 1 - (ruling.attempt.alpha if ruling.attempt else SEARCH_ALPHA)
        found = conclude(launches, floor, confidence)
        ruling.compare(found.interval, launches, floor, confidence)
        if self._controls.roofline:
            ruling.check_roofline(self.problem, self._ceilings, len(self._setup.timed_slots()))
        if not ruling.settled:
            low, freed = found.interval.low, found.low_without_waits
            ruling.note("lower end of the speed-up's interval", low, found.need, low > found.need)
            ruling.note("the same without waits for a processor", freed, found.need, freed > found.need)
            ruling.settle(found.outcome, found.reason)

    def _draw_key(self) -> Key:
        """Draw a key after both arms have loaded, and publish its hash before anything is drawn from it."""
        key = Key.draw()
        self._say(f"inputs are drawn from a key with SHA-256 {key.commitment}")
        return key

    def _new_ruling(self, candidate: Candidate, phase: str, screened: bool) -> Ruling:
        controls = self._controls if screened else replace(self._controls, screens=False)
        return Ruling(candidate, phase, started=time.monotonic(), controls=controls)

    def _write(self, ruling: Ruling) -> Verdict:
        return write_verdict(self.problem, ruling, ruling.controls, self._weights_key)

    def _answer_failure(self, ruling: Ruling, failure: RunnerFailed) -> None:
        """A candidate that fails is a verdict; an incumbent that fails is a broken tool."""
        if failure.trusted:
            raise KernelwrightError(
                f"the incumbent of {self.problem.definition.name} {failure.how}: {failure.log[-1000:]}",
                "check memory and free disk, then run it again; the incumbent is plain torch",
            )
        ruling.settle_failure(failure)

    def retire(self) -> None:
        """End the last candidate's cage; the next verdict, of the same candidate too, gets a new one."""
        self._runners.retire()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
