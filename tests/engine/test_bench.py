"""`kernelwright bench`: what it asks, when, and what it says of the answers."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.engine.bench import Target, load
from kernelwright.engine.bench_plan import Arrivals, Ask, draw_asks, read_asks, schedule
from kernelwright.engine.bench_result import Outcome, describe, meets, most_at_once, parse_slo
from kernelwright.engine.scripted import ScriptedEngine, serve_scripted
from kernelwright.profiles.errors import BrokenInput, WrongUse
from kernelwright.tui.cli import main
from tests.engine.test_frontend import is_up, wait_for

# What `vllm bench serve --save-result` writes, of those that make sense for any server.
VLLM_NAMES = {
    "date", "backend", "model_id", "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration",
    "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput",
    "output_throughput", "total_token_throughput", "max_concurrent_requests", "errors",
    *(f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl", "e2el")),
}  # fmt: skip


@pytest.fixture
def served() -> Iterator[tuple[ScriptedEngine, str]]:
    engine = ScriptedEngine(step_s=0.005)
    with serve_scripted(engine) as url:
        wait_for(lambda: is_up(url))
        yield engine, url


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["bench", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_closed_loop_keeps_so_many_under_way(
    served: tuple[ScriptedEngine, str], capsys: pytest.CaptureFixture[str]
) -> None:
    engine, url = served
    options = "--requests 12 --concurrency 3 --input-len 20 --output-len 10 --slo ttft:5000 --detailed"
    code, record = bench(capsys, url, *options.split())
    assert code == 0 and record.keys() >= VLLM_NAMES
    assert (record["completed"], record["failed"], record["max_concurrent_requests"]) == (12, 0, 3)
    assert record["total_input_tokens"] == 240 and record["output_lens"] == [10] * 12
    assert record["request_goodput"] == pytest.approx(record["request_throughput"])
    assert [len(gaps) for gaps in record["itls"]] == [9] * 12
    assert record["mean_ttft_ms"] == pytest.approx(1e3 * statistics.fmean(record["ttfts"]))
    for ttft, latency, gaps in zip(record["ttfts"], record["latencies"], record["itls"], strict=True):
        assert latency == pytest.approx(ttft + sum(gaps))
    prompts = [tuple(prompt) for prompt, _ in engine.submitted[2:]]
    assert len(set(prompts)) == 12, "no prompt comes twice, or a cache would know it"


def test_a_second_test_asks_other_things_unless_it_is_told_the_seed(
    served: tuple[ScriptedEngine, str], capsys: pytest.CaptureFixture[str]
) -> None:
    engine, url = served
    options = ("--requests", "2", "--input-len", "20", "--output-len", "2", "--warmup", "0", "--concurrency", "1")
    _, first = bench(capsys, url, *options)
    bench(capsys, url, *options)
    bench(capsys, url, *options, "--seed", str(first["seed"]))
    prompts = [prompt for prompt, _ in engine.submitted]
    assert prompts[:2] == prompts[4:] and prompts[:2] != prompts[2:4]


def test_requests_that_fail_are_counted_and_told(
    served: tuple[ScriptedEngine, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        {"prompt": "fine", "max_tokens": 3},
        {"prompt": "refuse me"},
        {"messages": [{"role": "user", "content": "x"}]},
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    code, record = bench(capsys, served[1], "--dataset", str(log), "--concurrency", "1", "--slo", "e2el:0.001")
    assert code == 1 and (record["completed"], record["failed"], record["request_goodput"]) == (2, 1, 0.0)
    assert len(record["errors"]) == 1 and "no room" in record["errors"][0]


@pytest.mark.parametrize(
    "body",
    [b"data: {\n\n", b"data: 7\n\n", b'data: {"usage": {"x": 1}}\n\n', b"<html>no</html>", b"", b"data: [DONE]\n\n"],
)
def test_answers_that_are_none_are_failures_of_their_request(body: bytes) -> None:
    """A proxy's page, a stream that is cut, events in another form: the test goes on."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        target = Target(f"http://127.0.0.1:{server.server_port}", "m")
        asks = (Ask(prompt="a"),) * 2
        outcomes, _ = asyncio.run(load(target, asks, Arrivals(concurrency=2), 0, lambda _outcome: None))
    finally:
        server.shutdown()
    assert len(outcomes) == 2 and all(outcome.error for outcome in outcomes)


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, record = bench(capsys, "http://127.0.0.1:9")
    assert code != 0 and record["error"]["remedy"]


