"""A thousand requests of every kind, many of which end badly; afterwards nothing is left of them.

One real server with few pages (sequences are preempted all the time), a kernel that is switched on and off, shadow
checks and retries on. What is asked is drawn from a seed; in what order things happen is the machines' affair.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import theilslopes

from kernelwright.engine.client import EngineClient, ServerProcess
from kernelwright.engine.server import ServeOptions

_spec = importlib.util.spec_from_file_location("planting", Path(__file__).with_name("planting.py"))
assert _spec is not None and _spec.loader is not None
planting = importlib.util.module_from_spec(_spec)
sys.modules["planting"] = planting
_spec.loader.exec_module(planting)

DOWN = "q4_1_linear_n64_k96"
REQUESTS, AT_ONCE, PAGES = 1000, 16, 24
MOST_GROWTH = 0.03
"""Of resident memory, over the second half."""


@dataclass
class Soak:
    http: httpx.AsyncClient
    draw: random.Random
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    said: dict[str, Any] = field(default_factory=dict)

    def body(self, **fields: Any) -> dict[str, Any]:
        prompt = [self.draw.randrange(3, 300) for _ in range(self.draw.choice((3, 20, 20, 70)))]
        if self.draw.random() < 0.5:
            prompt = [*range(40, 80), *prompt]  # a beginning that others have, too
        choices = {"temperature": self.draw.choice((0, 0, 1.0)), "max_tokens": self.draw.randrange(1, 24)}
        return {"model": "tiny", "prompt": prompt, **choices, **fields}

    async def post(self, kind: str, body: Any, path: str = "/v1/completions") -> httpx.Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = await self.http.post(path, **content)
        self.statuses[kind, answer.status_code] += 1
        return answer

    async def plain(self) -> None:
        await self.post("plain", self.body(ignore_eos=True))

    async def several(self) -> None:
        await self.post("several", self.body(n=3, temperature=1.0, logprobs=2))

    async def stops(self) -> None:
        await self.post("stops", self.body(stop=["a", "\u00e9", "the"], max_tokens=40))

    async def chat(self) -> None:
        messages = [{"role": "user", "content": "the " * self.draw.randrange(1, 20)}]
        await self.post("chat", {"model": "tiny", "messages": messages, "max_tokens": 9}, "/v1/chat/completions")

    async def same(self) -> None:
        """Always the same question: it has one answer, whatever happens around it."""
        body = {"model": "tiny", "prompt": list(range(100, 140)), "temperature": 0, "max_tokens": 12}
        answer = await self.post("same", body | {"guard": "off", "ignore_eos": True})
        if answer.status_code == 200:
            text = answer.json()["choices"][0]["text"]
            assert self.said.setdefault("same", text) == text

    async def stream(self) -> None:
        async with self.http.stream("POST", "/v1/completions", json=self.body(stream=True)) as answer:
            self.statuses["stream", answer.status_code] += 1
            lines = [line async for line in answer.aiter_lines()]
            assert answer.status_code != 200 or lines[-2] == "data: [DONE]"

    async def hang_up(self) -> None:
        body = self.body(stream=True, max_tokens=100, ignore_eos=True, n=self.draw.choice((1, 2)))
        async with self.http.stream("POST", "/v1/completions", json=body) as answer:
            self.statuses["hang_up", answer.status_code] += 1
            async for _ in answer.aiter_lines():
                if self.draw.random() < 0.2:
                    return

    async def give_up(self) -> None:
        task = asyncio.ensure_future(self.http.post("/v1/completions", json=self.body(max_tokens=100, ignore_eos=True)))
        await asyncio.sleep(self.draw.random() * 0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.statuses["give_up", 499] += 1

    async def too_long(self) -> None:
        answer = await self.post("too_long", self.body(prompt=[5] * 300))
        says = {400: "the context holds 256 tokens", 429: "requests are queued already"}
        assert says[answer.status_code] in answer.json()["error"]["message"]

    async def nonsense(self) -> None:
        bad = (b"{", b"[]", b'{"model": "tiny"}', b"\xff\xfe", b'{"model": "tiny", "prompt": [1, -2]}')
        answer = await self.post("nonsense", self.draw.choice(bad))
        assert answer.status_code == 400 and answer.json()["error"]["message"]

    async def endless(self) -> None:
        """More than the time that a request may take."""
        await self.post("endless", self.body(max_tokens=150, ignore_eos=True, n=6, guard="off"))

    async def flood(self) -> None:
        await self.post("flood", self.body(n=40))

    async def operator(self) -> None:
        answer = await self.post("operator", {"enabled": self.draw.random() < 0.5}, f"/v1/kernels/{DOWN}")
        assert answer.status_code == 200

    async def reset(self) -> None:
        await self.post("reset", {}, "/reset_prefix_cache")

    def next(self) -> Callable[[], Awaitable[None]]:
        often = [self.plain, self.several, self.stops, self.chat, self.same, self.stream, self.hang_up, self.give_up]
        seldom = [self.too_long, self.nonsense, self.endless, self.flood, self.operator, self.reset]
        return self.draw.choice(often if self.draw.random() < 0.8 else seldom)


@asynccontextmanager
async def client_of(server: ServerProcess) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(server.options.uds))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60) as http:
        yield http


async def soak(server: ServerProcess, pids: list[int]) -> tuple[Soak, dict[int, list[int]]]:
    """Send all requests, sixteen at a time; return what came back and resident memory by process, bytes."""
    memory: dict[int, list[int]] = {pid: [] for pid in pids}
    async with client_of(server) as http:
        soaked = Soak(http, random.Random(7))
        work = iter(range(REQUESTS))

        async def worker() -> None:
            for number in work:
                await soaked.next()()
                if number % 10 == 0:
                    for pid in pids:
                        memory[pid].append(resident(pid))

        await asyncio.gather(*[worker() for _ in range(AT_ONCE)])
    return soaked, memory


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def growth(samples: list[int]) -> float:
    """Return by what share memory grew over the second half: the median of all slopes, so that no peak counts."""
    half = np.array(samples[len(samples) // 2 :], float)
    slope = float(theilslopes(half).slope)
    return slope * (len(half) - 1) / float(np.median(half))


def test_a_leak_shows_in_that_statistic_and_noise_does_not() -> None:
    draw = random.Random(3)
    noise = [300_000_000 + draw.randrange(12_000_000) for _ in range(100)]
    noise[70] *= 2
    assert abs(growth(noise)) < MOST_GROWTH / 2
    assert growth([size + at * 400_000 for at, size in enumerate(noise)]) > MOST_GROWTH


@pytest.fixture
def server(tiny_model: Path, tmp_path: Path) -> Any:
    options = ServeOptions(
        model=tiny_model, port=0, threads=1, num_pages=PAGES, max_num_seqs=6, max_queued=36, request_timeout_s=0.4,
        packs=(planting.write_planted_pack(tmp_path / "pack", tiny_model, DOWN, ""),), shadow=0.02,
        guard_action="retry",
    )  # fmt: skip
    with ServerProcess.start(options, log=tmp_path / "log") as server:
        server.wait_until_healthy(240)
        yield server


def wait_until_idle(client: EngineClient) -> dict[str, Any]:
    """Return the engine's facts once what clients left behind has been taken away; it takes a step or two."""
    deadline = time.monotonic() + 30
    while (facts := client.kernels())["running"] + facts["waiting"] and time.monotonic() < deadline:
        time.sleep(0.1)
    return facts


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_nothing_is_left_of_a_thousand_requests(server: ServerProcess, tmp_path: Path) -> None:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    pids = [server.process.pid, int(children)]
    soaked, memory = asyncio.run(soak(server, pids))
    with server.client() as client:
        facts = wait_until_idle(client)
        assert (facts["running"], facts["waiting"], facts["guard"]["watched"]) == (0, 0, 0)
        pages = facts["pages"]
        assert pages["owned"] == pages["references"] == pages["held"] == 0
        assert pages["free"] + pages["cached"] == PAGES
        assert client.reset_prefix_cache() == pages["cached"]
        assert client.kernels()["pages"]["free"] == PAGES
        metrics = client.metrics()
        for name in ("num_requests_running", "num_requests_waiting", "num_requests_open", "kv_cache_usage_perc"):
            assert f"kernelwright:{name} 0.0" in metrics
        assert facts["preemptions"] > 50, "or the pages were too many for this test"
        text = client.complete(list(range(100, 140)), temperature=0, max_tokens=12, ignore_eos=True, guard="off")
        assert text["choices"][0]["text"] == soaked.said["same"]
        seen = {status for _, status in soaked.statuses}
        assert {200, 400, 429, 499, 504} <= seen and 500 not in seen and 503 not in seen, soaked.statuses
        by_kind = {kind for kind, status in soaked.statuses if status == 200}
        assert soaked.statuses["too_long", 400] and soaked.statuses["nonsense", 400]
        assert by_kind >= {"plain", "several", "stops", "chat", "same", "stream", "hang_up", "operator", "reset"}
        (kernel,) = [k for k in client.kernels()["kernels"] if k["definition"] == DOWN]
        assert kernel["trips"] == {} and kernel["checks"]
    for pid in pids:
        assert growth(memory[pid]) < MOST_GROWTH, memory[pid]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
