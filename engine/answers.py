"""OpenAI's response objects, whole or as server-sent events, from the pieces of a generation."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kernelwright.engine import wire
from kernelwright.engine.generation import (
    Choice,
    Piece,
    Text,
    chat_logprobs,
    completion_logprobs,
)
from kernelwright.engine.link import EngineGone, EngineRefused
from kernelwright.engine.openai_api import ChatRequest, CompletionRequest, error_body, usage
from kernelwright.engine.tool_calls import Call, CallReader
from kernelwright.engine.tools import ToolPlan

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request after it has been tokenised and found to fit."""

    request: ChatRequest | CompletionRequest
    choices: list[Choice]
    echoes: list[str]
    """Per choice, the text that precedes the generated one; empty strings without `echo`."""
    prompt_tokens: int
    echoed: list[list[wire.Token]] = field(default_factory=list)
    """Per choice, the prompt's tokens with log-probabilities, when they were asked for."""
    fingerprint: str | None = None
    plan: ToolPlan | None = None
    """The tools that the answer may call; None: it calls none."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def is_chat(self) -> bool:
        return isinstance(self.request, ChatRequest)

    def cached(self, per_choice: list[int]) -> int:
        """Return how many of `prompt_tokens` were found computed: each prompt counts as its first choice saw it."""
        return sum(per_choice[:: self.request.n])

    def envelope(self, chunk: bool) -> dict[str, Any]:
        if not self.is_chat:
            return {"id": f"cmpl-{self.id}", "object": "text_completion"} | self._origin()
        return {
            "id": f"chatcmpl-{self.id}",
            "object": "chat.completion.chunk" if chunk else "chat.completion",
        } | self._origin()

    def _origin(self) -> dict[str, Any]:
        origin = {"created": self.created, "model": self.request.model}
        return origin | ({"system_fingerprint": self.fingerprint} if self.fingerprint else {})

    def reader(self) -> CallReader | None:
        """Return what tells the calls of one choice from its words."""
        if self.plan is None:
            return None
        # where the answer may be JSON of another form, or a tagged call is held to a schema, a bare object is no call
        bare = self.plan.form == "llama3" or (self.request.form_field is None and not self.plan.is_strict)
        return CallReader(self.plan.names, self.plan.most, bare)

    def logprobs(self, text: Text, tokens: list[wire.Token], start: int) -> dict[str, Any] | None:
        if isinstance(self.request, ChatRequest):
            return chat_logprobs(text, tokens) if self.request.logprobs else None
        return completion_logprobs(text, tokens, start) if self.request.logprobs is not None else None


async def whole(asked: Asked, text: Text, pieces: AsyncGenerator[Piece, None]) -> dict[str, Any]:
    """Return the response object once every choice has ended."""
    spoken: list[list[Piece]] = [[] for _ in asked.choices]
    async for piece in pieces:
        spoken[piece.choice].append(piece)
    body = asked.envelope(chunk=False)
    body["choices"] = [_whole_choice(asked, text, index, said) for index, said in enumerate(spoken)]
    cached = [said[0].token.cached if said else 0 for said in spoken]
    body["usage"] = usage(asked.prompt_tokens, sum(len(_drawn(said)) for said in spoken), asked.cached(cached))
    return body


def _whole_choice(asked: Asked, text: Text, index: int, said: list[Piece]) -> dict[str, Any]:
    content = asked.echoes[index] + "".join(piece.text for piece in said)
    finish = said[-1].finish if said else "length"
    echoed = asked.echoed[index] if asked.echoed else []
    start = 0 if echoed else len(asked.echoes[index])
    choice: dict[str, Any] = {"index": index}
    if asked.is_chat:
        choice["message"], finish = _message(asked, content, finish)
    else:
        choice["text"] = content
    choice["logprobs"] = asked.logprobs(text, echoed + [piece.token for piece in said], start)
    choice["finish_reason"] = finish
    if asked.request.return_token_ids:
        choice["token_ids"] = _drawn(said)
    return choice


def _message(asked: Asked, text: str, finish: str | None) -> tuple[dict[str, Any], str | None]:
    """Return the message that `text` is, and why it ends."""
    reader = asked.reader()
    if reader is None:
        return {"role": "assistant", "content": text, "refusal": None}, finish
    heard = [reader.feed(text), reader.flush()]
    content = "".join(part.content for part in heard)
    calls: list[Call] = []
    for call in (call for part in heard for call in part.calls):
        if call.id is not None:
            calls.append(call)
        else:
            calls[call.index] = replace(calls[call.index], arguments=calls[call.index].arguments + call.arguments)
    message = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if not calls:
        return message, finish
    listed = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return message | {"tool_calls": listed}, _finish(reader, finish)


def _finish(reader: CallReader | None, finish: str | None) -> str | None:
    return "tool_calls" if reader is not None and reader.num_calls and finish == "stop" else finish


async def events(asked: Asked, text: Text, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[bytes, None]:
    """Yield one server-sent event per token, even when its text is empty, so that a client's clock sees every token."""
    counts, cached = [0] * len(asked.choices), [0] * len(asked.choices)
    lengths = [0] * len(asked.choices)
    begun: set[int] = set()
    readers = [asked.reader() for _ in asked.choices]
    envelope = asked.envelope(chunk=True)
    if asked.request.includes_usage:
        envelope["usage"] = None
    try:
        async for piece in pieces:
            is_first = piece.choice not in begun
            begun.add(piece.choice)
            choice = _event_choice(asked, text, piece, is_first, lengths[piece.choice])
            if asked.is_chat:
                choice |= _delta(piece, is_first, readers[piece.choice])
            counts[piece.choice] += len(_drawn([piece]))
            cached[piece.choice] = piece.token.cached
            lengths[piece.choice] += len(piece.text) + (len(asked.echoes[piece.choice]) if is_first else 0)
            yield sse(envelope | {"choices": [choice]})
        if asked.request.includes_usage:
            spent = usage(asked.prompt_tokens, sum(counts), asked.cached(cached))
            yield sse(envelope | {"choices": [], "usage": spent})
    except (EngineGone, EngineRefused) as error:
        # The status line has left already; the error travels as the last event.
        yield sse(error_body(str(error), getattr(error, "status", 503)))
    yield DONE


