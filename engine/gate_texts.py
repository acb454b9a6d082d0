"""What a gate feeds both engines: five kinds of text of our own, cut into forced tokens for each phase.

Document i is text of kind i mod 5 with its paragraphs rotated i div 5 times, so that more tokens mean other contexts.
All cuts of one document start at its beginning: the same position of the same document comes by in several phases,
which gives the null (the incumbent against itself under another batch composition) without extra work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle
from typing import Literal

KINDS = ("prose", "code", "maths", "scripts", "chat")
PROMPT = 16
RAGGED = (16, 16, 16, 16, 16, 33, 100, 257)
"""Prompt lengths of the eight sequences decoded together: pages begun, full and just passed."""
STRIDE = 128
LENGTHS = (511, 1024, 17, 512, 1000, 768, 264)
"""Prompt lengths of prefill, around page and power-of-two edges; they sum to 4096."""

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Forced:
    """Tokens an engine is made to read: `prompt`, then `forced` one by one (decode only)."""

    document: str
    prompt: tuple[int, ...]
    forced: tuple[int, ...] = ()

    def after(self, position: int) -> int | None:
        """Return the token that follows the one at `position`; None at the end."""
        whole = len(self.prompt) + len(self.forced)
        if position + 1 >= whole:
            return None
        past = position + 1 - len(self.prompt)
        return self.forced[past] if past >= 0 else self.prompt[position + 1]


@dataclass(frozen=True, slots=True)
class Run:
    """One scoring request: sequences that go together."""

    phase: Literal["decode", "prefill"]
    name: str
    """Phase of the gate it counts for: decode, decode_batch8, prefill."""
    sequences: tuple[Forced, ...]

    @property
    def rows(self) -> int:
        if self.phase == "prefill":
            return sum(len(sequence.prompt) for sequence in self.sequences)
        return sum(len(sequence.forced) for sequence in self.sequences)


class Library:
    """The texts, tokenized once. `document(i, n)` is the first n tokens of document i."""

    def __init__(self, encode: Encode) -> None:
        folder = files("kernelwright.engine") / "texts"
        self._texts = {kind: (folder / f"{kind}.txt").read_text(encoding="utf-8").split("\n\n") for kind in KINDS}
        self._encode = encode
        self._tokens: dict[int, list[int]] = {}

    def document(self, index: int, length: int) -> tuple[int, ...]:
        """Return `length` tokens of document `index`; a short text starts over."""
        if index not in self._tokens:
            paragraphs = self._texts[KINDS[index % len(KINDS)]]
            turn = index // len(KINDS) % len(paragraphs)
            self._tokens[index] = self._encode("\n\n".join(paragraphs[turn:] + paragraphs[:turn]))
        tokens = self._tokens[index]
        return tuple((tokens * (length // len(tokens) + 1))[:length])

    def name(self, index: int) -> str:
        return f"{KINDS[index % len(KINDS)]}-{index // len(KINDS)}"


def plan_decode(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield runs of one sequence, kind after kind, until `tokens` tokens are forced; none longer than `longest`."""
    each = min(-(-tokens // len(KINDS)), longest - PROMPT)
    for index in range(-(-tokens // each)):
        whole = library.document(index, PROMPT + each)
        yield Run("decode", "decode", (Forced(library.name(index), whole[:PROMPT], whole[PROMPT:]),))


def plan_batched(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield runs of eight ragged sequences, each going on where the last run ended, until `tokens` are forced."""
    done, turn = 0, 0
    while done < tokens:
        sequences = []
        for index, start in enumerate(RAGGED):
            first = min(start + STRIDE * (turn % 8), longest - STRIDE)
            number = index + len(RAGGED) * (turn // 8)
            whole = library.document(number, first + STRIDE)
            sequences.append(Forced(library.name(number), whole[:first], whole[first:]))
        run = Run("decode", "decode_batch8", tuple(sequences))
        done, turn = done + run.rows, turn + 1
        yield run


def plan_prefill(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield one prompt a run, of many lengths up to `longest`, until `tokens` tokens have come together."""
    done = 0
    for index, length in enumerate(cycle(LENGTHS)):
        if done >= tokens:
            return
        whole = library.document(index, min(length, longest))
        done += len(whole)
        yield Run("prefill", "prefill", (Forced(library.name(index), whole),))
