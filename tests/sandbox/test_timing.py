"""Whether time grows with the number of calls, on scripted times."""

from __future__ import annotations

import os

import pytest

from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.timing import TimedLaunch, Timer, find_batch_gain, find_nonlinear


class ScriptedExchange:
    """Eight calls; `seconds(count, round)` is how long a batch of `count` takes, `waits` what of it is waiting."""

    def __init__(self, seconds, waits: float = 0.0) -> None:  # type: ignore[no-untyped-def]
        self.calls = [object()] * 8
        self.arm = self
        self._waits, self._waited = waits, 0.0
        self._seconds, self._count, self.asked, self.stopped = seconds, 0, 0, False

    def plan(self, calls: list[object]) -> None:
        self._count = len(calls)

    def warm(self, timeout_s: float) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def load(self, index: int, tensors: object, poison: int) -> None:
        assert self.stopped, "inputs are written while the arm cannot see them"

    def go(self, timeout_s: float, stopped: bool = False) -> float:
        assert stopped and self.stopped, "it goes on only once the clock runs"
        self.resume()
        self.asked += 1
        self._waited += self._waits
        return self._seconds(self._count, self.asked)

    def waited_seconds(self) -> float:
        return self._waited


def judge(seconds, waits: float = 0.0) -> str:  # type: ignore[no-untyped-def]
    return find_nonlinear(ScriptedExchange(seconds, waits), lambda: [{}] * 8, 1.0)  # type: ignore[arg-type]


def test_time_that_grows_with_the_calls_is_fine() -> None:
    assert not judge(lambda count, asked: 0.01 * count)


def test_time_that_does_not_grow_is_found() -> None:
    assert judge(lambda count, asked: 0.08) == "nonlinear"


def test_where_waits_explain_it_nothing_is_known() -> None:
    assert judge(lambda count, asked: 0.08 + 0.005 * count, waits=0.08) == "waits"
    assert judge(lambda count, asked: 0.08 + 0.01, waits=0.08) == "nonlinear", "that does not grow without waits either"


def test_one_disturbance_of_the_machine_is_not_held_against_a_candidate() -> None:
    assert not judge(lambda count, asked: 0.01 * count + (0.1 if asked <= 12 else 0.0))


def test_batches_too_short_to_tell_say_nothing() -> None:
    assert not judge(lambda count, asked: 1e-4)


@pytest.mark.parametrize(("lone", "gains"), [(0.0103, False), (0.0104, False), (0.0130, True), (0.0112, True)])
def test_calls_that_cost_less_together_than_alone_are_found(lone: float, gains: bool) -> None:
    """Alone a call costs the incumbent 9.9 ms more than in a batch: the bell. The candidate's cost 0.4 in a batch."""
    beside, exchange = ScriptedExchange(lambda *_: 0.0109), ScriptedExchange(lambda *_: lone)
    result = TimedLaunch(incumbent=[0.001] * 3, candidate=[0.0004] * 3)
    assert find_batch_gain(beside, exchange, result, lambda: [{}] * 8, 1.0) == ("nonlinear" if gains else "")  # type: ignore[arg-type]


def test_a_lone_call_that_waited_for_a_processor_is_no_proof() -> None:
    beside, exchange = ScriptedExchange(lambda *_: 0.0109), ScriptedExchange(lambda *_: 0.0130, waits=0.0027)
    result = TimedLaunch(incumbent=[0.001] * 3, candidate=[0.0004] * 3, waited=([0.0] * 3, [0.0] * 3))
    assert find_batch_gain(beside, exchange, result, lambda: [{}] * 8, 1.0) == "waits"  # type: ignore[arg-type]


