"""Paired timing of two arms, with the supervisor's clock around batches of calls over the ring of weight sets.

Each pair draws fresh activations, times both arms on them in an order and on processors drawn by lot (the same ones for
both), and compares every result of the candidate's with the incumbent's: timed calls are judged calls. The other arm is
stopped while one is timed; one lock file keeps all timing on this machine apart. CPU time from the cgroup is the second
witness.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key, Tensors
from kernelwright.sandbox.exchange import Answer, Exchange
from kernelwright.sandbox.judge import blind
from kernelwright.sandbox.projections import agree_in_every_element
from kernelwright.sandbox.stats import Launch
from kernelwright.sandbox.supervisor import Arm

if TYPE_CHECKING:
    import torch

AWAKE_S = 0.05
"""A little longer than a runner's idle threads stay awake (cell.SPIN_COUNT)."""
WATCH_S = 0.05
DOUBTS = 3
PROBES = 6
LONE_DOUBTS, PAUSE_S = 6, 0.25
SEALED_CALLS = 16
SEALED_FACTOR, SEALED_SHARE, SEALED_SLACK_S = 1.5, 0.1, 15e-6
"""The incumbent's lone calls need not cost quite what its batched ones do: a tenth of them says nothing."""
LARGE = 1 << 14
"""Elements above which an input is multiplied with fresh factors rather than drawn anew for each batch."""
STRIDE = 16_381
"""A prime, so that factors meet rows, heads and pages of the input at another place each time."""


@dataclass(slots=True)
class TimedLaunch:
    """What one launch gave. `trouble` is '' or why the launch does not count for the candidate."""

    incumbent: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)
    trouble: str = ""
    samples: list[tuple[int, Tensors, Answer, Answer]] = field(default_factory=list)
    """(call index, inputs, incumbent's answer, candidate's answer) to be judged in full."""
    waited: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    """What each arm's threads waited for a processor in each pair, summed over them, in seconds per call."""
    slots: tuple[int, ...] = ()
    """Weight set of each call of a batch."""
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def launch(self) -> Launch:
        return Launch(tuple(self.incumbent), tuple(self.candidate), *map(tuple, self.waited))


class Comparer(Protocol):
    """Says whether the results of a timed batch agree; the judge's process does."""

    def find_disagreement(self, incumbent: Sequence[Answer], candidate: Sequence[Answer]) -> str: ...


