"""The front end's side of the wire: every request gets its own queue, one reader fills them."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from kernelwright.engine import wire
from kernelwright.engine.metrics import Metrics

State = Literal["loading", "ready", "draining", "gone"]
SCORE_WINDOW = 16
"""Rows in flight between engine and client: enough to overlap, about 3 MB at a vocabulary of 49,152."""


class EngineGone(RuntimeError):
    """The engine process has ended; nothing more will come."""


class EngineRefused(RuntimeError):
    """The engine refuses a request; `status` is the HTTP status that says whose fault it is."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class EngineLink:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, metrics: Metrics) -> None:
        self._reader = reader
        self._writer = writer
        self.metrics = metrics
        self.state: State = "loading"
        self.configured: wire.Configure | None = None
        self.ready: wire.Ready | None = None
        self.tripped: list[str] = []
        """Definitions whose kernels are off because of what they did in service, as of the last step."""
        self.on_message: Callable[[wire.Configure | wire.Ready | wire.Drain], None] = lambda message: None
        self._queues: dict[str, asyncio.Queue[Any]] = {}
        self._ids = itertools.count()

    @classmethod
    async def open(cls, connection: socket.socket, metrics: Metrics) -> EngineLink:
        """Return a link over a connected unix socket."""
        # The reader's limit is where it stops reading from the socket: a few rows of logits.
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=1 << 20)
        return cls(reader, writer, metrics)

    def close(self) -> None:
        """Close our end, which tells the engine that nobody is left to serve."""
        self._writer.close()

    @property
    def num_requests(self) -> int:
        """Generations and scores that have not ended."""
        return len(self._queues)

    async def pump(self) -> None:
        """Hand out what the engine sends until it closes; then every waiting request is told. Raises WireError."""
        try:
            while (message := await wire.receive_from_engine(self._reader)) is not None:
                self._dispatch(message)
        finally:
            self.state = "gone"
            for queue in self._queues.values():
                queue.put_nowait(None)

    def _dispatch(self, message: wire.ToFrontend) -> None:
        match message:
            case wire.Step():
                self.metrics.note_step(message)
                self.tripped = message.tripped
                for token in message.tokens:
                    self._put(token.id, token)
            case wire.Row() | wire.Ended() | wire.Answer():
                self._put(message.id, message)
            case wire.Configure():
                self.configured = message
                self.on_message(message)
            case wire.Ready():
                self.ready = message
                self.on_message(message)
            case wire.Drain():
                self.state = "draining"
                self.on_message(message)

    def _put(self, id: str, item: Any) -> None:
        queue = self._queues.get(id)
        if queue is not None:  # else: the client has left and the abort is on its way
            queue.put_nowait(item)

    def _send(self, message: wire.ToEngine) -> None:
        if self.state == "gone":
            raise EngineGone("the engine process has ended")
        self._writer.write(wire.encode(message))

    def _open_queue(self) -> tuple[str, asyncio.Queue[Any]]:
        id = f"r{next(self._ids)}"
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._queues[id] = queue
        return id, queue

    def _close_queue(self, id: str, finished: bool) -> None:
        self._queues.pop(id, None)
        if not finished and self.state != "gone":
            self._send(wire.Abort(id))

    async def generate(self, token_ids: list[int], sampling: wire.Sampling) -> AsyncGenerator[wire.Token, None]:
        """Yield the drawn tokens, the last with `finish`; leaving early aborts. Raises EngineGone, EngineRefused.

        EngineRefused (504) also when the server's limit of time for a request has passed.
        """
        id, queue = self._open_queue()
        finished = False
        limit = self.configured.request_timeout_s if self.configured else None
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        try:
            self._send(wire.Submit(id, token_ids, sampling))
            while not finished:
                try:
                    async with asyncio.timeout_at(deadline):
                        item = _expect(await queue.get())
                except TimeoutError as error:
                    raise EngineRefused(f"the answer was not whole after {limit:g} s; it was given up", 504) from error
                finished = isinstance(item, wire.Ended) or item.finish is not None
                if isinstance(item, wire.Ended):
                    raise EngineRefused(item.error or "the engine ended the request", item.status)
                yield item
        finally:
            self._close_queue(id, finished)

    async def score(
        self,
        sequences: list[wire.ForcedSequence],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"] = "logits",
        chunk: int | None = None,
    ) -> AsyncGenerator[wire.Row, None]:
        """Yield rows of logits as fast as the caller takes them. Raises EngineGone, EngineRefused."""
        id, queue = self._open_queue()
        finished = False
        try:
            self._send(wire.Score(id, sequences, phase, SCORE_WINDOW, what, chunk))
            while True:
                item = _expect(await queue.get())
                if isinstance(item, wire.Ended):
                    finished = True
                    if item.error is not None:
                        raise EngineRefused(item.error, item.status)
                    return
                yield item
                self._send(wire.Credit(id, 1))
        finally:
            self._close_queue(id, finished)

    async def ask(self, what: wire.Question, **arguments: Any) -> Any:
        """Return the engine's answer, taken between two of its steps. Raises EngineGone, EngineRefused."""
        id, queue = self._open_queue()
        try:
            self._send(wire.Ask(id, what, arguments))
            answer = _expect(await queue.get())
            if answer.error is not None:
                raise EngineRefused(answer.error, answer.status)
            return answer.value
        finally:
            self._close_queue(id, finished=True)


def _expect(item: Any) -> Any:
    if item is None:
        raise EngineGone("the engine process has ended")
    return item