@pytest.mark.parametrize(("own", "gains"), [(0.0009, True), (0.0011, False)])
def test_who_is_no_faster_has_gained_nothing(own: float, gains: bool) -> None:
    beside, exchange = ScriptedExchange(lambda *_: 0.0109), ScriptedExchange(lambda *_: 0.0130)
    result = TimedLaunch(incumbent=[0.001] * 3, candidate=[own] * 3)
    assert find_batch_gain(beside, exchange, result, lambda: [{}] * 8, 1.0) == ("nonlinear" if gains else "")  # type: ignore[arg-type]


class ScriptedArm:
    """Notes in `log` what is done to it, under its name."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.arm, self.calls, self.threads = name, log, self, [object()], 1
        self.placed: list[list[int]] = []

    def keep_to(self, processors: list[int]) -> None:
        self.placed.append(processors)

    def stop(self) -> None:
        self.log.append(f"{self.name} stops")

    def resume(self) -> None:
        self.log.append(f"{self.name} goes on")

    def warm(self, timeout_s: float) -> None:
        self.log.append(f"{self.name} wakes")

    def load(self, index: int, tensors: object, poison: int) -> None:
        self.log.append(f"{self.name} is given inputs")

    def waited_seconds(self) -> float:
        self.waited = getattr(self, "waited", 1.0) - 0.1  # as when a thread ends that had waited
        return self.waited

    def cpu_seconds(self) -> float:
        return 0.0

    def go(self, timeout_s: float, stopped: bool = False) -> float:
        self.log.append(f"{self.name} is timed from a standstill" if stopped else f"{self.name} is timed running")
        return 1.0

    def collect(self, index: int, tensors: object) -> Answer:
        self.log.append(f"{self.name} is read")
        return Answer({}, "")

    def find_disagreement(self, incumbent: object, candidate: object) -> str:
        return ""


def time_once(controls: Controls, log: list[str]) -> TimedLaunch:
    return time_arms([ScriptedArm(name, log) for name in ("incumbent", "candidate")], controls, 1)


def time_arms(arms: list[ScriptedArm], controls: Controls, pairs: int) -> TimedLaunch:
    key = Key(b"k" * 32)
    timer = Timer(*arms, [{}], key, controls, 1.0, arms[0], lambda _: {})  # type: ignore[arg-type]
    return timer.run(pairs)


@pytest.mark.parametrize(("threads", "number"), [(1, 1), (2, 2), (4, 0)])
def test_both_arms_of_a_pair_run_on_the_same_processors(
    threads: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 7} if threads < 4 else {3, 4, 7, 8})
    arms = [ScriptedArm(name, []) for name in ("incumbent", "candidate")]
    for arm in arms:
        arm.threads = threads
    time_arms(arms, Controls(), 20)
    *pairs, last = arms[0].placed or [[]]
    assert arms[0].placed == arms[1].placed
    if not number:
        assert not pairs, "there is nothing to choose"
        return
    assert all(len(set(chosen)) == number and set(chosen) <= {3, 4, 7} for chosen in pairs)
    assert len({tuple(chosen) for chosen in pairs}) >= 3, "drawn by lot"
    assert last == [3, 4, 7], "and free again in the end"


def test_waits_are_kept_for_each_arm_and_never_below_zero() -> None:
    assert time_once(Controls(), []).waited == ([0.0], [0.0])


def test_nobody_runs_before_the_clock_or_after_the_bell() -> None:
    log: list[str] = []
    time_once(Controls(), log)
    for name in ("incumbent", "candidate"):
        at = log.index(f"{name} is timed from a standstill")
        assert log[at - 3 : at + 3] == [
            f"{name} wakes", f"{name} stops", f"{name} is given inputs", f"{name} is timed from a standstill",
            f"{name} stops", f"{name} is read",
        ]  # fmt: skip


def test_with_the_control_off_it_sees_its_inputs_before_the_clock_runs() -> None:
    log: list[str] = []
    time_once(Controls(stop_waiting=False), log)
    at = log.index("candidate is timed running")
    assert log[at - 2 : at] == ["candidate wakes", "candidate is given inputs"]
