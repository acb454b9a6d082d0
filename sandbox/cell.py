"""Cell: one cage with a process that has its libraries loaded and forks a runner for each launch.

All launches of a cell are launches of one candidate, so whatever one of them leaves behind can only meet itself; what
it is given is new each time (key, inputs, mailboxes), and all that is believed is measured out here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from typing import Literal

from kernelwright.kernels import allocator
from kernelwright.sandbox.cage import Cage, CagedProcess, Limits, python_argv, tasks_of, waited_seconds_of
from kernelwright.sandbox.log import Log
from kernelwright.sandbox.runner import FORKED, READY

LOAD_TIMEOUT_S = 120.0
RUNNER_LIMITS = Limits(fixed_addresses=True)
HASH_SEED = "0"
"""Where things lie in memory moves the time of a short kernel by 5 %, and Python's hash seed, which decides what is
allocated in which order, has a part in that: all cells lay out the same things alike (`runner._shift_addresses`)."""
SPIN_COUNT = "1000000"
"""How long a kernel's threads wait for each other, awake: some 30 ms here. An engine's threads never sleep while it
decodes; a runner's would between batches, and waking them is slow and not the kernel's."""


class RunnerFailed(Exception):
    """The runner crashed, hung or could not load: a fact about the candidate, answered with a verdict."""

    def __init__(self, how: Literal["crashed", "hung", "refused", "misbehaved"], log: str, trusted: bool) -> None:
        super().__init__(how)
        self.how = how
        self.log = log
        self.trusted = trusted
        """Whether it was our own incumbent: then the tool is broken, not the candidate."""


class Cell:
    """A cage that is loading, then waiting, then forking. `threads` is what the runners' kernels may use."""

    def __init__(
        self, *, cage: Cage, threads: int, env: Mapping[str, str] | None = None, limits: Limits = RUNNER_LIMITS
    ) -> None:
        self.threads = threads
        self._ready = False
        self._last: Fork | None = None
        self._log = Log()
        self._control, theirs = socket.socketpair()
        variables = {
            "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1",
            "GOMP_SPINCOUNT": SPIN_COUNT, "PYTHONHASHSEED": HASH_SEED, **allocator.VARIABLES, **(env or {}),
        }  # fmt: skip
        with theirs:
            self._process = cage.spawn(
                python_argv("kernelwright.sandbox.runner", str(theirs.fileno())),
                fds=[theirs.fileno()], env=variables, limits=limits, stdout=subprocess.DEVNULL, stderr=self._log.writer,
            )  # fmt: skip
        self._log.started()

    @property
    def limits_by(self) -> str:
        return self._process.limits_by

    def await_ready(self, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Block until the libraries are loaded. Raises RunnerFailed."""
        if not self._ready:
            self._hear(READY, timeout_s)
            self._ready = True

    def fork(self, fds: Mapping[str, int]) -> Fork:
        """Start a runner that gets `fds` under their names and waits for its bell.

        The runner before it must have been killed (RuntimeError): the first process waits for its end. Raises
        RunnerFailed.
        """
        self.await_ready()
        if self._last is not None and self._last.pidfd >= 0:
            raise RuntimeError("a cell runs one launch at a time: end the last one first")
        try:
            socket.send_fds(self._control, [json.dumps(list(fds)).encode()], list(fds.values()))
        except OSError:
            raise self._failed("crashed") from None
        self._hear(FORKED, LOAD_TIMEOUT_S)
        first, *children = self._process.inside() or [0]
        if len(children) != 1:  # the one that waits for its bell; nothing of an earlier launch may live on
            raise self._failed("misbehaved")
        self._last = Fork(self._process, children[0], first)
        return self._last

    def log(self) -> str:
        """Return the end of what was printed inside: diagnostics, never evidence."""
        return self._log.text(4000)

    def close(self) -> None:
        self._process.kill()
        self._control.close()
        self._log.close()

    def _hear(self, word: bytes, timeout_s: float) -> None:
        readable, _, _ = select.select([self._control], [], [], timeout_s)
        try:
            heard = self._control.recv(1) if readable else b""
        except OSError:
            heard = b""
        if heard != word:
            raise self._failed("refused" if readable else "hung")

    def _failed(self, how: Literal["crashed", "hung", "refused", "misbehaved"]) -> RunnerFailed:
        return RunnerFailed(how, self.log(), trusted=False)

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Fork:
    """A runner: the child of a cell's first process, and all that it starts itself. Pids are the host's."""

    def __init__(self, caged: CagedProcess, pid: int, parent: int) -> None:
        self._caged, self.pid, self._parent = caged, pid, parent
        self.pidfd = os.pidfd_open(pid)

    def inside(self) -> list[int]:
        """Return the pids of the runner and everything else in the cage but the process that forked it."""
        return [pid for pid in self._caged.inside() if pid != self._parent]

    def num_processes(self) -> int:
        """Return how many live processes the runner has become, itself included."""
        return self._caged.count_running(self.inside())

    def cpu_seconds(self) -> float:
        """Return CPU time used so far by everything in the cage; the process that forks uses none meanwhile."""
        return self._caged.cpu_seconds()

    def waited_seconds(self) -> float:
        """Return how long threads of the runner, and of what it started, were ready so far and had no processor."""
        return sum(waited_seconds_of(pid) for pid in self.inside())

    def keep_to(self, processors: Collection[int]) -> None:
        """Let the runner and what it started run on these processors alone; where that is not ours to say, anywhere."""
        for pid in self.inside():
            for task in tasks_of(pid):
                with contextlib.suppress(OSError):  # each by itself: one that ends must not leave others where they are
                    os.sched_setaffinity(task, processors)

    def stop(self) -> None:
        """Stop everything in the cage, the process that forks included: whatever got hold of it stops, too."""
        self._caged.stop()

    def resume(self) -> None:
        """Let the runner go on; the process that forks stays as it is, or it would wake on the runner's processor."""
        self._caged.resume(but=(self._parent,))

    def kill(self, timeout_s: float = 5.0) -> None:
        """End the runner and all that it started. Safe to call twice."""
        if self.pidfd < 0:
            return
        deadline = time.monotonic() + timeout_s
        self._caged.resume()  # a stopped parent would not take note of the end
        while self.inside() and time.monotonic() < deadline:
            for pid in self.inside():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        os.close(self.pidfd)
        self.pidfd = -1
