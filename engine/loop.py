"""The engine's side of the wire: one thread that steps the engine and answers the front end between steps.

With nothing to do the thread blocks on the socket. Generations run together, a batch per step. A score has the engine
to itself: it waits for the generations before it and holds back those after it, so that its hit counts are its own.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from kernelwright.engine import wire
from kernelwright.engine.guard import Guard
from kernelwright.engine.guarding import Guarding
from kernelwright.profiles.errors import WrongUse


class ServedEngine(Protocol):
    """What the loop needs of an engine; `adapt.py` gives LLMEngine this face, tests give it to a scripted one."""

    def submit(self, request: str, token_ids: list[int], sampling: wire.Sampling) -> None: ...
    def step(self) -> list[wire.Token]: ...
    def refused(self) -> list[wire.Ended]: ...
    def abort(self, request: str) -> None: ...
    def retry(self, request: str, keep: int) -> list[int] | None: ...
    def score(
        self,
        sequences: list[wire.ForcedSequence],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"],
        chunk: int | None,
    ) -> Iterator[tuple[int, int, bytes]]: ...
    def kernels(self) -> list[dict[str, Any]]: ...
    def facts(self) -> dict[str, Any]: ...
    def token_text(self, token: int) -> str: ...
    def cache(self) -> wire.Cache: ...
    def reset_prefix_cache(self) -> int: ...
    def switch(self, definition: str, enabled: bool) -> dict[str, int]: ...
    def tripped(self) -> list[str]: ...
    def start_profile(self, path: Path) -> None: ...
    def stop_profile(self) -> Path: ...


@dataclass(slots=True)
class _ScoreJob:
    id: str
    rows: Iterator[tuple[int, int, bytes]]
    credit: int


class EngineLoop:
    def __init__(
        self,
        engine: ServedEngine,
        end: wire.EngineEnd,
        guard: Guard,
        profile_dir: Path | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.engine = engine
        self.end = end
        self.guard = guard
        guard.text_of = guard.text_of or engine.token_text
        self._guarding = Guarding(guard, engine.retry, engine.abort, say)
        self.profile_dir = profile_dir
        self._say = say
        self.draining = False
        self._drain_told = False
        self._active: set[str] = set()
        self._unguarded: set[str] = set()
        self._held: deque[wire.Submit | wire.Score] = deque()
        self._score: _ScoreJob | None = None
        self._profiles = 0
        self._profiling = False

    def run(self, wakeup_fd: int | None = None) -> None:
        """Serve until the front end closes its end. `wakeup_fd` becomes readable on a signal and ends a wait."""
        poll = select.poll()
        poll.register(self.end, select.POLLIN)
        if wakeup_fd is not None:
            poll.register(wakeup_fd, select.POLLIN)
        while self.end.is_open:
            if self.draining and not self._drain_told:
                self._drain_told = True
                self.end.send(wire.Drain())
            if not self._has_work():
                _empty(wakeup_fd, [fd for fd, _ in poll.poll()])
            for message in self.end.receive():
                self._handle(message)
            self._admit()
            if self._active:
                self._step()
            elif self._score is not None and self._score.credit > 0:
                self._send_row(self._score)
            self._admit()  # what has just ended may have been all that the next one waited for

    def _has_work(self) -> bool:
        scores = self._score is not None and self._score.credit > 0
        return bool(self._active) or scores or self.draining != self._drain_told

    def _handle(self, message: wire.ToEngine) -> None:
        match message:
            case wire.Submit() | wire.Score():
                self._held.append(message)
            case wire.Abort(id=id):
                self._abort(id)
            case wire.Credit(id=id, rows=rows):
                if self._score is not None and self._score.id == id:
                    self._score.credit += rows
            case wire.Ask():
                self._answer(message)

    def _admit(self) -> None:
        """Start what is held back, in order of arrival, as far as a score's privacy allows."""
        while self._held and self._score is None:
            head = self._held[0]
            if isinstance(head, wire.Score) and self._active:
                return
            self._held.popleft()
            try:
                if isinstance(head, wire.Score):
                    rows = iter(self.engine.score(head.sequences, head.phase, head.what, head.chunk))
                    self._score = _ScoreJob(head.id, rows, head.credit)
                else:
                    self.engine.submit(head.id, head.token_ids, head.sampling)
                    self._active.add(head.id)
                    if not head.sampling.guarded:
                        self._unguarded.add(head.id)
            except (ValueError, WrongUse) as error:  # the engine refuses the request; it is the client's to mend
                self.end.send(wire.Ended(head.id, str(error), status=400))

    def _step(self) -> None:
        tokens = [sent for token in self.engine.step() for sent in self._watched(token)]
        for refusal in self.engine.refused():
            self._forget(refusal.id)
            self.end.send(refusal)
        for token in tokens:
            if token.finish is not None:
                self._forget(token.id)
        self._tell(tokens)

    def _tell(self, tokens: list[wire.Token]) -> None:
        guard = self.guard
        self.end.send(
            wire.Step(
                tokens, len(self._active), len(self._held), dict(guard.trips), self.engine.cache(),
                dict(guard.retries), self.engine.tripped(),
            )
        )  # fmt: skip

    def _forget(self, id: str) -> None:
        self._active.discard(id)
        self._unguarded.discard(id)
        self._guarding.forget(id)

    def _watched(self, token: wire.Token) -> list[wire.Token]:
        return [token] if token.id in self._unguarded else self._guarding.pass_on(token)

    def _send_row(self, job: _ScoreJob) -> None:
        try:
            row = next(job.rows, None)
        except (ValueError, WrongUse) as error:  # a sequence the engine cannot score, for example one that is too long
            self._score = None
            self.end.send(wire.Ended(job.id, str(error), status=400))
            return
        if row is None:
            self._score = None
            self.end.send(wire.Ended(job.id))
            return
        job.credit -= 1
        self.end.send(wire.Row(job.id, *row))

    def _abort(self, id: str) -> None:
        if id in self._active:
            self.engine.abort(id)
            self._forget(id)
            self._tell([])
        elif self._score is not None and self._score.id == id:
            _close(self._score.rows)
            self._score = None
        else:
            self._held = deque(message for message in self._held if message.id != id)

    def _answer(self, ask: wire.Ask) -> None:
        asked: dict[str, Callable[[], Any]] = {
            "kernels": lambda: {**self.engine.facts(), "guard": self._guard_facts(), "kernels": self.engine.kernels()},
            "switch_kernel": lambda: self._switch(**ask.arguments),
            "start_profile": self._start_profile,
            "stop_profile": self._stop_profile,
            "reset_prefix_cache": lambda: {"forgotten_pages": self.engine.reset_prefix_cache()},
        }
        try:
            self.end.send(wire.Answer(ask.id, asked[ask.what]()))
        except _Refused as refusal:
            self.end.send(wire.Answer(ask.id, error=str(refusal), status=refusal.status))
        except WrongUse as refusal:
            self.end.send(wire.Answer(ask.id, error=f"{refusal.message}. {refusal.remedy}", status=409))
        except OSError as error:  # a trace that cannot be written: the disk is full, the folder is not ours
            self.end.send(wire.Answer(ask.id, error=f"the trace could not be written: {error}", status=507))

    def _guard_facts(self) -> dict[str, Any]:
        counts = {"trips": dict(self.guard.trips), "retries": dict(self.guard.retries)}
        return {"action": self.guard.action, "watched": self.guard.num_watched, **counts}

    def _switch(self, definition: str, enabled: bool) -> dict[str, Any]:
        """Switch a definition's kernels between two steps; a score's rows must all be by the same kernels."""
        if all(kernel["definition"] != definition for kernel in self.engine.kernels()):
            raise _Refused(f"this model has no definition {definition!r}; see /v1/kernels", 404)
        if self._score is not None:
            raise _Refused("a score is being taken; try again when it has ended")
        changed = self.engine.switch(definition, enabled)
        self._say(f"an operator switched {definition} {'on' if enabled else 'off'}")
        self._tell([])
        states = [kernel for kernel in self.engine.kernels() if kernel["definition"] == definition]
        return {"definition": definition, "enabled": enabled, **changed, "kernels": states}

    def _start_profile(self) -> dict[str, str]:
        if self.profile_dir is None:
            raise _Refused("profiling is off: start the server with --profile-dir FOLDER")
        if self._profiling:
            raise _Refused("a profile is being taken already: POST /stop_profile first")
        self.profile_dir.mkdir(parents=True, exist_ok=True)
        self._profiles += 1
        path = self.profile_dir / f"trace-{self._profiles}.json"
        self.engine.start_profile(path)
        self._profiling = True
        return {"trace": str(path)}

    def _stop_profile(self) -> dict[str, str]:
        if not self._profiling:
            raise _Refused("no profile is being taken: POST /start_profile first")
        self._profiling = False
        return {"trace": str(self.engine.stop_profile())}


class _Refused(Exception):
    """The engine's state does not allow what was asked; the message says what to do, `status` is that of HTTP."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status


def _close(rows: Iterator[tuple[int, int, bytes]]) -> None:
    close = getattr(rows, "close", None)
    if close is not None:
        close()


def _empty(fd: int | None, readable: list[int]) -> None:
    if fd is not None and fd in readable:
        os.read(fd, 4096)