def _event_choice(asked: Asked, text: Text, piece: Piece, is_first: bool, length: int) -> dict[str, Any]:
    echo = asked.echoes[piece.choice] if is_first else ""
    choice: dict[str, Any] = {"index": piece.choice}
    if not asked.is_chat:
        choice["text"] = echo + piece.text
    choice["logprobs"] = asked.logprobs(text, [piece.token], length + len(echo))
    choice["finish_reason"] = piece.finish
    if asked.request.return_token_ids:
        choice["token_ids"] = _drawn([piece])
    return choice


def _delta(piece: Piece, is_first: bool, reader: CallReader | None) -> dict[str, Any]:
    """Return what a piece adds to a chat's message: words, or parts of calls, one entry for each call."""
    content, parts = piece.text, dict[int, dict[str, Any]]()
    if reader is not None:
        heard = [reader.feed(piece.text), *([reader.flush()] if piece.finish is not None else [])]
        content = "".join(part.content for part in heard)
        for call in (call for part in heard for call in part.calls):
            entry = parts.setdefault(call.index, {"index": call.index, "function": {"arguments": ""}})
            entry["function"]["arguments"] += call.arguments
            if call.id is not None:
                entry |= {"id": call.id, "type": "function"}
                entry["function"]["name"] = call.name
    delta: dict[str, Any] = {"role": "assistant"} if is_first else {}
    if content or reader is None:
        delta["content"] = content
    elif is_first:
        delta["content"] = None
    if parts:
        delta["tool_calls"] = list(parts.values())
    return {"delta": delta, "finish_reason": _finish(reader, piece.finish)}


def _drawn(pieces: list[Piece]) -> list[int]:
    return [piece.token.token for piece in pieces if piece.token.token is not None]


def sse(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
