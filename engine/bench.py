"""Load an OpenAI-compatible server and time every request by its client's clock."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from kernelwright.engine.bench_plan import Arrivals, Ask, schedule
from kernelwright.engine.bench_result import Outcome


class Target:
    """The server under load: where it is, what its model is called, what every request asks besides."""

    def __init__(
        self, url: str, model: str, *, uds: Path | None = None, api_key: str | None = None,
        fields: Mapping[str, Any] | None = None, timeout_s: float = 600.0,
    ) -> None:  # fmt: skip
        self.url, self.model, self.uds, self.timeout_s = url, model, uds, timeout_s
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.fields = dict(fields or {})

    def client(self) -> httpx.AsyncClient:
        """Return a client without a limit on connections: the plan says how many requests there are at once."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        transport = httpx.AsyncHTTPTransport(uds=str(self.uds) if self.uds else None, limits=limits)
        timeout = httpx.Timeout(self.timeout_s, connect=30.0)
        return httpx.AsyncClient(
            base_url=self.url, headers=self.headers, transport=transport, timeout=timeout, trust_env=False
        )


async def load(
    target: Target, asks: tuple[Ask, ...], arrivals: Arrivals, seed: int, on_end: Callable[[Outcome], None]
) -> tuple[list[Outcome], float]:
    """Send `asks` as `arrivals` say; return what became of each, in that order, and the seconds it took in all."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(target.client())
        room = asyncio.Semaphore(arrivals.concurrency or len(asks))
        begun = time.perf_counter()

        async def send(ask: Ask) -> Outcome:
            try:
                outcome = await _send(client, target, ask, begun)
            finally:
                room.release()
            on_end(outcome)
            return outcome

        tasks = []
        for at, ask in schedule(asks, arrivals, seed):
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            await room.acquire()
            tasks.append(asyncio.create_task(send(ask)))
        outcomes = list(await asyncio.gather(*tasks))
        return outcomes, time.perf_counter() - begun


async def _send(client: httpx.AsyncClient, target: Target, ask: Ask, begun: float) -> Outcome:
    path, body = _request(target, ask)
    sent = time.perf_counter()
    outcome = Outcome(start=sent - begun)
    try:
        async with client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                outcome.error = f"status {response.status_code}: {text[:200]}"
            else:
                await _listen(response, outcome, sent)
    except httpx.HTTPError as error:
        outcome.error = f"{type(error).__name__}: {error}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # what reading an event in another form raises
        outcome.error = f"an event that cannot be read: {error!r}"
    outcome.latency = outcome.latency if outcome.ttft is not None else time.perf_counter() - sent
    if not outcome.error and outcome.ttft is None:
        outcome.error = "the answer held no token"
    return outcome


async def _listen(response: httpx.Response, outcome: Outcome, sent: float) -> None:
    """Read the events of an answer. Each with a choice counts as a token, until `usage` says how many there were."""
    last, events = sent, 0
    async for line in response.aiter_lines():
        now = time.perf_counter()
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            outcome.error = str(event["error"].get("message", event["error"]))[:200]
            return
        for choice in event.get("choices", ()):
            outcome.text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            if outcome.ttft is None:
                outcome.ttft = now - sent
            else:
                outcome.itls.append(now - last)
            last, events = now, events + 1
            outcome.latency = now - sent
        if spent := event.get("usage"):
            outcome.prompt_tokens, outcome.output_tokens = spent["prompt_tokens"], spent["completion_tokens"]
    outcome.output_tokens = outcome.output_tokens or events


def _request(target: Target, ask: Ask) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "model": target.model, "max_tokens": ask.max_tokens, "stream": True,
        "stream_options": {"include_usage": True}, **target.fields,
    }  # fmt: skip
    if ask.messages is not None:
        return "/v1/chat/completions", body | {"messages": ask.messages}
    return "/v1/completions", body | {"prompt": ask.prompt}
