"""Prometheus metrics of the front end; vLLM's names after our prefix, so that its dashboards need one replacement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kernelwright.engine import wire

_PREFIX = "kernelwright:"
_TTFT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ITL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0)

_E2E_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0)
_SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


class Metrics:
    """One registry per application, so that two of them in one process (tests) do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.running = Gauge(_PREFIX + "num_requests_running", "Requests in the engine's batch.", registry=r)
        self.open = Gauge(
            _PREFIX + "num_requests_open", "Generations and scores that the front end waits for.", registry=r
        )
        self.waiting = Gauge(_PREFIX + "num_requests_waiting", "Requests held back behind a score.", registry=r)
        self.prompt_tokens = Counter(_PREFIX + "prompt_tokens", "Prompt tokens received.", registry=r)
        self.generation_tokens = Counter(_PREFIX + "generation_tokens", "Tokens generated.", registry=r)
        self.success = Counter(
            _PREFIX + "request_success", "Requests finished.", labelnames=["finished_reason"], registry=r
        )
        self.ttft = Histogram(
            _PREFIX + "time_to_first_token_seconds",
            "From submission to first token.",
            buckets=_TTFT_BUCKETS,
            registry=r,
        )
        self.itl = Histogram(
            _PREFIX + "inter_token_latency_seconds",
            "Between two tokens of a request.",
            buckets=_ITL_BUCKETS,
            registry=r,
        )
        self.e2e = Histogram(
            _PREFIX + "e2e_request_latency_seconds",
            "From submission to last token.",
            buckets=_E2E_BUCKETS,
            registry=r,
        )
        self.prompt_sizes = Histogram(
            _PREFIX + "request_prompt_tokens", "Prompt tokens of a request.", buckets=_SIZE_BUCKETS, registry=r
        )
        self.answer_sizes = Histogram(
            _PREFIX + "request_generation_tokens", "Tokens of a whole answer.", buckets=_SIZE_BUCKETS, registry=r
        )
        self.aborted = Counter(_PREFIX + "request_aborted", "Requests whose client left or that failed.", registry=r)
        self.rejected = Counter(_PREFIX + "request_rejected", "Requests refused.", labelnames=["status"], registry=r)
        self._engine = _EngineCollector()
        r.register(self._engine)

    def note_step(self, step: wire.Step) -> None:
        self.running.set(step.running)
        self.waiting.set(step.waiting)
        self.generation_tokens.inc(sum(token.token is not None for token in step.tokens))
        self._engine.collapses, self._engine.cache = step.collapses, step.cache
        self._engine.retries = step.retries

    @contextmanager
    def request(self, prompt_tokens: int) -> Iterator[RequestTimer]:
        """Yield the timer of a request that is submitted now; left without a finish it counts as aborted."""
        self.prompt_tokens.inc(prompt_tokens)
        self.prompt_sizes.observe(prompt_tokens)
        timer = RequestTimer(self, time.perf_counter())
        try:
            yield timer
        finally:
            if not timer.finished:
                self.aborted.inc()

    def render(self, kernels: dict[str, Any] | None) -> bytes:
        """Return the exposition text. `kernels` is the engine's answer to `/v1/kernels`, None when it gave none."""
        self._engine.kernels = kernels
        return generate_latest(self.registry)


@dataclass(slots=True)
class RequestTimer:
    metrics: Metrics
    last: float
    has_token: bool = False
    finished: bool = False
    num_tokens: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def note_token(self, finish: str | None) -> None:
        now = time.perf_counter()
        (self.metrics.itl if self.has_token else self.metrics.ttft).observe(now - self.last)
        self.last, self.has_token = now, True
        self.num_tokens += 1
        if finish is not None:
            self.finished = True
            self.metrics.success.labels(finished_reason=finish).inc()
            self.metrics.e2e.observe(now - self.begun)
            self.metrics.answer_sizes.observe(self.num_tokens)


class _EngineCollector(Collector):
    """What only the engine knows, turned into metrics when it is scraped."""

    def __init__(self) -> None:
        self.kernels: dict[str, Any] | None = None
        self.collapses: dict[str, int] = {}
        self.retries: dict[str, int] = {}
        self.cache = wire.Cache()

    def collect(self) -> Iterator[Metric]:
        collapses = CounterMetricFamily(_PREFIX + "guard_trips", "Collapsed generations, by kind.", labels=["kind"])
        for kind, count in self.collapses.items():
            collapses.add_metric([kind], count)
        yield collapses
        retries = CounterMetricFamily(
            _PREFIX + "guard_retries",
            "Collapsed answers that the incumbents decoded again; `mended` speaks against the kernels.",
            labels=["outcome"],
        )
        for outcome, count in self.retries.items():
            retries.add_metric([outcome], count)
        yield retries
        yield from _cache_metrics(self.cache)
        if self.kernels is not None:
            yield from _kernel_metrics(self.kernels)


