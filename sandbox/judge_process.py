"""The judge's own process: it holds the reference and the weights, and says what two arms' results are worth.

Run inside a cage as `python -P -m kernelwright.sandbox.judge_process SOCKET DESK WEIGHTS`, three descriptors. It never
loads candidate code, holds no clock and starts nothing; the reference it executes may come from a user's problem, so it
is kept from the process that holds clock, keys and ledger. Messages are JSON after a length; tensors lie on the desk, a
memory file that only the supervisor and this process map. Protocol:

    ← setup {problem, controls, weight_sets}       → {}
    ← judge {case, tensors, incumbent, candidate}  → {evaluation, reason}
    ← agree {pairs: [[incumbent, candidate] …]}    → {trouble}
    ← lint {}                                      → {report}; runs the incumbent: the process judges nobody after it
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.sandbox.mailbox import Place, view_tensor

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from kernelwright.sandbox.cases import Case
    from kernelwright.sandbox.draw import Tensors
    from kernelwright.sandbox.exchange import Answer

LENGTH = struct.Struct("<Q")


def send_message(control: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    control.sendall(LENGTH.pack(len(body)) + body)


def receive_message(control: socket.socket) -> dict[str, Any] | None:
    """Return the next message, None at the end of the stream."""
    head = _receive(control, LENGTH.size)
    if head is None:
        return None
    body = _receive(control, LENGTH.unpack(head)[0])
    return None if body is None else dict(json.loads(body))


def _receive(control: socket.socket, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        piece = control.recv(count - len(received))
        if not piece:
            return None
        received += piece
    return bytes(received)


@cache
def case_adapter() -> TypeAdapter[Case]:
    """Return what turns a Case to JSON and back."""
    from pydantic import TypeAdapter

    from kernelwright.sandbox.cases import Case

    return TypeAdapter(Case)


class JudgeProcess:
    def __init__(self, desk: mmap.mmap, weights: mmap.mmap) -> None:
        self._desk, self._weights = desk, weights

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one message."""
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "setup": self._set_up, "judge": self._judge, "agree": self._agree, "lint": self._lint,
        }  # fmt: skip
        return handlers[message.pop("op")](**message)

    def _set_up(
        self, problem: dict[str, Any], controls: dict[str, bool], weight_sets: list[dict[str, Any]]
    ) -> dict[str, Any]:
        from kernelwright.kernels.problem import Problem
        from kernelwright.sandbox.controls import Controls
        from kernelwright.sandbox.judge import Judge

        self._controls = Controls(**controls)
        self._problem = Problem.model_validate(problem)
        self._sets = [{name: _tensor(self._weights, place) for name, place in one.items()} for one in weight_sets]
        self._judge_of = Judge(self._problem, self._sets, self._controls)
        return {}

    def _judge(
        self, case: dict[str, Any], tensors: dict[str, Any], incumbent: dict[str, Any], candidate: dict[str, Any]
    ) -> dict[str, Any]:
        evaluation, reason = self._judge_of.judge(
            case_adapter().validate_python(case),
            self._tensors(tensors),
            self._answer_from(incumbent),
            self._answer_from(candidate),
        )
        return {"evaluation": evaluation.model_dump(mode="json"), "reason": reason}

    def _agree(self, pairs: list[list[dict[str, Any]]]) -> dict[str, Any]:
        from kernelwright.sandbox.timing import find_disagreement

        incumbent, candidate = ([self._answer_from(pair[i]) for pair in pairs] for i in (0, 1))
        return {"trouble": find_disagreement(incumbent, candidate, self._controls)}

    def _lint(self) -> dict[str, Any]:
        from kernelwright.sandbox.lint import lint

        del self._judge_of
        drawn = self._problem.model_copy(update={"workloads": ()})  # stored inputs lie outside this cage
        return {"report": lint(drawn, Path(), self._sets, self._controls).model_dump(mode="json")}

    def _answer_from(self, answer: dict[str, Any]) -> Answer:
        from kernelwright.sandbox.exchange import Answer

        return Answer(self._tensors(answer["results"]), answer["trouble"])  # type: ignore[arg-type]

    def _tensors(self, described: dict[str, Any]) -> Tensors:
        return {n: _tensor(self._desk, p) if isinstance(p, list) else p for n, p in described.items()}


def _tensor(memory: mmap.mmap, place: list[Any]) -> Any:
    offset, shape, dtype = place
    return view_tensor(memory, Place(offset, tuple(shape), dtype))


def _map(fd: int) -> mmap.mmap:
    return mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ)


def main() -> None:
    import warnings

    import torch

    import kernelwright.sandbox.judge  # noqa: F401  loaded before the first message, while others work

    warnings.simplefilter(
        "ignore"
    )  # torch warns that what is mapped for reading must not be written; that is the point
    control_fd, desk, weights = (int(word) for word in sys.argv[1:])
    control = socket.socket(fileno=control_fd)
    process = JudgeProcess(_map(desk), _map(weights))
    with torch.inference_mode():
        while (message := receive_message(control)) is not None:
            try:
                reply = process.answer(message)
            except Exception:  # the supervisor tells the user; here nobody could
                reply = {"error": traceback.format_exc()[-4000:]}
            send_message(control, reply)


if __name__ == "__main__":
    main()
