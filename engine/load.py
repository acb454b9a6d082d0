"""Load: how fast a server answers, by the clock of its HTTP client. The numbers that are published come from here.

    decode tok/s   = (new_tokens − 1) / (t_last − t_first), one request at a time
    prefill tok/s  = prompt_tokens / TTFT, the answer being one token

Prompts are random token ids, drawn anew for each request from a seed, so that nothing can be answered from a cache.
Every request asks to ignore the end-of-text token and is checked: as many tokens as asked for, finish reason `length`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from pydantic import BaseModel

from kernelwright.engine.bench_plan import draw_prompt
from kernelwright.engine.client import EngineClient, EngineFailed, TimedToken


class Measurement(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One request as its client saw it. Seconds are the client's."""

    kind: Literal["decode", "prefill", "mixed"]
    prompt_tokens: int
    new_tokens: int
    ttft_s: float
    """From sending the request to its first token."""
    total_s: float
    """From sending the request to its last token."""
    itl_s: tuple[float, ...] = ()
    """Gaps between tokens."""

    @property
    def decode_tok_s(self) -> float:
        """(new_tokens − 1) / (t_last − t_first); raises ValueError for an answer of one token."""
        if self.new_tokens < 2:
            raise ValueError("one token has no decode rate")
        return (self.new_tokens - 1) / (self.total_s - self.ttft_s)

    @property
    def prefill_tok_s(self) -> float:
        return self.prompt_tokens / self.ttft_s

    @property
    def tok_s(self) -> float:
        """The rate this kind of measurement is about."""
        return self.prefill_tok_s if self.kind == "prefill" else self.decode_tok_s


class Throughput(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Many requests at once."""

    concurrency: int
    seconds: float
    """From the first request sent to the last token received."""
    requests: tuple[Measurement, ...]

    @property
    def output_tok_s(self) -> float:
        return sum(request.new_tokens for request in self.requests) / self.seconds

    @property
    def total_tok_s(self) -> float:
        return sum(request.new_tokens + request.prompt_tokens for request in self.requests) / self.seconds

    @property
    def ttft_p50_s(self) -> float:
        return median(request.ttft_s for request in self.requests)

    @property
    def itl_p50_s(self) -> float:
        return median(gap for request in self.requests for gap in request.itl_s)


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a request is, in tokens."""

    prompt_tokens: int
    new_tokens: int


def measure_decode(
    client: EngineClient, prompt_tokens: int = 128, new_tokens: int = 128, repeats: int = 5, *, seed: int = 0
) -> list[Measurement]:
    """Return `repeats` decode measurements at batch 1, one request after the other. Raises EngineFailed."""
    if new_tokens < 2:
        raise ValueError(f"a decode rate needs at least two new tokens, not {new_tokens}")
    shapes = [Shape(prompt_tokens, new_tokens)] * repeats
    return [_measure(client, "decode", shape, prompt) for shape, prompt in _prompts(client, shapes, seed)]


def measure_prefill(
    client: EngineClient, prompt_tokens: int = 512, repeats: int = 5, *, seed: int = 0
) -> list[Measurement]:
    """Return `repeats` prefill measurements at batch 1, one request after the other. Raises EngineFailed."""
    shapes = [Shape(prompt_tokens, 1)] * repeats
    return [_measure(client, "prefill", shape, prompt) for shape, prompt in _prompts(client, shapes, seed)]


def measure_mixed(
    connect: Callable[[], EngineClient], shapes: Sequence[Shape], concurrency: int, *, seed: int = 0
) -> Throughput:
    """Send requests of `shapes`, `concurrency` at a time, each on a connection of its own. Raises EngineFailed."""
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    with connect() as client:
        work = list(_prompts(client, shapes, seed))

    def run(item: tuple[Shape, list[int]]) -> Measurement:
        with connect() as client:
            client.card()  # the connection and the model's name are not part of the measurement
            return _measure(client, "mixed", *item)

    begun = time.perf_counter()
    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        requests = tuple(pool.map(run, work))
    return Throughput(concurrency=concurrency, seconds=time.perf_counter() - begun, requests=requests)


def _prompts(client: EngineClient, shapes: Sequence[Shape], seed: int) -> Iterator[tuple[Shape, list[int]]]:
    vocab = int(client.card()["vocab_size"])
    generator = random.Random(seed)
    for shape in shapes:
        yield shape, draw_prompt(generator, vocab, shape.prompt_tokens)


def _measure(
    client: EngineClient, kind: Literal["decode", "prefill", "mixed"], shape: Shape, prompt: list[int]
) -> Measurement:
    begun = time.perf_counter()
    tokens = list(client.stream(prompt, max_tokens=shape.new_tokens, temperature=0, ignore_eos=True))
    _check(tokens, shape)
    times = [token.at for token in tokens]
    return Measurement(
        kind=kind,
        prompt_tokens=shape.prompt_tokens,
        new_tokens=shape.new_tokens,
        ttft_s=times[0] - begun,
        total_s=times[-1] - begun,
        itl_s=tuple(after - before for before, after in pairwise(times)),
    )


def _check(tokens: list[TimedToken], shape: Shape) -> None:
    count = sum(len(token.ids) for token in tokens)
    finish = tokens[-1].finish if tokens else None
    if count != shape.new_tokens or finish != "length":
        message = f"asked for {shape.new_tokens} tokens, got {count} and finish reason {finish!r}"
        raise EngineFailed(message, "The server did not ignore the end of text: its numbers cannot be compared")
