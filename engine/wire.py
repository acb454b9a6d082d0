"""The wire between the engine process and its HTTP front end: msgpack frames over a unix socket.

A frame is a little-endian u32 length and that many bytes of msgpack: one tagged message. Both ends are ours and are
joined by a socket pair made before the front end is started, so nobody else can speak on it; a frame that does not
decode is a broken tool, not bad input, and raises `WireError`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

_LENGTH = struct.Struct("<I")
MAX_FRAME = 256 * 1024 * 1024
"""Bytes. Far above one row of logits (vocabulary × 4); a larger length means that the stream has lost its step."""


class WireError(RuntimeError):
    """The two processes disagree about the stream; both should end."""


class Configure(msgspec.Struct, tag=True, frozen=True):
    """First frame, engine to front end, before the model is loaded."""

    api_key: str | None
    max_queued: int
    request_timeout_s: float | None = None
    """Seconds from submission to last token after which a generation is given up; None: never."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The engine has loaded the model and checked its kernels; requests may come."""

    served_name: str
    max_model_len: int
    vocab_size: int
    num_layers: int = 0
    hidden_size: int = 0
    fingerprint: str = ""
    """Of everything that an answer depends on; OpenAI's `system_fingerprint`."""
    tokenizer: dict[str, Any] = {}
    """The `tokenizer.*` metadata of the weights file, so that the front end neither reads the file nor needs torch."""


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Accept nothing new, finish what runs, then close the connection."""


class Sampling(msgspec.Struct, tag=True, frozen=True):
    """How to draw tokens; the wire's form of the engine's SamplingParams."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit)."""
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    """How many alternatives to report beside the drawn token's log-probability; None = no log-probabilities."""
    guarded: bool = True
    """Whether the guard watches it."""
    grammar: str | None = None
    """What the answer may be (`grammar.py`); None: anything."""


class Submit(msgspec.Struct, tag=True, frozen=True):
    id: str
    token_ids: list[int]
    sampling: Sampling


class Abort(msgspec.Struct, tag=True, frozen=True):
    """Forget a generation or a score; unknown ids are fine (it may just have finished)."""

    id: str


class ForcedSequence(msgspec.Struct, frozen=True):
    prompt: list[int]
    forced: list[int] = []


class Score(msgspec.Struct, tag=True, frozen=True):
    id: str
    sequences: list[ForcedSequence]
    phase: Literal["decode", "prefill"]
    credit: int
    """Rows the engine may send before it hears `Credit`: the back-pressure of a slow reader."""
    what: Literal["logits", "hidden"] = "logits"
    chunk: int | None = None
    """Tokens that a prefill step takes at most; None = the engine's own budget."""


class Credit(msgspec.Struct, tag=True, frozen=True):
    id: str
    rows: int


Question = Literal["kernels", "start_profile", "stop_profile", "reset_prefix_cache", "switch_kernel"]


class Ask(msgspec.Struct, tag=True, frozen=True):
    id: str
    what: Question
    arguments: dict[str, Any] = {}


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One drawn token of one request; several travel in one `Step`."""

    id: str
    token: int | None
    """None when the request ended without one: its logits were not finite, or it was aborted."""
    finish: str | None = None
    """None | stop | length | abort | error | collapse."""
    logprob: float | None = None
    top: list[tuple[int, float]] = []
    cached: int = 0
    """Tokens of the prompt that were found computed."""


class Cache(msgspec.Struct, frozen=True, array_like=True):
    """The engine's pages, in numbers since it started."""

    queried: int = 0
    """Tokens of admitted requests, and how many of them were found computed."""
    found: int = 0
    used: float = 0.0
    """Fraction of the pages that requests hold."""
    preemptions: int = 0


class Step(msgspec.Struct, tag=True, frozen=True):
    """What one engine step produced, all requests together."""

    tokens: list[Token]
    running: int
    waiting: int
    collapses: dict[str, int] = {}
    """Guard trips since the engine started, by kind."""
    cache: Cache = Cache()
    retries: dict[str, int] = {}
    """Answers that the incumbents decoded again, by outcome."""
    tripped: list[str] = []
    """Definitions whose kernels are off because of what they did in service."""


class Row(msgspec.Struct, tag=True, frozen=True):
    id: str
    sequence: int
    position: int
    logits: bytes
    """vocab (of hidden states: layers · H) × float32, little-endian."""


class Ended(msgspec.Struct, tag=True, frozen=True):
    """A score is complete, or (with `error`) a generation or a score failed."""

    id: str
    error: str | None = None
    status: int = 500


class Answer(msgspec.Struct, tag=True, frozen=True):
    id: str
    value: Any = None
    error: str | None = None
    status: int = 500


ToEngine = Submit | Abort | Score | Credit | Ask
ToFrontend = Configure | Ready | Drain | Step | Row | Ended | Answer

_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_to_frontend: msgspec.msgpack.Decoder[ToFrontend] = msgspec.msgpack.Decoder(ToFrontend)


def encode(message: ToEngine | ToFrontend) -> bytes:
    """Return the frame of `message`. Raises WireError above MAX_FRAME."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise WireError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


def _checked_length(header: bytes | bytearray | memoryview) -> int:
    length: int = _LENGTH.unpack_from(header)[0]
    if length > MAX_FRAME:
        raise WireError(f"a frame announces {length} bytes, over the limit of {MAX_FRAME}: the stream is out of step")
    return length


class EngineEnd:
    """The engine's blocking end. `send` blocks when the front end does not read; `receive` never blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = bytearray()
        self.is_open = True

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, message: ToFrontend) -> None:
        """Send one frame; when the front end is gone, mark the end closed and drop the message."""
        try:
            self.connection.sendall(encode(message))
        except (BrokenPipeError, ConnectionResetError):
            self.is_open = False

    def receive(self) -> list[ToEngine]:
        """Return every complete message that has arrived. Sets `is_open` to False at end of stream."""
        self._fill()
        return list(self._split())

    def _fill(self) -> None:
        while True:
            try:
                chunk = self.connection.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                self.is_open = False
                return
            self._buffer += chunk

    def _split(self) -> Iterator[ToEngine]:
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _checked_length(self._buffer)
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                yield _to_engine.decode(body)
            except msgspec.DecodeError as error:
                raise WireError(f"the front end sent a frame that does not decode: {error}") from error


async def receive_from_engine(reader: asyncio.StreamReader) -> ToFrontend | None:
    """Return the engine's next message, None at end of stream. Raises WireError on a frame that does not decode."""
    try:
        header = await reader.readexactly(_LENGTH.size)
        body = await reader.readexactly(_checked_length(header))
        return _to_frontend.decode(body)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    except msgspec.DecodeError as error:
        raise WireError(f"the engine sent a frame that does not decode: {error}") from error
