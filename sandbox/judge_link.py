"""JudgeLink: the supervisor's end of the judge's process. It sends bytes and takes what the judge says of them."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, KernelwrightError
from kernelwright.sandbox.cage import Cage, Limits, python_argv
from kernelwright.sandbox.cases import Case
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Tensors
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.judge_process import case_adapter, receive_message, send_message
from kernelwright.sandbox.lint import LintReport
from kernelwright.sandbox.mailbox import Layout, Mailbox
from kernelwright.sandbox.verdict import Evaluation
from kernelwright.sandbox.weights import WeightBox

if TYPE_CHECKING:
    import torch

JUDGE_LIMITS = Limits(memory_bytes=16 << 30, cpu_seconds=None)
SLOWEST_ANSWER_S = 300.0
DESK_BYTES = 4 << 30
"""Room for the largest case with two results. Memory is taken only for what is laid on it."""


class JudgeLink:
    """A judge in a cage of its own, for one problem. It loads while the caller does other things."""

    def __init__(self, problem: Problem, box: WeightBox, controls: Controls, *, cage: Cage, threads: int) -> None:
        self._desk = Mailbox("desk", DESK_BYTES)
        self._desk.seal_inputs()  # the judge reads; only we write
        self._log = tempfile.TemporaryFile()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(SLOWEST_ANSWER_S)
        fds = [theirs.fileno(), self._desk.fd, box.fd]
        # it waits asleep: threads of a judge that spin would be timed with the candidate
        env = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
        with theirs:
            self._process = cage.spawn(
                python_argv("kernelwright.sandbox.judge_process", *(str(fd) for fd in fds)),
                fds=fds, env=env, limits=JUDGE_LIMITS, stdout=subprocess.DEVNULL, stderr=self._log,
            )  # fmt: skip
        self._setup: dict[str, Any] | None = {
            "op": "setup",
            "problem": problem.model_dump(mode="json"),
            "controls": asdict(controls),
            "weight_sets": [{n: p.to_json() for n, p in one.items()} for one in box.places],
        }

    @property
    def pid(self) -> int | None:
        """The judge's pid as the host numbers it."""
        return self._process.inner_pid()

    def judge(self, case: Case, tensors: Tensors, incumbent: Answer, candidate: Answer) -> tuple[Evaluation, str]:
        """Return the evaluation of one case and a coarse reason, '' when it passed.

        Raises BrokenInput when the problem's reference fails, KernelwrightError when the judge itself does.
        """
        layout = Layout()
        message = {
            "op": "judge",
            "case": case_adapter().dump_python(case, mode="json"),
            "tensors": self._put(layout, tensors),
            "incumbent": self._put_answer(layout, incumbent),
            "candidate": self._put_answer(layout, candidate),
        }
        reply = self._ask(message)
        return Evaluation.model_validate(reply["evaluation"]), str(reply["reason"])

    def find_disagreement(self, incumbent: Sequence[Answer], candidate: Sequence[Answer]) -> str:
        """Return '' when all results of a timed batch agree, else the trouble. Every element is compared."""
        layout = Layout()
        pairs = [
            [self._put_answer(layout, a), self._put_answer(layout, b)]
            for a, b in zip(incumbent, candidate, strict=True)
        ]
        return str(self._ask({"op": "agree", "pairs": pairs})["trouble"])

    def lint(self) -> LintReport:
        """Return what is wrong with the problem. This judge is used up by it: it has run the incumbent."""
        return LintReport.model_validate(self._ask({"op": "lint"})["report"])

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._desk.close()
        self._log.close()

    def _put_answer(self, layout: Layout, answer: Answer) -> dict[str, Any]:
        return {"trouble": answer.trouble, "results": self._put(layout, answer.results)}

    def _put(self, layout: Layout, tensors: Mapping[str, torch.Tensor | float]) -> dict[str, Any]:
        described: dict[str, Any] = {}
        for name, value in tensors.items():
            if isinstance(value, int | float):
                described[name] = value
                continue
            place = layout.place(tuple(value.shape), str(value.dtype).removeprefix("torch."))
            self._desk.write(place, value)
            described[name] = place.to_json()
        return described

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._setup is not None:
            setup, self._setup = self._setup, None
            self._exchange(setup)
        return self._exchange(message)

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            send_message(self._control, message)
            reply = receive_message(self._control)
        except OSError as error:
            raise KernelwrightError(f"the judge does not answer: {error}", "free memory, then run it again") from error
        if reply is None:
            size = os.fstat(self._log.fileno()).st_size
            said = os.pread(self._log.fileno(), 2000, max(0, size - 2000)).decode(errors="replace")
            raise KernelwrightError(f"the judge ended: {said.strip()}", "free memory, then run it again")
        if "error" in reply:
            raise _explain(str(reply["error"]))
        return reply

    def __enter__(self) -> JudgeLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _explain(trace: str) -> KernelwrightError:
    said = trace.strip().splitlines()[-1]
    if 'File "reference.py"' in trace:
        return BrokenInput(
            f"the problem's reference cannot be run on these inputs: {said}",
            "run the reference by itself on inputs of these shapes, and mend it",
        )
    return KernelwrightError(f"the judge failed: {trace.strip()}", "report it with the problem's folder")


def lint_caged(
    problem: Problem, weights: Sequence[Mapping[str, torch.Tensor]], *, cage: Cage, threads: int
) -> LintReport:
    """Return what lint says of a problem from elsewhere, whose code runs in a cage. Raises as `JudgeLink.judge`."""
    box = WeightBox(weights)
    try:
        with JudgeLink(problem, box, Controls(), cage=cage, threads=threads) as link:
            return link.lint()
    finally:
        box.close()
