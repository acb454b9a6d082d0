"""Whether time grows with the number of calls, on scripted times."""

from __future__ import annotations

import pytest

from kernelwright.sandbox.timing import TimedLaunch, find_batch_gain, find_nonlinear


class ScriptedExchange:
    """Eight calls; `seconds(count, round)` is how long a batch of `count` calls takes."""

    def __init__(self, seconds) -> None:  # type: ignore[no-untyped-def]
        self.calls = [object()] * 8
        self.arm = self
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
        return self._seconds(self._count, self.asked)


def judge(seconds) -> bool:  # type: ignore[no-untyped-def]
    return find_nonlinear(ScriptedExchange(seconds), lambda: [{}] * 8, 1.0)  # type: ignore[arg-type]


def test_time_that_grows_with_the_calls_is_fine() -> None:
    assert not judge(lambda count, asked: 0.01 * count)


def test_time_that_does_not_grow_is_found() -> None:
    assert judge(lambda count, asked: 0.08)


def test_one_disturbance_of_the_machine_is_not_held_against_a_candidate() -> None:
    assert not judge(lambda count, asked: 0.01 * count + (0.1 if asked <= 12 else 0.0))


def test_batches_too_short_to_tell_say_nothing() -> None:
    assert not judge(lambda count, asked: 1e-4)


@pytest.mark.parametrize(("lone", "gains"), [(0.0103, False), (0.0104, False), (0.0130, True), (0.0112, True)])
def test_calls_that_cost_less_together_than_alone_are_found(lone: float, gains: bool) -> None:
    """Alone a call costs the incumbent 9.9 ms more than in a batch: the bell. The candidate's cost 0.4 in a batch."""
    beside, exchange = ScriptedExchange(lambda *_: 0.0109), ScriptedExchange(lambda *_: lone)
    result = TimedLaunch(incumbent=[0.001] * 3, candidate=[0.0004] * 3)
    assert find_batch_gain(beside, exchange, result, lambda: [{}] * 8, 1.0) is gains  # type: ignore[arg-type]
