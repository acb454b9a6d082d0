"""Runners: starts caged runners for one problem, some ahead of their candidate, so that a search need not wait.

A runner started ahead has loaded libraries and nothing else; each serves exactly one candidate and is then gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.cage import Cage
from kernelwright.sandbox.supervisor import Arm, RunnerFailed
from kernelwright.sandbox.weights import WeightBox


class Runners:
    def __init__(
        self, problem: Problem, box: WeightBox, *, cage: Cage, threads: int, env: Mapping[str, str],
        mailbox_bytes: int, seal_inputs: bool,
    ) -> None:  # fmt: skip
        self._problem, self._box, self._cage = problem, box, cage
        self._threads, self._env = threads, env
        self._mailbox_bytes, self._seal_inputs = mailbox_bytes, seal_inputs
        self._spares: list[Arm] = []

    def prepare(self, count: int = 1) -> None:
        """Start runners until `count` are waiting; they load while the caller does something else."""
        while len(self._spares) < count:
            self._spares.append(self._spawn())

    def settle(self) -> None:
        """Wait until every waiting runner has done loading, so that nothing disturbs a measurement."""
        for spare in list(self._spares):
            try:
                spare.await_ready()
            except RunnerFailed:
                self._spares.remove(spare)
                spare.close()

    def launch(self, candidate: Candidate, binary: bytes | None) -> Arm:
        """Hand `candidate` to a waiting runner, or to a new one, and return without waiting."""
        arm = self._spares.pop(0) if self._spares else self._spawn()
        trusted = candidate == self._problem.incumbent
        arm.give(candidate, self._problem.definition, self._problem.contract, binary, trusted)
        return arm

    def start(self, candidate: Candidate, binary: bytes | None) -> Arm:
        """Launch and wait until it has loaded. Raises RunnerFailed."""
        arm = self.launch(candidate, binary)
        try:
            arm.await_loaded()
        except RunnerFailed:
            arm.close()
            raise
        return arm

    @contextlib.contextmanager
    def start_pair(self, candidate: Candidate, binary: bytes | None) -> Iterator[tuple[Arm, Arm]]:
        """Start the incumbent's runner and the candidate's side by side. Raises RunnerFailed."""
        with self.launch(self._problem.incumbent, None) as incumbent, self.launch(candidate, binary) as arm:
            incumbent.await_loaded()
            arm.await_loaded()
            yield incumbent, arm

    def close(self) -> None:
        while self._spares:
            self._spares.pop().close()

    def _spawn(self) -> Arm:
        return Arm(
            self._box, cage=self._cage, threads=self._threads, env=self._env, mailbox_bytes=self._mailbox_bytes,
            seal_inputs=self._seal_inputs,
        )  # fmt: skip
