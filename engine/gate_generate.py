"""Free-running generations of both engines, by the path that is served: has the patched one collapsed?

Text equality is no test (a tie may fall either way), so nothing is asked of it; what is compared is what only a broken
engine shows (gate_collapse). Greedy answers, answers drawn with the same seed, and the same answer with its prompt
computed and found in the prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient
from kernelwright.engine.gate_collapse import Generation, describe, find_alarms, find_set_alarms

PROMPTS = (
    "What is the capital of France?",
    "Write three sentences about a lighthouse.",
    "def fibonacci(n):",
    "Translate to Spanish: The weather is beautiful today.",
    "List the first ten square numbers.",
    "Расскажи коротко о море.",
    "Explain to a child why the sky is blue.",
    'Return a JSON object with the keys "name" and "age".',
    "| city | people |\n|---|---|\n",
    "The three laws of motion are",
    "SELECT name, COUNT(*) FROM orders",
    "从前有一位老人，",
    "Proof. Suppose that the square root of two is rational. Then",
    "Dear Sir, I write to you about the matter of the broken window.",
    "1, 1, 2, 3, 5, 8,",
    "<ul>\n  <li>apples</li>\n",
)
GREEDY_TOKENS, DRAWN_TOKENS = 64, 48
DRAWN = 8
AT_ONCE = 8
TEMPERATURE = 0.8
CACHED_TOKENS = 8

Connect = Callable[[], EngineClient]
Answer = tuple[list[int], str, str]


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
    drawn: int = 0
    """Answers drawn at temperature 0.8, prompt and seed the same on both."""
    drawn_identical: int = 0
    cached_drift: tuple[float, float] | None = None
    """Largest change of a token's log-probability when its prompt comes from the prefix cache; incumbent, patched."""


def compare_generations(incumbent: Connect, patched: Connect, max_tokens: int = GREEDY_TOKENS) -> GenerationCheck:
    """Let both engines answer the prompts greedily, eight at a time, and compare the answers; then as the module says.

    Raises EngineFailed.
    """
    answers = [_generate(connect, PROMPTS, max_tokens=max_tokens, temperature=0) for connect in (incumbent, patched)]
    pairs = list(zip(*answers, strict=True))
    divergence = tuple(first_divergence(a[0], b[0]) for a, b in pairs)
    before, after = (tuple(describe(*answer) for answer in arm) for arm in answers)
    alarms = [
        f"{PROMPTS[i]!r}: {alarm}"
        for i, (a, b) in enumerate(zip(before, after, strict=True))
        for alarm in find_alarms(a, b, same_text=divergence[i] is None)
    ]
    sampled = {"max_tokens": min(DRAWN_TOKENS, max_tokens), "temperature": TEMPERATURE, "seed": 7}
    drawn = [_generate(connect, PROMPTS[:DRAWN], **sampled) for connect in (incumbent, patched)]
    return GenerationCheck(
        prompts=len(PROMPTS),
        max_tokens=max_tokens,
        identical=sum(at is None for at in divergence),
        first_divergence=divergence,
        incumbent=before,
        patched=after,
        alarms=(*alarms, *find_set_alarms(before, after)),
        drawn=DRAWN,
        drawn_identical=sum(a[0] == b[0] for a, b in zip(*drawn, strict=True)),
        cached_drift=(cached_drift(incumbent), cached_drift(patched)),
    )


def cached_drift(connect: Connect) -> float:
    """Return the largest change of a greedy token's log-probability, or infinity-like 1e300 where the token changes.

    The prompt is long enough to fill some pages; it is computed first and found in the cache then.
    """
    prompt = "\n".join(PROMPTS[:8])
    with connect() as client:
        client.reset_prefix_cache()
        first, again = (
            client.complete(prompt, max_tokens=CACHED_TOKENS, temperature=0, logprobs=1)["choices"][0]["logprobs"]
            for _ in range(2)
        )
    drift = 0.0
    for token, other, a, b in zip(
        first["tokens"], again["tokens"], first["token_logprobs"], again["token_logprobs"], strict=False
    ):
        drift = max(drift, abs(a - b)) if token == other else 1e300
        if token != other:
            break
    return drift


def first_divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Return the first position where two answers differ; None when they are the same."""
    for at, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return at
    return None if len(a) == len(b) else min(len(a), len(b))


def _generate(connect: Connect, prompts: Sequence[str], **fields: Any) -> list[Answer]:
    def answer(prompt: str) -> Answer:
        with connect() as client:
            tokens = list(client.stream(prompt, **fields))
        ids = [id for token in tokens for id in token.ids]
        finish = next((token.finish for token in reversed(tokens) if token.finish), "none")
        return ids, "".join(token.text for token in tokens), finish

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return list(pool.map(answer, prompts))
