"""OpenAI's response objects, whole or as server-sent events, from the pieces of a generation."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
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
        return {"created": self.created, "model": self.request.model}

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
    echoed = asked.echoed[index] if asked.echoed else []
    start = 0 if echoed else len(asked.echoes[index])
    choice: dict[str, Any] = {"index": index}
    if asked.is_chat:
        choice["message"] = {"role": "assistant", "content": content, "refusal": None}
    else:
        choice["text"] = content
    choice["logprobs"] = asked.logprobs(text, echoed + [piece.token for piece in said], start)
    choice["finish_reason"] = said[-1].finish if said else "length"
    if asked.request.return_token_ids:
        choice["token_ids"] = _drawn(said)
    return choice


async def events(asked: Asked, text: Text, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[bytes, None]:
    """Yield one server-sent event per token, even when its text is empty, so that a client's clock sees every token."""
    counts, cached = [0] * len(asked.choices), [0] * len(asked.choices)
    lengths = [0] * len(asked.choices)
    begun: set[int] = set()
    envelope = asked.envelope(chunk=True)
    if asked.request.includes_usage:
        envelope["usage"] = None
    try:
        async for piece in pieces:
            is_first = piece.choice not in begun
            begun.add(piece.choice)
            choice = _event_choice(asked, text, piece, is_first, lengths[piece.choice])
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
    if asked.is_chat:
        choice["delta"] = {"role": "assistant", "content": piece.text} if is_first else {"content": piece.text}
    else:
        choice["text"] = echo + piece.text
    choice["logprobs"] = asked.logprobs(text, [piece.token], length + len(echo))
    choice["finish_reason"] = piece.finish
    if asked.request.return_token_ids:
        choice["token_ids"] = _drawn([piece])
    return choice


def _drawn(pieces: list[Piece]) -> list[int]:
    return [piece.token.token for piece in pieces if piece.token.token is not None]


def sse(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
