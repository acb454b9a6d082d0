"""Trial: one launch of a candidate beside the incumbent: correctness calls, races, poisons, timed calls."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.kernels.candidate import PackedTensor
from kernelwright.kernels.definition import DTYPES
from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.cases import Case, WeightSets, allowed, complete_axes, draw_case, hidden_shapes
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key, Tensors, draw_activations
from kernelwright.sandbox.exchange import Answer, Exchange, same_bits
from kernelwright.sandbox.jitter import jitter
from kernelwright.sandbox.judge import AGAIN, GATE, TROUBLE, is_doubtful, weigh
from kernelwright.sandbox.judge_link import JudgeLink
from kernelwright.sandbox.ruling import Ruling
from kernelwright.sandbox.sanitizer import find_races
from kernelwright.sandbox.stats import Launch
from kernelwright.sandbox.supervisor import Arm, Call, lay_out
from kernelwright.sandbox.timing import (
    TimedLaunch,
    Timer,
    find_batch_gain,
    find_busy_after_done,
    find_nonlinear,
    freshen,
    probe,
    single_thread,
    stopped,
    timing_lock,
    used_too_much_cpu,
)  # fmt: skip
from kernelwright.sandbox.verdict import Evaluation, Outcome

if TYPE_CHECKING:
    import torch

    from kernelwright.sandbox.cage import Cage

RACE_REPEATS = 50
RACE_THREADS = (1, 2, 4)
BATCH_BYTES = 16 << 20
"""Most that the tensors of one timed batch take."""
BATCH_S = 2.5e-3
"""A timed batch is at least this long, by the incumbent's time, so that doorbells and signals do not count."""
MAX_CALLS = 400
ALONE_BATCHES = 4
BLOCK_ORDERS = ("forward", "reverse", "random", "random", "random")
HEAP_FILLS = (0xFF, 0x5A)
"""malloc gives the complement: zeros first, as a fresh process often does, then 0xA5."""
RACE = "a race: its results change from run to run"
RACE_BETWEEN_BLOCKS = "a race: its results depend on the order in which blocks run"
SANITIZED: dict[str, tuple[Outcome, str]] = {
    "race": ("incorrect", "a race: its threads use the same memory without an order between them"),
    "memory": ("invalid", "it reads or writes outside its memory"),
    "failed": ("inconclusive", "it cannot be built or run under the race detector, so nothing is known of its races"),
}
HELD_BEFORE = "its results depend on what its outputs or its scratch held before, or on a race"


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """What every trial of a bench shares."""

    problem: Problem
    problem_dir: Path
    judge: JudgeLink
    sets: WeightSets
    weights: list[dict[str, torch.Tensor]]
    threads: int
    controls: Controls
    timeout_s: float
    walks: list[int] = field(default_factory=list)
    """How often a timed batch walks the ring, once that is known."""

    def axes(self, given: dict[str, int], stored: bool = False) -> dict[str, int]:
        """Return all axes; a stored input keeps its own sizes, a drawn one gets as many pages as it may need."""
        whole = complete_axes(self.problem.definition, given, self.weights[0])
        return {**whole, **given} if stored else whole

    def timed_slots(self) -> list[int]:
        """Return the weight sets one timed batch walks: each once, so that nothing is reused inside a batch."""
        bytes_each = self.bytes_for([dict(self.problem.timed_axes)])
        return list(range(min(self.sets.model, max(1, BATCH_BYTES // bytes_each))))

    def most_calls(self) -> int:
        """Return the most calls that one timed batch may have: whole walks of the ring that fit the mailbox."""
        ring = len(self.timed_slots())
        room = min(MAX_CALLS, BATCH_BYTES // self.bytes_for([dict(self.problem.timed_axes)]))
        return ring * max(1, room // ring)

    def mailbox_bytes(self) -> int:
        """Return room for a timed batch, for the race repeats, and for the largest shape of the ranges."""
        shapes = hidden_shapes(self.problem, self.problem.ranges, random.Random(0))
        shapes += [dict(w.axes) for w in self.problem.workloads]
        smallest = min(shapes, key=lambda s: sum(s.values()))
        needs = [self.bytes_for([dict(self.problem.timed_axes)] * self.most_calls())]
        needs += [self.bytes_for([shape]) for shape in shapes]
        needs.append(self.bytes_for([smallest] * RACE_REPEATS))
        return max(needs) + (1 << 20)

    def bytes_for(self, shapes: Sequence[dict[str, int]]) -> int:
        """Return what calls at `shapes`, all held at once, need of the larger mailbox."""
        calls: list[tuple[int, dict[str, int], dict[str, float]]] = [(0, self.axes(shape), {}) for shape in shapes]
        return max(lay_out(self.problem.definition, self.problem.contract, calls)[1:])


@dataclass(slots=True)
class Trial:
    """One key, two loaded arms. Methods return whether the candidate may go on; what they find goes to the ruling."""

    setup: TrialSetup
    incumbent: Arm
    arm: Arm
    key: Key
    ruling: Ruling | None = None
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.key.seed("trial"))
        if self.ruling is not None:
            self.ruling.keys.append(self.key.secret.hex())
            self.ruling.saw_isolation(*self.arm.isolation())
            self.ruling.packed_bytes = sum(_bytes_of(p) for p in self.arm.candidate.packed) * self.setup.sets.model

    def judge_all(self, cases: Sequence[Case]) -> bool:
        """Judge each case in turn; input i+1 is written only after output i has been taken."""
        assert self.ruling is not None
        for case in cases:
            evaluation, reason = self._judge_case(case)
            if reason and case.workload is None and is_doubtful(evaluation):
                again = [self._judge_case(replace(case, name=f"{case.name}-again-{i}"))[0] for i in range(AGAIN)]
                evaluation, reason = weigh([evaluation, *again], reason)
            self.ruling.evaluations.append(evaluation)
            if reason:
                self.ruling.settle(_outcome_of(reason), reason)
                return False
        return True

    def _judge_case(self, case: Case) -> tuple[Evaluation, str]:
        axes = self.setup.axes(case.axes, stored=case.workload is not None)
        tensors = draw_case(
            self.setup.problem, self.setup.problem_dir, case, axes, self.key, self.setup.controls.fresh_inputs
        )
        answers = [self._ask(arm, case, axes, tensors) for arm in (self.incumbent, self.arm)]
        return self.setup.judge.judge(case, tensors, *answers)

    def try_two_poisons(self, case: Case) -> bool:
        """Call twice on equal inputs, outputs and heap filled with other garbage; results must be equal bit for bit."""
        assert self.ruling is not None
        if not self.setup.controls.repeat_races:
            return True
        axes = self.setup.axes(case.axes)
        tensors = draw_case(self.setup.problem, self.setup.problem_dir, case, axes, self.key)
        first, second = (self._ask(self.arm, case, axes, tensors, heap_fill=fill) for fill in HEAP_FILLS)
        if first.trouble or second.trouble:
            self.ruling.settle("invalid", TROUBLE[first.trouble or second.trouble])
        elif not all(same_bits(first.results[n], second.results[n]) for n in first.results):
            self.ruling.settle("incorrect", HELD_BEFORE)
        return not self.ruling.settled

    def try_races(self, case: Case) -> bool:
        """Repeat calls at several thread counts, half of them under jitter: equal inputs must give equal bits."""
        assert self.ruling is not None
        if not self.setup.controls.repeat_races:
            return True
        axes = self.setup.axes(case.axes)
        sets = self.setup.sets.model  # they take turns: what is left of another set's must not pass for one's own
        cases = [Case(f"{case.name}-{i}", case.axes, i % sets, case.distribution) for i in range(5)]
        inputs = [draw_case(self.setup.problem, self.setup.problem_dir, c, axes, self.key) for c in cases]
        baseline = [self._ask(self.incumbent, c, axes, t) for c, t in zip(cases, inputs, strict=True)]
        for threads in RACE_THREADS:
            calm = self._repeat(cases, axes, inputs, threads)
            with jitter(self.arm.processes, self._rng.getrandbits(32)):
                shaken = self._repeat(cases, axes, inputs, threads)
            groups = [a + b for a, b in zip(calm, shaken, strict=True)]
            for i, group in enumerate(groups):
                evaluation, reason = self.setup.judge.judge(cases[i], inputs[i], baseline[i], group[0])
                if any(not same_bits(a.results[n], group[0].results[n]) for a in group for n in a.results):
                    self.ruling.settle("incorrect", RACE)
                elif reason or any(a.trouble for a in group):
                    self.ruling.settle(_outcome_of(reason), reason or "it is unsound when run again and again")
                if self.ruling.settled:
                    self.ruling.evaluations.append(evaluation)
                    return False
        return True

    def try_block_orders(self, case: Case) -> str:
        """Run the blocks of a triton candidate in several orders on equal inputs: equal bits, or it has a race.

        Where it adds atomically, results that pass the gates in every order may differ by reassociation; the text
        returned then says so, else it is ''.
        """
        assert self.ruling is not None
        axes = self.setup.axes(case.axes)
        tensors = draw_case(self.setup.problem, self.setup.problem_dir, case, axes, self.key)
        beside = self._ask(self.incumbent, case, axes, tensors)
        orders = [f"random:{self._rng.getrandbits(32)}" if o == "random" else o for o in BLOCK_ORDERS]
        answers = [self._ask(self.arm, case, axes, tensors, block_order=order) for order in orders]
        judged = [self.setup.judge.judge(case, tensors, beside, answer) for answer in answers]
        same = all(same_bits(a.results[n], answers[0].results[n]) for a in answers for n in a.results)
        evaluation, reason = next(((e, r) for e, r in judged if r), judged[0])
        self.ruling.evaluations.append(evaluation)
        if same and not reason:
            return ""
        adds = any("atomic_" in source.content for source in self.arm.candidate.sources)
        if not same and (reason or not adds):
            self.ruling.settle("incorrect", RACE_BETWEEN_BLOCKS)
        elif reason:
            self.ruling.settle(_outcome_of(reason), reason)
        return "its atomic additions change results with the order of blocks, within what is allowed"

    def try_sanitizers(self, case: Case, cage: Cage, cache: Path) -> bool:
        """Run a C++ candidate on the inputs of `case` under the sanitizers; what they find settles the ruling.

        That it cannot be run under them settles it, too; that this host has none is noted: see `sanitizer.py`.
        """
        assert self.ruling is not None
        axes, problem = self.setup.axes(case.axes), self.setup.problem
        tensors = draw_case(problem, self.setup.problem_dir, case, axes, self.key)
        weights = self.setup.weights[case.slot]
        candidate, named = self.arm.candidate, (problem.definition, problem.contract)
        found = find_races(candidate, *named, tensors, weights, cage=cage, cache=cache)
        said = found.status if found.status != "failed" else f"failed: {found.log[:200]}"
        self.ruling.note("race and memory detectors", said, "clean", found.status in ("clean", "unavailable"))
        if found.status in ("race", "memory"):
            self.ruling.evaluations.append(
                Evaluation(workload=f"{case.name}-{found.tool}", status="RUNTIME_ERROR", log=found.log[-4000:])
            )
        if found.status in SANITIZED:
            self.ruling.settle(*SANITIZED[found.status])
        return not self.ruling.settled

    def _repeat(
        self, cases: list[Case], axes: dict[str, int], inputs: list[Tensors], threads: int
    ) -> list[list[Answer]]:
        """Return the answers of half of RACE_REPEATS calls, grouped by input; as many at once as the mailbox holds."""
        room = self.setup.mailbox_bytes() // self.setup.bytes_for([axes])
        answers: list[Answer] = []
        while len(answers) < RACE_REPEATS // 2:
            count = min(RACE_REPEATS // 2 - len(answers), max(1, room))
            turns = [(len(answers) + i) % len(inputs) for i in range(count)]
            calls = self._lay_out([(cases[turn].slot, axes) for turn in turns], inputs[0])
            exchange = self._plan(self.arm, calls, threads)
            given = [inputs[turn] for turn in turns]
            for i, tensors in enumerate(given):
                exchange.load(i, tensors, self._rng.getrandbits(50))
            self.arm.go(self.setup.timeout_s)
            answers += [exchange.collect(i, tensors) for i, tensors in enumerate(given)]
        return [answers[i :: len(inputs)] for i in range(len(inputs))]

    def time(self, pairs: int) -> TimedLaunch:
        """Time both arms at the timed shape. Raises RunnerFailed."""
        with single_thread():
            return self._time(pairs)

    def _time(self, pairs: int) -> TimedLaunch:
        controls = self.setup.controls
        axes = self.setup.axes(dict(self.setup.problem.timed_axes))
        templates = self._templates(axes)
        walks = self._choose_walks(axes, templates)
        calls = self._lay_out([(s, axes) for s in self.setup.timed_slots() * walks], templates[0])
        beside, exchange = (self._plan(arm, calls) for arm in (self.incumbent, self.arm))
        timer = Timer(
            beside, exchange, templates * walks, self.key, controls, self.setup.timeout_s, self.setup.judge,
            lambda generator: self._draw_template(axes, generator),
        )  # fmt: skip
        result = timer.run(pairs)
        result.slots = tuple(call.slot for call in calls)
        if controls.watch_cpu and not result.trouble and used_too_much_cpu(result, self.setup.threads):
            result.trouble = "cpu"
        if not result.trouble:
            result.trouble = self._watch(beside, exchange, timer, result)
        if controls.watch_processes and not result.trouble and self.arm.num_processes() > 1:
            result.trouble = "forked"
        return result

    def _templates(self, axes: dict[str, int]) -> list[Tensors]:
        """Return inputs of the timed shape, one call for each weight set of the ring."""
        return [self._draw_template(axes, self.key.generator("template", s)) for s in self.setup.timed_slots()]

    def _draw_template(self, axes: dict[str, int], generator: torch.Generator) -> Tensors:
        problem = self.setup.problem
        return draw_activations(problem.definition, problem.contract, axes, allowed(problem, ("normal",))[0], generator)

    def _choose_walks(self, axes: dict[str, int], templates: list[Tensors]) -> int:
        """Return how often a batch walks the ring, from the incumbent's time alone: the candidate has no say in it."""
        if not self.setup.walks:
            assert self.arm is self.incumbent, "an arm that is compared is not asked for this first: see `time_alone`"
            most = self.setup.most_calls() // len(templates)
            exchange = self._plan_walks(axes, templates, 1)
            with timing_lock():
                seconds = min(probe(exchange, templates, self.setup.timeout_s).seconds for _ in range(4))
            self.setup.walks.append(max(1, min(most, math.ceil(BATCH_S / max(seconds, 1e-6)))))
        return self.setup.walks[0]

    def _plan_walks(self, axes: dict[str, int], templates: list[Tensors], walks: int) -> Exchange:
        return self._plan(
            self.incumbent, self._lay_out([(s, axes) for s in self.setup.timed_slots() * walks], templates[0])
        )

    def _watch(self, beside: Exchange, exchange: Exchange, timer: Timer, result: TimedLaunch) -> str:
        """Return 'busy', 'nonlinear', 'waits' or ''."""
        controls, timeout_s = self.setup.controls, self.setup.timeout_s
        with stopped(self.incumbent):
            if controls.watch_after and find_busy_after_done(exchange):
                return "busy"
            found = find_nonlinear(exchange, timer.draw_batch, timeout_s) if controls.linear_time else ""
        if controls.linear_time and not found:
            found = find_batch_gain(beside, exchange, result, timer.draw_batch, timeout_s)
        return found

    def time_and_judge(self, pairs: int) -> Launch | None:
        """Time, then judge a secret sample of the timed calls in full; None when that settled the ruling."""
        assert self.ruling is not None
        result = self.time(pairs)
        self.ruling.note("timed calls, processes and processor time", result.trouble or "in order", "in order",
                         not result.trouble)  # fmt: skip
        if result.trouble:
            self.ruling.settle(*TIMED_TROUBLE.get(result.trouble, ("invalid", TROUBLE.get(result.trouble, ""))))
            return None
        for number, (index, tensors, *answers) in enumerate(result.samples):
            case = Case(f"timed-{number}", dict(self.setup.problem.timed_axes), result.slots[index], "normal")
            evaluation, reason = self.setup.judge.judge(case, tensors, *answers)
            self.ruling.evaluations.append(evaluation)
            if reason:
                self.ruling.settle("invalid", TIMED_TROUBLE["timed"][1])
                return None
        return result.launch()

    def _plan(
        self, arm: Arm, calls: Sequence[Call], threads: int | None = None, heap_fill: int = 0,
        block_order: str | None = None,
    ) -> Exchange:  # fmt: skip
        arm.plan(calls, threads, block_order=block_order, heap_fill=heap_fill)
        return Exchange(arm, calls, self.setup.problem.contract.aliases, self.setup.controls)

    def _ask(
        self, arm: Arm, case: Case, axes: dict[str, int], tensors: Tensors, heap_fill: int = 0,
        block_order: str | None = None,
    ) -> Answer:  # fmt: skip
        calls = self._lay_out([(case.slot, axes)], tensors)
        exchange = self._plan(arm, calls, heap_fill=heap_fill, block_order=block_order)
        exchange.load(0, tensors, self._rng.getrandbits(50))
        arm.go(self.setup.timeout_s)
        return exchange.collect(0, tensors, delay_s=self._rng.uniform(0.002, 0.02) if arm is self.arm else 0.0)

    def _lay_out(self, where: list[tuple[int, dict[str, int]]], tensors: Tensors) -> list[Call]:
        scalars = {n: v for n, v in tensors.items() if isinstance(v, int | float)}
        described = [(slot, axes, scalars) for slot, axes in where]
        return lay_out(self.setup.problem.definition, self.setup.problem.contract, described)[0]


def time_alone(setup: TrialSetup, incumbent: Arm, batches: int = ALONE_BATCHES) -> list[float]:
    """Return seconds per call of batches of the incumbent while nothing of the candidate runs. Raises RunnerFailed."""
    trial = Trial(setup, incumbent, incumbent, Key.draw())
    axes = setup.axes(dict(setup.problem.timed_axes))
    templates = trial._templates(axes)
    with single_thread():
        walks = trial._choose_walks(axes, templates)
        exchange = trial._plan_walks(axes, templates, walks)
        inputs = [freshen(t, trial.key.generator("alone", i)) for i, t in enumerate(templates * walks)]
        with timing_lock():
            return [probe(exchange, inputs, setup.timeout_s).seconds / len(inputs) for _ in range(batches + 1)][1:]


TIMED_TROUBLE: dict[str, tuple[Outcome, str]] = {
    "timed": ("invalid", "its results while it is timed differ from those it gives otherwise"),
    "cpu": ("invalid", "it used more processor time than its threads allow"),
    "nonlinear": ("suspect", "calls cost less together than one by one, or its time does not grow with their number"),
    "waits": ("inconclusive", "waits for a busy processor hide how its time grows: try it when all is quiet"),
    "forked": ("invalid", "it started other processes"),
    "busy": ("invalid", "it went on working after it had said it was done"),
}


def _outcome_of(reason: str) -> Outcome:
    wrong = {*GATE.values(), TROUBLE["unwritten"]}
    return "incorrect" if reason in wrong else "invalid"


def _bytes_of(packed: PackedTensor) -> int:
    count = DTYPES[packed.dtype]
    for size in packed.shape:
        count *= size
    return count
