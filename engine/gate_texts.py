"""What a gate feeds both engines: windows of five kinds of text, cut into forced tokens for each phase.

A kind is one stream of tokens, its documents one after the other. A window is `prompt` (context that is only read) and
`forced` tokens; contexts reach from a few tokens to all that the model takes, since an error may begin at some length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle
from typing import Literal

KINDS = ("prose", "code", "mathematics", "scripts", "chat")
PROMPT = 16
WINDOWS = 10
"""Windows of the decode runs at batch 1; each has another length of context."""
SHORT = (16, 17, 31, 33, 64, 100, 257)
"""Contexts of seven of the eight sequences decoded together: pages begun, full and just passed."""
EVEN = (128,) * 8
UNEVEN = (232, 200, 168, 136, 104, 80, 64, 40)
"""Forced tokens of the eight: with the uneven ones the batch shrinks from eight to one."""
LENGTHS = (511, 1024, 17, 512, 1000, 768, 264)
"""Prompt lengths of prefill, around page and power-of-two edges; they sum to 4096. Behind them comes a long one."""
LONG = 8192

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
    """Phase of the gate it counts for: decode, decode_batch8, prefill; or a mode."""
    sequences: tuple[Forced, ...]
    chunk: int | None = None
    """Tokens that a prefill step takes at most; None = the engine's own budget."""

    @property
    def rows(self) -> int:
        if self.phase == "prefill":
            return sum(len(sequence.prompt) for sequence in self.sequences)
        return sum(len(sequence.forced) for sequence in self.sequences)


class Library:
    """The texts by kind, tokenized when first asked for."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._tokens: dict[str, list[int]] = {}

    def stream(self, kind: str) -> list[int]:
        """Return the tokens of all documents of `kind`."""
        if kind not in self._tokens:
            self._tokens[kind] = self._encode("\n\n".join(read_documents(kind).values()))
        return self._tokens[kind]

    @property
    def size(self) -> int:
        """Tokens of all kinds together."""
        return sum(len(self.stream(kind)) for kind in KINDS)

    def window(self, kind: str, start: int, prompt: int, forced: int = 0) -> Forced:
        """Return the window of `kind` from token `start` on; the stream starts over at its end."""
        stream = self.stream(kind)
        first, length = start % len(stream), prompt + forced
        tokens = tuple((stream[first : first + length] + stream * (length // len(stream) + 1))[:length])
        return Forced(f"{kind}@{first}", tokens[:prompt], tokens[prompt:])


def read_documents(kind: str) -> dict[str, str]:
    """Return the shipped documents of `kind` by name."""
    folder = files("kernelwright.engine") / "texts" / kind
    return {
        item.name.removesuffix(".txt"): item.read_text(encoding="utf-8")
        for item in sorted(folder.iterdir(), key=lambda item: item.name)
        if item.name.endswith(".txt")
    }


def plan_decode(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield runs of one sequence until `tokens` are forced, contexts growing geometrically up to what fits."""
    each = min(-(-tokens // WINDOWS), longest - PROMPT)
    count = -(-tokens // each)
    for index in range(count):
        context = _spread(PROMPT, longest - each, index, count)
        kind = KINDS[index % len(KINDS)]
        window = library.window(kind, 4099 * (index // len(KINDS)), context, each)
        yield Run("decode", "decode", (window,))


def plan_batched(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield runs of eight ragged sequences until `tokens` are forced; one of each run has a long context."""
    done, turn = 0, 0
    while done < tokens:
        lengths = UNEVEN if turn % 4 == 1 else EVEN
        contexts = (_spread(longest - EVEN[0], 512, turn % 4, 4), *SHORT)
        windows = []
        for index, (context, forced) in enumerate(zip(contexts, lengths, strict=True)):
            forced = min(forced, longest - PROMPT)
            start = 2053 * turn + 509 * (index // len(KINDS)) + 1021
            windows.append(library.window(KINDS[index % len(KINDS)], start, min(context, longest - forced), forced))
        run = Run("decode", "decode_batch8", tuple(windows))
        done, turn = done + run.rows, turn + 1
        yield run


def plan_prefill(library: Library, tokens: int, longest: int) -> Iterator[Run]:
    """Yield one prompt a run, of many lengths up to `longest`, until `tokens` tokens have come together.

    The streams are walked from their beginnings, so that nothing is read twice before everything was.
    """
    done, at = 0, dict.fromkeys(KINDS, 0)
    for index, length in enumerate(cycle((*LENGTHS, LONG))):
        if done >= tokens:
            return
        kind = KINDS[index % len(KINDS)]
        window = library.window(kind, at[kind], min(length, longest))
        at[kind] += len(window.prompt)
        done += len(window.prompt)
        yield Run("prefill", "prefill", (window,))


def probes(library: Library, forced: int, longest: int = 1024) -> tuple[Forced, ...]:
    """Return eight short windows of all kinds, for what needs few tokens: modes, hidden states, liveness."""
    contexts: Sequence[int] = (PROMPT, *SHORT)
    return tuple(
        library.window(KINDS[i % len(KINDS)], 7001 + 997 * i, max(1, min(context, longest - forced)), forced)
        for i, context in enumerate(contexts)
    )


def _spread(first: int, last: int, index: int, count: int) -> int:
    """Return value `index` of `count` from `first` to `last`, evenly on a logarithmic scale."""
    first, last = max(first, 1), max(last, 1)
    return round(first * math.pow(last / first, index / max(1, count - 1)))
