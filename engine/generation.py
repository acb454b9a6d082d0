"""From drawn tokens to pieces of text: detokenised, cut at stop strings, several choices merged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from kernelwright.engine import wire
from kernelwright.engine.detokenize import Detokenizer, StopSearch
from kernelwright.engine.link import EngineLink
from kernelwright.engine.tools import CallForm


class Text(Protocol):
    """What the front end needs of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]: ...
    @property
    def call_form(self) -> CallForm | None:
        """How the chat template has calls written; None when it knows no tools."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of one choice: the text that may be shown because of it, and why the choice ends, if it does."""

    choice: int
    token: wire.Token
    text: str
    finish: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that is asked for."""

    index: int
    prompt: list[int]
    sampling: wire.Sampling


async def speak(link: EngineLink, text: Text, choice: Choice, stops: tuple[str, ...]) -> AsyncGenerator[Piece, None]:
    """Yield a piece for every token of `choice`, the last one with `finish`. A stop string aborts the engine's part."""
    detokenizer, search = Detokenizer(text.decode), StopSearch(stops)
    tokens = link.generate(choice.prompt, choice.sampling)
    with link.metrics.request(len(choice.prompt)) as timer:
        async with aclosing(tokens):
            async for token in tokens:
                piece = _piece(choice, token, detokenizer, search)
                timer.note_token(piece.finish)
                yield piece
                if piece.finish is not None:
                    return


def _piece(choice: Choice, token: wire.Token, detokenizer: Detokenizer, search: StopSearch) -> Piece:
    shown = search.feed(detokenizer.feed(token.token)) if token.token is not None else ""
    if token.finish is not None and search.found is None:
        shown += search.feed(detokenizer.flush())
    if search.found is not None:
        return Piece(choice.index, token, shown, "stop")
    if token.finish is not None:
        shown += search.flush()
    return Piece(choice.index, token, shown, token.finish)


async def speak_all(
    link: EngineLink, text: Text, choices: list[Choice], stops: tuple[str, ...]
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of all choices as they come. One failing choice ends them all with its exception."""
    if len(choices) == 1:
        async with aclosing(speak(link, text, choices[0], stops)) as pieces:
            async for piece in pieces:
                yield piece
        return
    queue: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()

    async def relay(choice: Choice) -> None:
        try:
            async with aclosing(speak(link, text, choice, stops)) as pieces:
                async for piece in pieces:
                    queue.put_nowait(piece)
        except Exception as error:  # handed to the consumer, who raises it
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(relay(choice)) for choice in choices]
    try:
        open_choices = len(tasks)
        while open_choices:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                open_choices -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def log_softmax_at(logits: bytes, token: int, num_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the log-probability of `token` and the `num_top` likeliest tokens with theirs.

    `logits` are vocab × float32, little-endian; the sum is taken in float64.
    """
    import numpy as np

    row = np.frombuffer(logits, dtype="<f4").astype(np.float64)
    row -= row.max()
    row -= np.log(np.exp(row).sum())
    if num_top == 0:
        return float(row[token]), []
    best = np.argpartition(row, -num_top)[-num_top:]
    best = best[np.argsort(-row[best], kind="stable")]
    return float(row[token]), [(int(i), float(row[i])) for i in best]


async def prompt_logprobs(link: EngineLink, prompt: list[int], num_top: int) -> list[wire.Token]:
    """Return the prompt's tokens with their log-probabilities; the first has none, nothing comes before it."""
    scored = [wire.Token(id="", token=prompt[0])]
    rows = link.score([wire.ForcedSequence(prompt)], "prefill")
    async with aclosing(rows):
        async for row in rows:
            if row.position + 1 < len(prompt):
                token = prompt[row.position + 1]
                logprob, top = log_softmax_at(row.logits, token, num_top)
                scored.append(wire.Token("", token, None, logprob, top))
    return scored


def completion_logprobs(text: Text, tokens: Sequence[wire.Token], start: int) -> dict[str, Any]:
    """Return OpenAI's `logprobs` object of a completion; `start` is the offset of the first token's text."""
    offsets, at = [], start
    drawn = [token for token in tokens if token.token is not None]
    names = [_name(text, token.token) for token in drawn if token.token is not None]
    for name in names:
        offsets.append(at)
        at += len(name)
    return {
        "tokens": names,
        "token_logprobs": [token.logprob for token in drawn],
        "top_logprobs": [
            {_name(text, id): logprob for id, logprob in token.top} if token.logprob is not None else None
            for token in drawn
        ],
        "text_offset": offsets,
    }


def chat_logprobs(text: Text, tokens: Sequence[wire.Token]) -> dict[str, Any]:
    """Return OpenAI's `logprobs` object of a chat choice."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        return {"token": _name(text, token), "logprob": logprob, "bytes": list(text.token_bytes(token))}

    return {
        "content": [
            {**entry(token.token, token.logprob), "top_logprobs": [entry(id, p) for id, p in token.top]}
            for token in tokens
            if token.token is not None
        ]
    }


def _name(text: Text, token: int) -> str:
    """Return how a single token reads; a part of a character reads as U+FFFD, a special token as its own name."""
    return text.token_bytes(token).decode("utf-8", "replace")