def _cache_metrics(cache: wire.Cache) -> Iterable[Metric]:
    for name, text, value in (
        ("prefix_cache_queries", "Tokens of admitted requests.", cache.queried),
        ("prefix_cache_hits", "Those of them that were found computed.", cache.found),
        ("num_preemptions", "Requests that gave their pages back and were computed again.", cache.preemptions),
    ):
        yield CounterMetricFamily(_PREFIX + name, text, value=value)
    yield GaugeMetricFamily(
        _PREFIX + "kv_cache_usage_perc", "Fraction of the KV cache's pages that requests hold.", value=cache.used
    )


def _kernel_metrics(answer: dict[str, Any]) -> Iterable[Metric]:
    hits = CounterMetricFamily(
        _PREFIX + "kernel_hits", "Slot calls served by a pack's kernel.", labels=["definition", "candidate"]
    )
    fallbacks = CounterMetricFamily(
        _PREFIX + "kernel_fallbacks",
        "Slot calls served by the incumbent all the same.",
        labels=["definition", "reason"],
    )
    # Kernels of one definition share their fallbacks: the call that none of them took counts once.
    reasons: dict[tuple[str, str], int] = {}
    for kernel in answer["kernels"]:
        if kernel["candidate"] is not None:
            hits.add_metric([kernel["definition"], kernel["candidate"][:12]], kernel["hits"])
        reasons |= {(kernel["definition"], reason): count for reason, count in kernel["fallbacks"].items()}
    for labels, count in reasons.items():
        fallbacks.add_metric(list(labels), count)
    return hits, fallbacks, *_check_metrics(answer["kernels"]), *_engine_metrics(answer)


def _check_metrics(kernels: list[dict[str, Any]]) -> Iterable[Metric]:
    """What live checks of kernels found; absent where the engine makes none."""
    trips = CounterMetricFamily(
        _PREFIX + "kernel_trips",
        "Kernels switched off because of what they did in service, by reason.",
        labels=["definition", "candidate", "reason"],
    )
    checks = CounterMetricFamily(
        _PREFIX + "kernel_shadow_checks",
        "Live calls that the reference computed, too.",
        labels=["definition", "candidate", "phase"],
    )
    live = GaugeMetricFamily(
        _PREFIX + "kernel_live", "Whether a pack's kernel may serve.", labels=["definition", "candidate"]
    )
    for kernel in kernels:
        if kernel["candidate"] is None:
            continue
        name = [kernel["definition"], kernel["candidate"][:12]]
        live.add_metric(name, kernel.get("state") == "live")
        for reason, count in kernel.get("trips", {}).items():
            trips.add_metric([*name, reason], count)
        for phase, count in kernel.get("checks", {}).items():
            checks.add_metric([*name, phase], count)
    return trips, checks, live


def _engine_metrics(answer: dict[str, Any]) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        _PREFIX + "engine_resident_memory_bytes",
        "Resident memory of the engine process.",
        value=answer["resident_bytes"],
    )
    memory = GaugeMetricFamily(
        _PREFIX + "engine_memory_bytes", "Where it is; see /v1/kernels for the words.", labels=["kind"]
    )
    for name, size in answer.get("memory", {}).items():
        memory.add_metric([name.removesuffix("_bytes")], size)
    pages = GaugeMetricFamily(
        _PREFIX + "kv_pages", "Pages of the KV cache: free, cached (found again, owned by nobody), owned.",
        labels=["state"],
    )  # fmt: skip
    for state in ("free", "cached", "owned"):
        if state in answer.get("pages", {}):
            pages.add_metric([state], answer["pages"][state])
    yield from (memory, pages)
    for name, text, value in (
        ("engine_step_seconds", "Time spent in steps.", answer.get("step_seconds")),
        ("shadow_check_seconds", "Of that, in shadow checks.", answer.get("shadow", {}).get("seconds")),
    ):
        if value is not None:
            yield CounterMetricFamily(_PREFIX + name, text, value=value)
