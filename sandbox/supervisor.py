"""Arm: the trusted end of one caged runner. It holds the mailboxes, rings the bell and owns the clock.

No figure here comes from the runner: time is this process's monotonic clock around a doorbell, CPU time is read from
the cgroup or /proc, death is seen on a pidfd.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.sandbox.cell import LOAD_TIMEOUT_S, Cell, RunnerFailed
from kernelwright.sandbox.isolation import Level, measure
from kernelwright.sandbox.mailbox import Doorbell, Layout, Mailbox, Place
from kernelwright.sandbox.runner import GO, HEADER, HEADER_BYTES, PLAN, WARM

if TYPE_CHECKING:
    from kernelwright.sandbox.weights import WeightBox


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a plan: which weight set, and where its tensors lie."""

    slot: int
    inputs: dict[str, Place]
    aliased: dict[str, Place]
    outputs: dict[str, Place]
    scalars: dict[str, float]

    def written(self) -> dict[str, Place]:
        """Return the places that hold results after the call, by output or aliased input name."""
        return {**self.outputs, **self.aliased}


class Arm:
    """One launch: a runner with mailboxes of its own, from start to end. Use as a context manager."""

    def __init__(
        self, cell: Cell, weights: WeightBox, *, mailbox_bytes: int = 64 << 20, seal_inputs: bool = True
    ) -> None:
        self.threads = cell.threads
        self.trusted = False
        self.layout = 0
        self.worked_s = 0.0
        """Seconds between bell and "done", summed: in which the runner worked on calls."""
        self.sealed = seal_inputs
        self._cell, self._weights = cell, weights
        self._copies_late = False
        self.inputs = Mailbox("inputs", HEADER_BYTES + mailbox_bytes)
        self.outputs = Mailbox("outputs", mailbox_bytes)
        self.outputs.seal_size()
        if seal_inputs:
            self.inputs.seal_inputs()
        self._bell, self._reply = Doorbell(), Doorbell()
        self._job, self._code = Mailbox("job", 1), Mailbox("code", 1)
        fds = {"inputs_fd": self.inputs.fd, "outputs_fd": self.outputs.fd, "weights_fd": weights.fd}
        fds |= {"bell_fd": self._bell.fd, "reply_fd": self._reply.fd, "job_fd": self._job.fd, "code_fd": self._code.fd}
        try:
            self._process = cell.fork(fds)
        except RunnerFailed:
            self._close_files()
            raise

    def give(
        self, candidate: Candidate, definition: Definition, contract: SlotContract, binary: bytes | None, trusted: bool,
        layout: int = 0,
    ) -> None:  # fmt: skip
        """Hand the runner its one job. `trusted`: it is our incumbent, whose results may be copied after the bell.

        `layout` says where in its memory things come to lie; runners of one layout lay out the same things alike.
        """
        self.layout = layout
        self.candidate = candidate
        self.trusted = trusted
        self._copies_late = trusted and candidate.language == "python"
        job = _job_json(candidate, definition, contract, self._weights, self.threads, self._copies_late)
        job |= {"has_code": binary is not None, "inputs_writable": not self.sealed, "layout": layout}
        self._job.fill_and_seal(json.dumps(job).encode())
        self._code.fill_and_seal(binary or b"")
        self._bell.ring()

    def await_loaded(self, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Block until every weight set is bound. Raises RunnerFailed."""
        self._wait(timeout_s, "refused")

    def isolation(self) -> tuple[Level, dict[str, str]]:
        """Return level and facts, measured from outside on the runner itself. Raises RunnerFailed when it has ended."""
        try:
            level, facts = measure(self._process.pid)
        except ProcessLookupError:
            raise RunnerFailed("crashed", self.log(), self.trusted) from None
        return level, {**facts, "limits_by": self._cell.limits_by}

    def plan(
        self, calls: Sequence[Call], threads: int | None = None, timeout_s: float = 30.0, *,
        block_order: str | None = None, heap_fill: int = 0,
    ) -> None:  # fmt: skip
        """Tell the runner the places of the calls to come; contents follow with `go`. Raises RunnerFailed.

        `block_order` (forward, reverse, random:SEED): how Triton's interpreter walks a grid from now on. `heap_fill`
        (1 to 255): what fresh and freed heap memory holds during these calls; 0 for as it is, which costs no time.
        """
        said = {"threads": threads or self.threads, "block_order": block_order, "heap_fill": heap_fill}
        body = json.dumps({**said, "calls": [_call_json(c) for c in calls]}).encode()
        if HEADER.size + len(body) > HEADER_BYTES:
            raise ValueError(f"a plan of {len(calls)} calls does not fit the header of {HEADER_BYTES} bytes")
        self.inputs.memory[: HEADER.size] = HEADER.pack(PLAN, len(body))
        self.inputs.memory[HEADER.size : HEADER.size + len(body)] = body
        self._bell.ring()
        self._wait(timeout_s, "crashed")
        self.inputs.memory[: HEADER.size] = HEADER.pack(GO, 0)

    def warm(self, timeout_s: float) -> None:
        """Wake the runner's threads; they stay awake for some tens of milliseconds. Call it before inputs are written.

        Raises RunnerFailed.
        """
        self.inputs.memory[: HEADER.size] = HEADER.pack(WARM, 0)
        self._bell.ring()
        self._wait(timeout_s, "crashed")
        self.inputs.memory[: HEADER.size] = HEADER.pack(GO, 0)

    def go(self, timeout_s: float, stopped: bool = False) -> float:
        """Run the planned calls once; return wall seconds from doorbell to "done". Raises RunnerFailed.

        `stopped`: the arm is, and goes on only once the clock runs: no thread of it can have begun before.
        """
        if self._reply.drain():
            raise RunnerFailed("misbehaved", self.log(), self.trusted)
        start = time.perf_counter()
        self._bell.ring()
        if stopped:
            self.resume()
        answer = self._reply.wait(timeout_s, self._process.pidfd)
        elapsed = time.perf_counter() - start
        self.worked_s += elapsed
        self._judge_answer(answer, "crashed")
        if self._copies_late:
            self._wait(timeout_s, "crashed")
        return elapsed

    def processes(self) -> list[int]:
        """Return the host pids of the runner and all that it started."""
        return self._process.inside()

    def stop(self) -> None:
        self._process.stop()

    def resume(self) -> None:
        self._process.resume()

    def keep_to(self, processors: Collection[int]) -> None:
        self._process.keep_to(processors)

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def waited_seconds(self) -> float:
        return self._process.waited_seconds()

    def num_processes(self) -> int:
        return self._process.num_processes()

    def log(self) -> str:
        """Return the end of what the runner printed: diagnostics, never evidence."""
        return self._cell.log()

    def close(self) -> None:
        self._process.kill()
        self._close_files()

    def _close_files(self) -> None:
        for thing in (self.inputs, self.outputs, self._job, self._code, self._bell, self._reply):
            thing.close()

    def _wait(self, timeout_s: float, how: Literal["crashed", "refused"]) -> None:
        self._judge_answer(self._reply.wait(timeout_s, self._process.pidfd), how)

    def _judge_answer(self, answer: str, how: Literal["crashed", "refused"]) -> None:
        if answer == "timeout":
            raise RunnerFailed("hung", self.log(), self.trusted)
        if answer == "died":
            raise RunnerFailed(how, self.log(), self.trusted)

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lay_out(
    definition: Definition,
    contract: SlotContract,
    axes_of_calls: Sequence[tuple[int, dict[str, int], dict[str, float]]],
) -> tuple[list[Call], int, int]:
    """Place calls (slot, axes, scalars) in the two mailboxes; return them and the bytes needed in each."""
    inside, outside = Layout(HEADER_BYTES), Layout(guard=4096)
    calls = []
    for slot, axes, scalars in axes_of_calls:
        aliased_names = set(contract.aliases.values())
        inputs: dict[str, Place] = {}
        aliased: dict[str, Place] = {}
        outputs: dict[str, Place] = {}
        for name, spec in definition.inputs.items():
            if name in contract.weights or spec.shape is None:
                continue
            layout, table = (outside, aliased) if name in aliased_names else (inside, inputs)
            table[name] = layout.place(definition.shape_of(name, axes), spec.dtype)
        for name, spec in definition.outputs.items():
            if name not in contract.aliases:
                outputs[name] = outside.place(definition.shape_of(name, axes), spec.dtype)
        calls.append(Call(slot, inputs, aliased, outputs, scalars))
    return calls, inside.end, outside.end


def _job_json(
    candidate: Candidate, definition: Definition, contract: SlotContract, weights: WeightBox, threads: int, late: bool
) -> dict[str, Any]:
    # the reference stays outside: a runner gets the interface and nothing that says what is right
    interface = {**definition.model_dump(mode="json"), "reference": "", "description": None}
    return {
        "candidate": candidate.model_dump(mode="json"),
        "definition": interface,
        "contract": contract.model_dump(mode="json"),
        "weight_sets": [{n: p.to_json() for n, p in s.items()} for s in weights.places],
        "threads": threads,
        "copy_late": late,
    }


def _call_json(call: Call) -> dict[str, Any]:
    groups = {"inputs": call.inputs, "aliased": call.aliased, "outputs": call.outputs}
    tables = {key: {n: p.to_json() for n, p in places.items()} for key, places in groups.items()}
    return {"slot": call.slot, "scalars": call.scalars, **tables}
