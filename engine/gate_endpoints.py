"""`gate A B` on two running servers: has B's distribution moved from A's, and is it faster?

Nothing is known of what runs behind them: no cage, no hits. Any OpenAI-compatible server that gives log-probabilities
will do; its likeliest tokens are compared (gate_top, gate_openai). The null is A against itself, alone and eight at
once. Speed is measured in ABBA order; the servers are not restarted, so a lucky launch of one of them is not seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pydantic import BaseModel

from kernelwright.engine.bench import Target, load
from kernelwright.engine.bench_plan import Arrivals, Ask
from kernelwright.engine.bench_result import Outcome
from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.gate_fidelity import PhaseFidelity, summarise
from kernelwright.engine.gate_judge import judge_speed, worst
from kernelwright.engine.gate_limits import LIMITS, Ruling, State, rule
from kernelwright.engine.gate_openai import (
    Endpoint,
    compare_decode,
    compare_prefill,
    prompts_of,
    rows_until_they_part,
)
from kernelwright.engine.gate_row import Row
from kernelwright.engine.gate_speed import EngineComparison, Timings
from kernelwright.sandbox.stats import Launch

CALM, ALONE, TOGETHER, ROUNDS = 1, 4, 13, 4
"""Prompts of each kind for the null, alone and eight at once (64 tokens each), and ABBA rounds of each speed."""
PREFILL_TOKENS = 16384
WORDS = "amber basin cedar delta ember fable grain harbor island juniper kettle lantern meadow needle orchard".split()

Progress = Callable[[str], None]


class EndpointGate(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What the gate says about endpoint `b` beside endpoint `a`."""

    schema_version: Literal[1] = 1
    a: str
    b: str
    model: tuple[str, str]
    precision: str
    """Whose limits were applied: fp32 or half."""
    shown: int
    """Likeliest tokens compared by themselves, all others as one: every KLD is a lower bound."""
    state: State
    reasons: tuple[str, ...]
    fidelity: tuple[PhaseFidelity, ...]
    rulings: dict[str, Ruling]
    decode: EngineComparison | None = None
    prefill: EngineComparison | None = None
    """`launches` are rounds here: the servers were not restarted."""


def gate_endpoints(
    a: tuple[str, EngineClient, Target],
    b: tuple[str, EngineClient, Target],
    *,
    precision: str = "half",
    speed: bool = True,
    prefill_tokens: int = PREFILL_TOKENS,
    prompts: int = TOGETHER,
    on_progress: Progress = lambda text: None,
) -> EndpointGate:
    """Compare two servers, each (name, client, load target). Raises EngineFailed when one does not do as asked."""
    left, right = Endpoint(a[0], a[1]), Endpoint(b[0], b[1])
    on_progress("null: the first server against itself, alone and eight at once")
    few = list(prompts_of(min(ALONE, prompts)))
    null = _against_itself(left, list(prompts_of(CALM)))
    rows: dict[str, list[Row]] = {}
    on_progress("decode, one request at a time")
    rows["decode"] = compare_decode(left, right, few, 1)
    on_progress("decode, eight requests at once")
    rows["decode_batch8"] = compare_decode(left, right, list(prompts_of(prompts)), 8)
    on_progress("prefill of given texts")
    rows["prefill"] = compare_prefill(left, right, prefill_tokens)
    limits = LIMITS[precision]
    fidelity = tuple(summarise(name, found, null, limits.margin[0]) for name, found in rows.items() if found)
    rulings = {phase.phase: rule(phase, limits) for phase in fidelity}
    found: list[tuple[State, str]] = [
        (ruling.state, f"{name}: {reason}") for name, ruling in rulings.items() for reason in ruling.reasons
    ]
    if not rows["prefill"]:
        found.append(("review", "prefill was not compared: a server gives no log-probabilities of prompts (echo)"))
    timings = None
    if speed:
        on_progress("speed, ABBA")
        timings = time_endpoints(a[2], b[2])
        found += judge_speed(timings.compare("decode"), timings.compare("prefill"))
    return EndpointGate(
        a=left.name, b=right.name, model=(left.client.model, right.client.model), precision=precision,
        shown=min(left.shown, right.shown), state=worst([state for state, _ in found]),
        reasons=tuple(reason for _, reason in found), fidelity=fidelity, rulings=rulings,
        decode=timings.compare("decode") if timings else None, prefill=timings.compare("prefill") if timings else None,
    )  # fmt: skip


def _against_itself(server: Endpoint, prompts: list[tuple[str, str]]) -> list[Row]:
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda named: server.continue_greedily(named[1]), prompts))
    alone = [[server.continue_greedily(text) for _, text in prompts] for _ in range(2)]
    return [
        row
        for answers in (alone[1], together)
        for (name, _), one, other in zip(prompts, alone[0], answers, strict=True)
        for row in rows_until_they_part(one, other, name)
    ]


def time_endpoints(a: Target, b: Target, rounds: int = ROUNDS) -> Timings:
    """Time single requests on both by turns: seconds per token of decode, and of prefill by an answer of one token."""
    timings, dice = Timings(), random.Random()
    for kind, words, new in (("decode", 100, 64), ("prefill", 400, 1)):
        for target in (a, b):
            _turn(target, _text(dice, 20), 2)
        for _ in range(rounds):
            seconds: tuple[list[float], list[float]] = ([], [])
            order = dice.choice(((0, 1, 1, 0), (1, 0, 0, 1)))
            prompts = [_text(dice, words) for _ in range(2)]
            seen = [0, 0]
            for which in order:
                outcome = _turn((a, b)[which], prompts[seen[which]], new)
                seen[which] += 1
                seconds[which].append(_seconds(outcome, kind))
            timings.launches[kind].append(Launch(tuple(seconds[0]), tuple(seconds[1])))  # type: ignore[index]
            timings.twice[kind].append(Launch((seconds[0][0],), (seconds[0][1],)))  # type: ignore[index]
    return timings


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


def _turn(target: Target, prompt: str, tokens: int) -> Outcome:
    asks = (Ask(prompt=prompt, max_tokens=tokens),)
    outcomes, _ = asyncio.run(load(target, asks, Arrivals(concurrency=1), 0, lambda outcome: None))
    if outcomes[0].error:
        raise EngineFailed(f"{target.url}: {outcomes[0].error}", "See the server's log")
    return outcomes[0]


def _seconds(outcome: Outcome, kind: str) -> float:
    if kind == "prefill":
        return (outcome.ttft or outcome.latency) / max(1, outcome.prompt_tokens)
    return (outcome.latency - (outcome.ttft or 0.0)) / max(1, outcome.output_tokens - 1)