@contextlib.contextmanager
def timing_lock() -> Iterator[None]:
    """Hold the machine-wide lock under which anything is timed."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR", tempfile.gettempdir()))
    with open(folder / "kernelwright-timing.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def stopped(arm: Arm) -> Iterator[None]:
    """Keep `arm` from running: its threads may still be waiting for work, awake."""
    arm.stop()
    try:
        yield
    finally:
        arm.resume()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Keep torch on the calling thread: a pool that has worked goes on waiting, awake, for milliseconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Timer:
    """Times two planned exchanges with equal calls against each other."""

    def __init__(
        self, incumbent: Exchange, candidate: Exchange, templates: list[Tensors], key: Key, controls: Controls,
        timeout_s: float, comparer: Comparer, redraw: Callable[[torch.Generator], Tensors],
    ) -> None:  # fmt: skip
        self._arms = (incumbent, candidate)
        self._comparer = comparer
        self._templates = list(templates)
        self._redraw = redraw
        self._key = key
        self._controls = controls
        self._timeout_s = timeout_s
        self._batch = 0
        self._rng = random.Random(key.seed("order"))
        self._allowed = sorted(os.sched_getaffinity(0))

    def run(self, pairs: int, samples: int = 3) -> TimedLaunch:
        """Time `pairs` pairs after a warm-up. Raises RunnerFailed."""
        result = TimedLaunch()
        picked = {self._rng.randrange(pairs) for _ in range(samples)}
        with timing_lock(), self._both_stopped():
            for _ in range(2):
                self._time_batch(result, keep=False)
            result.wall_s = result.cpu_s = 0.0
            result.waited = ([], [])
            for pair in range(pairs):
                incumbent, candidate = self._time_batch(result, keep=pair in picked)
                result.incumbent.append(incumbent)
                result.candidate.append(candidate)
                if result.trouble:
                    break
        return result

    def _time_batch(self, result: TimedLaunch, keep: bool) -> tuple[float, float]:
        """Time one batch on both arms; return seconds per call (incumbent, candidate) and note any trouble."""
        tensors = self.draw_batch()
        self._place(self._draw_processors())
        order = (0, 1) if self._rng.random() < 0.5 else (1, 0)
        seconds = [0.0, 0.0]
        answers: list[list[Answer]] = [[], []]
        for which in order:
            seconds[which] = self._time_one(which, tensors, result)
            answers[which] = self._collect(self._arms[which], tensors)
            self._rest(self._arms[which].arm)
        if self._controls.judge_timed and not result.trouble:
            result.trouble = self._comparer.find_disagreement(answers[0], answers[1])
            if keep:
                i = self._rng.randrange(len(tensors))
                result.samples.append((i, tensors[i], answers[0][i], answers[1][i]))
        return seconds[0] / len(tensors), seconds[1] / len(tensors)

    def _collect(self, exchange: Exchange, tensors: list[Tensors]) -> list[Answer]:
        """Take the results right after the bell, in random order: whoever rang early is met unfinished."""
        order = self._rng.sample(range(len(tensors)), len(tensors))
        found = {i: exchange.collect(i, tensors[i]) for i in order}
        return [found[i] for i in range(len(tensors))]

    def _time_one(self, which: int, tensors: list[Tensors], result: TimedLaunch) -> float:
        """Time one arm, awake and with inputs it has not seen; it stands still again as soon as it says "done"."""
        exchange = self._arms[which]
        arm, still = exchange.arm, self._controls.stop_waiting
        arm.resume()
        arm.warm(self._timeout_s)
        if still:
            arm.stop()  # or a thread of it could begin on the inputs before the clock starts
        for i, inputs in enumerate(tensors):
            exchange.load(i, inputs, self._rng.getrandbits(50))
        before, waited = arm.cpu_seconds(), arm.waited_seconds()
        elapsed = arm.go(self._timeout_s, stopped=still)
        if self._controls.read_twice:
            arm.stop()  # or it could finish, after the bell, what is read last
        if which:
            result.cpu_s += arm.cpu_seconds() - before
            result.wall_s += elapsed
        # what a thread had waited goes with it when it ends: a sum may fall
        result.waited[which].append(max(0.0, arm.waited_seconds() - waited) / len(tensors))
        return elapsed

    @contextlib.contextmanager
    def _both_stopped(self) -> Iterator[None]:
        """Keep both arms still but for the one that is timed: threads may still be waiting for work, awake."""
        try:
            for exchange in self._arms:
                self._rest(exchange.arm)
            yield
        finally:
            self._place(self._allowed)
            for exchange in self._arms:
                exchange.arm.resume()

    def _draw_processors(self) -> list[int]:
        """Return as many processors as the arms have threads, drawn by lot, the same ones for both arms of a pair.

        One processor may be half as fast as its neighbour for a second or so (where another machine's work shares its
        core), and threads stay where they were: two arms on two of them would differ by that.
        """
        return self._rng.sample(self._allowed, min(len(self._allowed), self._arms[0].arm.threads))

    def _place(self, processors: Sequence[int]) -> None:
        if len(self._allowed) > self._arms[0].arm.threads:  # else there is no choice
            for exchange in self._arms:
                exchange.arm.keep_to(processors)

    def _rest(self, arm: Arm) -> None:
        if self._controls.stop_waiting:
            arm.stop()
        else:
            arm.resume()

    def draw_batch(self) -> list[Tensors]:
        """Return fresh inputs for every call of a batch."""
        self._batch += 1
        number = self._batch if self._controls.fresh_inputs else 0
        generator = self._key.generator("timed", number)
        if self._controls.fresh_inputs and keeps_structure(self._templates[0]):
            index = self._rng.randrange(len(self._templates))  # lengths, tables and patterns change, too, one at a time
            self._templates[index] = self._redraw(generator)
        return [freshen(template, generator) for template in self._templates]


def freshen(template: Tensors, generator: torch.Generator) -> Tensors:
    """Return new values for the float inputs of `template`, of its structure.

    A large one is multiplied element by element with fresh factors of either sign, repeated in a stride that is prime:
    what a few of its elements say holds for no others.
    """
    import torch

    fresh: Tensors = {}
    for name, value in template.items():
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            if value.numel() <= LARGE:
                value = torch.randn(value.shape, generator=generator, dtype=value.dtype)
            else:
                factors = 0.5 + torch.rand(STRIDE, generator=generator, dtype=value.dtype)
                factors *= torch.randint(0, 2, (STRIDE,), generator=generator) * 2 - 1
                repeats = -(-value.numel() // STRIDE)
                value = value * factors.repeat(repeats)[: value.numel()].view(value.shape)
        fresh[name] = value
    return fresh


def keeps_structure(template: Tensors) -> bool:
    """Return whether `freshen` keeps something of `template`: a large tensor's pattern, or tensors of integers."""
    import torch

    tensors = [value for value in template.values() if isinstance(value, torch.Tensor)]
    return any(not t.dtype.is_floating_point or t.numel() > LARGE for t in tensors)


def find_disagreement(incumbent: Sequence[Answer], candidate: Sequence[Answer], controls: Controls) -> str:
    """Return '' when all timed results agree as closely as two honest fp32 kernels do.

    A coarse net over every element: the full gates see the secret sample.
    """
    rows = ... if controls.check_every_row else slice(1)
    for a, b in zip(incumbent, candidate, strict=True):
        if b.trouble:
            return b.trouble
        for name, expected in a.results.items():
            given = b.results[name]
            if expected.dim():  # a single number has no rows
                expected, given = expected[rows], given[rows]
            if not controls.masks:
                given = blind(given, expected)
            if not agree_in_every_element(expected, given, controls.relative_gate):
                return "timed"
    return ""


