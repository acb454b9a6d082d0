"""Jitter: disturb from outside how a runner's threads are scheduled, so that a race does not stay lucky.

Every millisecond or so some threads are moved to a random set of processors and given a random priority. The kernel
does it at our request; the runner cannot refuse (its filter denies it both calls), and what it can see tells it nothing
but that races are being looked for.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence

from kernelwright.sandbox.cage import tasks_of

PAUSE_S = (0.0003, 0.002)
MOST_NICE = 12
MOST_ROUNDS = 50


@contextlib.contextmanager
def jitter(processes: Callable[[], Sequence[int]], seed: int) -> Iterator[None]:
    """Disturb all threads of `processes()` (host pids, asked again each round) until the block ends; then undo it.

    Priorities are left alone where this user may not raise them again.
    """
    shaker = _Shaker(processes, random.Random(seed))
    thread = threading.Thread(target=shaker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        shaker.ended.set()
        thread.join()
        shaker.restore()


class _Shaker:
    def __init__(self, processes: Callable[[], Sequence[int]], rng: random.Random) -> None:
        self.ended = threading.Event()
        self._processes, self._rng = processes, rng
        first = next(iter(processes()), os.getpid())
        self._allowed = sorted(os.sched_getaffinity(first))
        self._nice = os.getpriority(os.PRIO_PROCESS, first)
        self._may_raise = os.geteuid() == 0

    def run(self) -> None:
        while not self.ended.wait(self._rng.uniform(*PAUSE_S)):
            for task in self._tasks():
                if self._rng.random() < 0.5:
                    some = self._rng.sample(self._allowed, self._rng.randint(1, len(self._allowed)))
                    self._place(task, some, min(19, self._nice + self._rng.randint(0, MOST_NICE)))

    def restore(self) -> None:
        """Give every thread the processors and priority of before, also one that a disturbed one starts meanwhile.

        A round that finds all in place is the last: what they start from then on is in place, too. Whoever starts
        threads faster than that, for `MOST_ROUNDS`, keeps the worse places it made for itself.
        """
        for _ in range(MOST_ROUNDS):
            moved = [task for task in self._tasks() if not self._is_in_place(task)]
            for task in moved:
                self._place(task, self._allowed, self._nice)
            if not moved:
                return

    def _tasks(self) -> list[int]:
        return [task for pid in self._processes() for task in tasks_of(pid)]

    def _is_in_place(self, task: int) -> bool:
        with contextlib.suppress(OSError):  # it has ended
            nice = os.getpriority(os.PRIO_PROCESS, task)
            return os.sched_getaffinity(task) == set(self._allowed) and (nice == self._nice or not self._may_raise)
        return True

    def _place(self, task: int, allowed: Sequence[int], nice: int) -> None:
        with contextlib.suppress(OSError):  # it has ended, or is not ours to move
            os.sched_setaffinity(task, allowed)
            if self._may_raise:
                os.setpriority(os.PRIO_PROCESS, task, nice)
