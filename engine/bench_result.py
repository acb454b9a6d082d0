"""What a load test found, with the field names of vLLM's `bench serve`, so that its readers read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelwright.profiles.errors import WrongUse

PERCENTILES = (50, 90, 95, 99)
METRICS = ("ttft", "tpot", "itl", "e2el")
"""Time to first token, per output token behind it, between tokens, and of the whole request."""


@dataclass(slots=True)
class Outcome:
    """One request as its client saw it; seconds."""

    start: float
    """After the first request of the test was due."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft: float | None = None
    latency: float = 0.0
    itls: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""

    @property
    def tpot(self) -> float | None:
        """Seconds per token behind the first; None for an answer of one token."""
        if self.ttft is None or self.output_tokens < 2:
            return None
        return (self.latency - self.ttft) / (self.output_tokens - 1)


def parse_slo(text: str) -> tuple[str, float]:
    """Return (metric, ms) of `ttft:200`. Raises WrongUse."""
    name, _, value = text.partition(":")
    try:
        limit = float(value)
    except ValueError:
        limit = 0.0
    if name not in METRICS or name == "itl" or limit <= 0:
        raise WrongUse(f"{text!r} is no objective", "Write ttft:MS, tpot:MS or e2el:MS")
    return name, limit


def meets(outcome: Outcome, slo: Mapping[str, float]) -> bool:
    """Return whether a request that was answered kept every limit (ms)."""
    seen = {"ttft": outcome.ttft, "tpot": outcome.tpot or 0.0, "e2el": outcome.latency}
    return not outcome.error and all(1e3 * (seen[name] or 0.0) <= limit for name, limit in slo.items())


def summarise(
    outcomes: Sequence[Outcome], duration: float, slo: Mapping[str, float], facts: Mapping[str, Any], detailed: bool
) -> dict[str, Any]:
    """Return the record of a test that took `duration` seconds; with `detailed` also lists, one entry per request."""
    done = [outcome for outcome in outcomes if not outcome.error]
    given, made = sum(o.prompt_tokens for o in done), sum(o.output_tokens for o in done)
    record: dict[str, Any] = dict(facts) | {
        "num_prompts": len(outcomes), "completed": len(done), "failed": len(outcomes) - len(done),
        "duration": duration, "total_input_tokens": given, "total_output_tokens": made,
        "request_throughput": len(done) / duration, "output_throughput": made / duration,
        "total_token_throughput": (given + made) / duration,
        "request_goodput": sum(meets(o, slo) for o in done) / duration if slo else None,
        "max_concurrent_requests": most_at_once(outcomes),
    }  # fmt: skip
    samples = {
        "ttft": [o.ttft for o in done if o.ttft is not None],
        "tpot": [o.tpot for o in done if o.tpot is not None],
        "itl": [gap for o in done for gap in o.itls],
        "e2el": [o.latency for o in done],
    }
    for name in METRICS:
        record |= describe(name, samples[name])
    if detailed:
        record |= {
            "input_lens": [o.prompt_tokens for o in outcomes], "output_lens": [o.output_tokens for o in outcomes],
            "ttfts": [o.ttft or 0.0 for o in outcomes], "itls": [o.itls for o in outcomes],
            "latencies": [o.latency for o in outcomes], "start_times": [o.start for o in outcomes],
            "generated_texts": [o.text for o in outcomes],
        }  # fmt: skip
    errors = [o.error for o in outcomes]
    return record | {"errors": errors if detailed else [error for error in errors if error][:10]}


def describe(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """Return mean, median, deviation and percentiles in ms; None of nothing."""
    if not seconds:
        keys = ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))
        return {f"{key}_{name}_ms": None for key in keys}
    ms = 1e3 * np.array(seconds)
    found = {"mean": float(ms.mean()), "median": float(np.median(ms)), "std": float(ms.std())}
    found |= {f"p{p}": float(np.percentile(ms, p)) for p in PERCENTILES}
    return {f"{key}_{name}_ms": value for key, value in found.items()}


def most_at_once(outcomes: Sequence[Outcome]) -> int:
    """Return how many requests were under way at once, at most."""
    edges = [(o.start, 1) for o in outcomes] + [(o.start + o.latency, -1) for o in outcomes]
    running = most = 0
    for _, step in sorted(edges):
        running += step
        most = max(most, running)
    return most
