"""Free-running greedy generations of both engines: has the patched one collapsed?

Text equality is no test (a tie may fall either way), so nothing is asked of it; what is compared is what only a broken
engine shows. Detectors: longest run of one token, repeated 4-grams (rep-n, arXiv 2310.10226), replacement characters,
token counts and finish reasons where the texts agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient

PROMPTS = (
    "What is the capital of France?",
    "Write three sentences about a lighthouse.",
    "def fibonacci(n):",
    "Translate to Spanish: The weather is beautiful today.",
    "List the first ten square numbers.",
    "Расскажи коротко о море.",
    "Explain to a child why the sky is blue.",
    'Return a JSON object with the keys "name" and "age".',
)
LONGEST_RUN = 16
REPEATED_SHARE = 0.5


class Generation(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    tokens: int
    finish: str
    longest_run: int
    """Longest run of one token."""
    repeated_4grams: float
    """1 − distinct 4-grams ÷ 4-grams."""
    replacement_characters: int


class GenerationCheck(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    prompts: int
    max_tokens: int
    identical: int
    """Prompts whose answers are the same token for token."""
    first_divergence: tuple[int | None, ...]
    """Position of the first differing token, prompt by prompt; None where there is none."""
    incumbent: tuple[Generation, ...]
    patched: tuple[Generation, ...]
    alarms: tuple[str, ...] = ()
    """What the patched engine shows and the incumbent, on the same prompt, does not."""


def compare_generations(
    incumbent: Callable[[], EngineClient], patched: Callable[[], EngineClient], max_tokens: int = 48
) -> GenerationCheck:
    """Let both engines answer the prompts greedily, all prompts together, and compare the answers. Raises
    EngineFailed.
    """
    answers = [_generate(connect, max_tokens) for connect in (incumbent, patched)]
    pairs = list(zip(*answers, strict=True))
    divergence = tuple(first_divergence(a[0], b[0]) for a, b in pairs)
    before, after = (tuple(describe(*answer) for answer in arm) for arm in answers)
    return GenerationCheck(
        prompts=len(PROMPTS),
        max_tokens=max_tokens,
        identical=sum(at is None for at in divergence),
        first_divergence=divergence,
        incumbent=before,
        patched=after,
        alarms=tuple(
            f"{PROMPTS[i]!r}: {alarm}"
            for i, (a, b) in enumerate(zip(before, after, strict=True))
            for alarm in find_alarms(a, b, same_text=divergence[i] is None)
        ),
    )


def find_alarms(incumbent: Generation, patched: Generation, *, same_text: bool) -> list[str]:
    """Return what is wrong with the patched engine's answer, measured against the incumbent's to the same prompt."""
    alarms = []
    if patched.longest_run > max(LONGEST_RUN, incumbent.longest_run):
        alarms.append(f"one token {patched.longest_run} times in a row")
    if patched.repeated_4grams > max(REPEATED_SHARE, 1.5 * incumbent.repeated_4grams):
        alarms.append(f"{patched.repeated_4grams:.0%} of its 4-grams are repeats")
    if patched.replacement_characters > incumbent.replacement_characters + 2:
        alarms.append(f"{patched.replacement_characters} characters that are no text")
    if same_text and (patched.finish, patched.tokens) != (incumbent.finish, incumbent.tokens):
        alarms.append(f"same text, but it ended with {patched.finish!r} instead of {incumbent.finish!r}")
    return alarms


def describe(ids: Sequence[int], text: str, finish: str) -> Generation:
    """Return the detectors' values of one answer."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return Generation(
        tokens=len(ids),
        finish=finish,
        longest_run=max((len(list(run)) for _, run in groupby(ids)), default=0),
        repeated_4grams=1 - len(set(grams)) / len(grams) if grams else 0.0,
        replacement_characters=text.count("\ufffd"),
    )


def first_divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Return the first position where two answers differ; None when they are the same."""
    for at, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return at
    return None if len(a) == len(b) else min(len(a), len(b))


def _generate(connect: Callable[[], EngineClient], max_tokens: int) -> list[tuple[list[int], str, str]]:
    def answer(prompt: str) -> tuple[list[int], str, str]:
        with connect() as client:
            tokens = list(client.stream(prompt, max_tokens=max_tokens, temperature=0))
        ids = [id for token in tokens for id in token.ids]
        finish = next((token.finish for token in reversed(tokens) if token.finish), "none")
        return ids, "".join(token.text for token in tokens), finish

    with ThreadPoolExecutor(max_workers=len(PROMPTS)) as pool:
        return list(pool.map(answer, PROMPTS))
