"""What any OpenAI-compatible server says of its tokens: greedy answers and given texts with log-probabilities.

Decode is compared along greedy answers of both, token by token, as long as the texts are the same: there both have
decoded the very same context. Prefill is compared on given texts (`echo`), where a server does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.gate_row import Row
from kernelwright.engine.gate_texts import KINDS, read_documents
from kernelwright.engine.gate_top import Top, compare_top

MOST_SHOWN, SHOWN = 20, 5
CONTEXT_CHARACTERS = (60, 150, 400, 900, 2000)
ANSWER_TOKENS = 64
PREFILL_CHARACTERS = 3000


@dataclass
class Endpoint:
    """A server under comparison and what it was found able to do."""

    name: str
    client: EngineClient
    shown: int = MOST_SHOWN
    """Likeliest tokens asked for; fewer where the server refuses."""

    def continue_greedily(self, prompt: str, tokens: int = ANSWER_TOKENS) -> list[Top]:
        """Return what is said of each token of the greedy answer. Raises EngineFailed."""
        answer = self._complete(prompt, max_tokens=tokens, temperature=0)
        return _read(answer["choices"][0].get("logprobs"))

    def read(self, text: str) -> list[Top] | None:
        """Return what is said of each token of `text` but the first; None where the server does not echo."""
        try:
            answer = self._complete(text, max_tokens=1, temperature=0, echo=True)
        except EngineFailed:
            return None
        tops = _read(answer["choices"][0].get("logprobs"))
        return tops[1:-1] if len(tops) > 2 else None

    def _complete(self, prompt: str, **fields: Any) -> dict[str, Any]:
        try:
            return self.client.complete(prompt, logprobs=self.shown, **fields)
        except EngineFailed as refusal:
            if self.shown == SHOWN or " 400" not in str(refusal):
                raise
            self.shown = SHOWN
            return self.client.complete(prompt, logprobs=self.shown, **fields)


def _read(logprobs: dict[str, Any] | None) -> list[Top]:
    if not logprobs or not logprobs.get("top_logprobs"):
        raise EngineFailed("the server's answer holds no log-probabilities", "Start it with log-probabilities allowed")
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    return [Top(top or {}, token, logprob) for token, logprob, top in rows]


def prompts_of(count_of_each: int) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of prompts of many lengths from the shipped texts, kind after kind."""
    number = count()
    for turn in range(count_of_each):
        for kind in KINDS:
            text = "\n\n".join(read_documents(kind).values())
            length = CONTEXT_CHARACTERS[next(number) % len(CONTEXT_CHARACTERS)]
            start = 7919 * (turn + 1) % max(1, len(text) - length)
            yield f"{kind}@{start}", text[start : start + length]


def compare_decode(a: Endpoint, b: Endpoint, prompts: Sequence[tuple[str, str]], at_once: int) -> list[Row]:
    """Return rows along the greedy answers to `prompts`, `at_once` of them under way together."""
    with ThreadPoolExecutor(at_once) as pool:
        base, new = (list(pool.map(arm.continue_greedily, [text for _, text in prompts])) for arm in (a, b))
    return [
        row
        for (name, _), one, other in zip(prompts, base, new, strict=True)
        for row in rows_until_they_part(one, other, name)
    ]


def rows_until_they_part(base: Sequence[Top], new: Sequence[Top], name: str) -> list[Row]:
    """Return rows of two answers up to the first token that differs, and of that one: till there both read the same."""
    rows = []
    for position, (one, other) in enumerate(zip(base, new, strict=False)):
        rows.append(compare_top(one, other, name, position))
        if one.token != other.token:
            break
    return rows


def compare_prefill(a: Endpoint, b: Endpoint, tokens: int) -> list[Row]:
    """Return rows of given texts until `tokens` are compared; none where a server does not echo prompts.

    Raises EngineFailed when the servers cut the same text into other tokens.
    """
    rows: list[Row] = []
    for kind in (kind for _ in count() for kind in KINDS):
        text = "\n\n".join(read_documents(kind).values())
        start = 104729 * (len(rows) + 1) % max(1, len(text) - PREFILL_CHARACTERS)
        chunk = text[start : start + PREFILL_CHARACTERS]
        base, new = a.read(chunk), b.read(chunk)
        if base is None or new is None:
            return []
        if [top.token for top in base] != [top.token for top in new]:
            raise EngineFailed("the servers cut the same text into other tokens", "Compare servers of one model")
        pairs = zip(base, new, strict=True)
        rows += [compare_top(x, y, f"{kind}@{start}", position) for position, (x, y) in enumerate(pairs, 1)]
        if len(rows) >= tokens:
            return rows
    return rows
