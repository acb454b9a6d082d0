"""Runners: launches for one problem. A cell that has loaded its libraries ahead makes a launch a matter of a fork.

A cell serves one candidate and is then gone; the incumbent has two of its own, which stay (two, so that it can be timed
against itself in cages as separate as those of a candidate).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.cage import Cage
from kernelwright.sandbox.cell import Cell, RunnerFailed
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.supervisor import Arm
from kernelwright.sandbox.weights import WeightBox


class Runners:
    def __init__(
        self, problem: Problem, box: WeightBox, *, cage: Cage, threads: int, env: Mapping[str, str],
        mailbox_bytes: int, controls: Controls,
    ) -> None:  # fmt: skip
        self._problem, self._box, self._cage = problem, box, cage
        self._threads, self._env = threads, env
        self._mailbox_bytes, self._controls = mailbox_bytes, controls
        self._spares: list[Cell] = []
        self._incumbents: list[Cell] = []
        self._candidate: tuple[str, Cell] | None = None

    def prepare(self, count: int = 1) -> None:
        """Start cells until `count` are waiting; they load while the caller does something else."""
        while len(self._spares) < count:
            self._spares.append(self._spawn())

    def settle(self) -> None:
        """Wait until every waiting cell has done loading, so that nothing disturbs a measurement."""
        for spare in list(self._spares):
            try:
                spare.await_ready()
            except RunnerFailed:
                self._spares.remove(spare)
                spare.close()

    @contextlib.contextmanager
    def start(self, candidate: Candidate, binary: bytes | None, beside: Arm | None = None) -> Iterator[Arm]:
        """Launch the candidate and wait until it has loaded. Raises RunnerFailed.

        Its memory layout is drawn by lot, or that of the arm `beside` it: what luck it is, both have.
        """
        with self._launch(self._cell_of(candidate), candidate, binary, _draw_layout(beside)) as arm:
            arm.await_loaded()
            yield arm

    @contextlib.contextmanager
    def start_incumbent(self, number: int = 0, beside: Arm | None = None) -> Iterator[Arm]:
        """Launch the incumbent in its own cell `number` (0 or 1) and wait until it has loaded. Raises RunnerFailed.

        Its memory layout is drawn by lot, or that of the arm `beside` it.
        """
        while len(self._incumbents) <= number:
            self._incumbents.append(self._take_spare())
        with self._launch(self._incumbents[number], self._problem.incumbent, None, _draw_layout(beside)) as arm:
            arm.await_loaded()
            yield arm

    def close(self) -> None:
        self.retire()
        for cells in (self._spares, self._incumbents):
            while cells:
                cells.pop().close()

    def retire(self) -> None:
        """End the cell of the last candidate."""
        if self._candidate:
            self._candidate[1].close()
            self._candidate = None

    def _launch(self, cell: Cell, candidate: Candidate, binary: bytes | None, layout: int) -> Arm:
        trusted = candidate == self._problem.incumbent
        try:
            arm = Arm(
                cell, self._box, mailbox_bytes=self._mailbox_bytes, seal_inputs=self._controls.protect_inputs
            )  # fmt: skip
        except RunnerFailed as failure:
            raise RunnerFailed(failure.how, failure.log, trusted) from None
        arm.give(candidate, self._problem.definition, self._problem.contract, binary, trusted, layout)
        return arm

    def _cell_of(self, candidate: Candidate) -> Cell:
        digest = digest_of(candidate)
        if self._candidate is None or self._candidate[0] != digest:
            self.retire()
            self._candidate = (digest, self._take_spare())
        return self._candidate[1]

    def _take_spare(self) -> Cell:
        return self._spares.pop(0) if self._spares else self._spawn()

    def _spawn(self) -> Cell:
        return Cell(cage=self._cage, threads=self._threads, env=self._env)


def _draw_layout(beside: Arm | None) -> int:
    return beside.layout if beside else secrets.randbits(32)