Suspicion = Literal["", "nonlinear", "waits"]
"""`waits`: what looks nonlinear is explained by what threads waited for a processor, so that nothing is known."""


class Probed(NamedTuple):
    seconds: float
    free: float
    """The same without what the threads waited for a processor; at least a twentieth of it."""


def find_nonlinear(exchange: Exchange, draw: Callable[[], list[Tensors]], timeout_s: float) -> Suspicion:
    """Tell whether a full batch takes hardly longer than half of one: then work is skipped, shared or put off.

    Least times of PROBES each, half and full in turn; what looks so is probed twice more before it is believed, as one
    disturbance of the machine can make all halves slow. Batches under 2 ms say nothing beside the cost of a doorbell.
    Raises RunnerFailed.
    """
    calls = exchange.calls
    if len(calls) < 4:
        return ""
    halves, fulls = [], []
    for _ in range(DOUBTS):
        for _ in range(PROBES):
            halves.append(probe(exchange, draw()[: len(calls) // 2], timeout_s))
            fulls.append(probe(exchange, draw(), timeout_s))
        if _grows(min(p.seconds for p in halves), min(p.seconds for p in fulls)):
            return ""
    return "waits" if _grows(min(p.free for p in halves), min(p.free for p in fulls)) else "nonlinear"


def _grows(half: float, full: float) -> bool:
    return full <= 2e-3 or full >= 1.25 * half


def find_batch_gain(
    incumbent: Exchange, candidate: Exchange, result: TimedLaunch, draw: Callable[[], list[Tensors]], timeout_s: float
) -> Suspicion:
    """Tell whether a call by itself costs the candidate much more than one of a batch: then it does them at once.

    In a batch all inputs lie there together, in an engine never. What the doorbell of each call costs cancels against
    the incumbent's call just before, and its calls are independent. What looks so is tried again, with pauses: on a
    busy machine one arm may sit on the busy core for a while. Batches of one call have nothing to gain. Who is not
    faster has gained nothing; after a doorbell his code is cold, too, and costs more the more there is of it. Raises
    RunnerFailed.
    """
    launch = result.launch()
    if len(candidate.calls) == 1 or np.median(launch.candidate) >= np.median(launch.incumbent):
        return ""
    explained = False
    for doubt in range(LONE_DOUBTS):
        time.sleep(PAUSE_S if doubt else 0.0)
        lone = []
        for _ in range(SEALED_CALLS):
            inputs, both = draw()[:1], []
            for exchange, other in ((incumbent, candidate), (candidate, incumbent)):
                with stopped(other.arm):
                    both.append(probe(exchange, inputs, timeout_s))
            lone.append((both[1].seconds - both[0].seconds, both[1].free - both[0].free))
        if not _gains(launch, [seconds for seconds, _ in lone]):
            return ""
        explained = explained or not _gains(launch.without_waits(), [free for _, free in lone])
    return "waits" if explained else "nonlinear"


def _gains(launch: Launch, further: list[float]) -> bool:
    """Tell whether lone calls cost more than batched ones; `further`: what each costs beyond the incumbent's."""
    beside, own = float(np.median(launch.incumbent)), float(np.median(launch.candidate))
    # the end of the spread that favours an honest candidate
    return beside + float(np.percentile(further, 25)) > SEALED_FACTOR * own + SEALED_SHARE * beside + SEALED_SLACK_S


def probe(exchange: Exchange, inputs: list[Tensors], timeout_s: float) -> Probed:
    """Time one batch of the first `len(inputs)` calls. Raises RunnerFailed."""
    exchange.arm.plan(exchange.calls[: len(inputs)])
    exchange.arm.warm(timeout_s)
    exchange.arm.stop()
    for i, tensors in enumerate(inputs):
        exchange.load(i, tensors, 1)
    waited = exchange.arm.waited_seconds()
    seconds = exchange.arm.go(timeout_s, stopped=True)
    return Probed(seconds, max(seconds - max(0.0, exchange.arm.waited_seconds() - waited), seconds / 20))


def find_busy_after_done(exchange: Exchange) -> bool:
    """Return whether the arm's processes go on using CPU time well after the bell: work was put off."""
    time.sleep(AWAKE_S)
    before = exchange.arm.cpu_seconds()
    time.sleep(WATCH_S)
    return exchange.arm.cpu_seconds() - before > 0.25 * WATCH_S


def used_too_much_cpu(result: TimedLaunch, threads: int) -> bool:
    """Return whether CPU time exceeds what wall time and threads allow (with 15 % and 30 ms for bookkeeping)."""
    return result.cpu_s > 1.15 * threads * result.wall_s + 0.03