def test_a_log_is_replayed_at_its_times(
    served: tuple[ScriptedEngine, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"prompt": "a", "max_tokens": 2, "at": at}) for at in (0.8, 0.0, 0.4)))
    _, record = bench(capsys, served[1], "--dataset", str(log), "--replay", "2", "--detailed")
    starts = record["start_times"]
    assert all(start >= due for start, due in zip(starts, (0.0, 0.2, 0.4), strict=True))
    assert [round(b - a, 1) for a, b in pairwise(starts)] == [0.2, 0.2]


@pytest.mark.parametrize(
    "options",
    [
        ("--requests", "0"), ("--concurrency", "-1"), ("--rate", "0"), ("--rate", "1", "--replay"), ("--replay",),
        ("--slo", "ttft"), ("--slo", "itl:5"), ("--slo", "ttft:-1"), ("--spread", "1"), ("--input-len", "0"),
    ],
)  # fmt: skip
def test_wrong_use_is_told_with_a_remedy(
    served: tuple[ScriptedEngine, str], capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    code, record = bench(capsys, served[1], *options)
    assert code == 2 and record["error"]["remedy"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no request"),
        ("{", "line 1"),
        ('{"prompt": "a"}\n{}', "line 2"),
        ('{"prompt": "a", "messages": []}', "line 1"),
    ],
)
def test_a_dataset_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(text)
    with pytest.raises(BrokenInput, match=says):
        read_asks(path)
    with pytest.raises(BrokenInput, match="cannot read"):
        read_asks(tmp_path / "absent")


def test_a_log_without_times_is_not_replayed() -> None:
    with pytest.raises(WrongUse, match="no `at`"):
        list(schedule((Ask(prompt="a"),), Arrivals(replay_speed=1.0), 0))


def test_lengths_and_times_are_drawn_as_asked_and_repeat() -> None:
    asks = draw_asks(400, 100, 50, 0.2, vocab=1000, seed=3)
    assert asks == draw_asks(400, 100, 50, 0.2, vocab=1000, seed=3) != draw_asks(400, 100, 50, 0.2, vocab=1000, seed=4)
    lengths = [len(ask.prompt or "") for ask in asks]
    assert (min(lengths), max(lengths)) == (80, 120) and {ask.max_tokens for ask in asks} == set(range(40, 61))
    for burstiness, deviation in ((1.0, 1.0), (4.0, 0.5)):
        times = [at for at, _ in schedule(asks, Arrivals(rate=20.0, burstiness=burstiness), 0)]
        gaps = [b - a for a, b in pairwise(times)]
        assert statistics.fmean(gaps) == pytest.approx(1 / 20, rel=0.2)
        assert statistics.stdev(gaps) * 20 == pytest.approx(deviation, rel=0.25)


def test_nothing_has_no_percentiles() -> None:
    assert set(describe("ttft", []).values()) == {None}


def test_an_objective_is_kept_or_not() -> None:
    outcome = Outcome(start=0.0, output_tokens=5, ttft=0.1, latency=0.5)
    assert outcome.tpot == pytest.approx(0.1)
    assert meets(outcome, {"ttft": 100, "tpot": 100.001, "e2el": 500})
    for missed in ({"ttft": 99}, {"tpot": 99}, {"e2el": 499}):
        assert not meets(outcome, missed)
    assert parse_slo("ttft:12.5") == ("ttft", 12.5)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=20))
def test_most_at_once_is_what_counting_finds(spans: list[tuple[int, int]]) -> None:
    outcomes = [Outcome(start=float(a), latency=float(n)) for a, n in spans]
    assert most_at_once(outcomes) == max(sum(a <= t < a + n for a, n in spans) for t in range(41))
