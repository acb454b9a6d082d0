"""What a load test asks, and when: prompts drawn at random or from a file, requests by a rate or as others end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from kernelwright.profiles.errors import BrokenInput, WrongUse

_FIRST_PLAIN_ID = 0.05
"""Share of the vocabulary left out at its low end, where control tokens and single bytes live."""


class Ask(BaseModel, frozen=True, extra="ignore"):
    """One request. A line of a dataset or of a recorded log has these fields; others are ignored."""

    prompt: str | list[int] | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: int = Field(128, ge=1)
    at: float | None = Field(None, ge=0)
    """Seconds after the first request, in a recorded log."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Ask:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("a request has `prompt` or `messages`")
        return self


class Arrivals(BaseModel, frozen=True, extra="forbid"):
    """When requests are sent. With neither rate nor log: as soon as one of `concurrency` has ended (closed loop)."""

    concurrency: int | None = Field(None, ge=1)
    """Requests under way at most; None: no limit."""
    rate: float | None = Field(None, gt=0)
    """Requests a second on average (open loop); None: all at once, or as the log says."""
    burstiness: float = Field(1.0, gt=0)
    """Shape of the gamma distribution of gaps: 1 is Poisson, less comes in bursts, more is regular."""
    replay_speed: float | None = Field(None, gt=0)
    """How many times faster than it was recorded a log is replayed; None: its times are ignored."""


def draw_asks(count: int, input_len: int, output_len: int, spread: float, vocab: int, seed: int) -> tuple[Ask, ...]:
    """Return `count` requests of random tokens, whose lengths are drawn evenly from those given ± `spread` of them.

    Raises WrongUse for lengths below 1 or a spread outside [0, 1).
    """
    if min(count, input_len, output_len) < 1 or not 0 <= spread < 1:
        raise WrongUse("counts and lengths must be above 0, the spread at least 0 and below 1", "Change them")
    draw = random.Random(seed)

    def length(mean: int) -> int:
        return max(1, draw.randint(round(mean * (1 - spread)), round(mean * (1 + spread))))

    return tuple(
        Ask(prompt=draw_prompt(draw, vocab, length(input_len)), max_tokens=length(output_len)) for _ in range(count)
    )


def draw_prompt(draw: random.Random, vocab: int, length: int) -> list[int]:
    """Return random token ids, none of them a control token: nothing of such a prompt is in a cache."""
    lowest = min(int(vocab * _FIRST_PLAIN_ID), vocab - 1)
    return [draw.randrange(lowest, vocab) for _ in range(length)]


def read_asks(path: Path, count: int | None = None) -> tuple[Ask, ...]:
    """Return the first `count` requests of a JSONL file. Raises BrokenInput with the line that is none."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenInput(f"cannot read the dataset {path}: {error}", "Name a JSONL file") from error
    asks = []
    for number, line in enumerate(lines[:count], 1):
        try:
            asks.append(Ask.model_validate(json.loads(line)))
        except (ValueError, ValidationError) as error:
            what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            remedy = 'Each line is an object like {"prompt": "…", "max_tokens": 64, "at": 0.5}'
            raise BrokenInput(f"{path}, line {number}: {what}", remedy) from error
    if not asks:
        raise BrokenInput(f"{path} holds no request", "Name a JSONL file with a request on each line")
    return tuple(asks)


def schedule(asks: tuple[Ask, ...], arrivals: Arrivals, seed: int) -> Iterator[tuple[float, Ask]]:
    """Yield (seconds after the start, request) in the order they are sent.

    Raises WrongUse when a log is to be replayed that has no times.
    """
    if arrivals.replay_speed is not None:
        if any(ask.at is None for ask in asks):
            raise WrongUse("a request of the log has no `at`: it cannot be replayed", "Give --rate or --concurrency")
        for ask in sorted(asks, key=lambda ask: ask.at or 0.0):
            yield (ask.at or 0.0) / arrivals.replay_speed, ask
        return
    draw, at = random.Random(seed), 0.0
    for ask in asks:
        yield at, ask
        if arrivals.rate is not None:
            at += draw.gammavariate(arrivals.burstiness, 1.0 / (arrivals.rate * arrivals.burstiness))
