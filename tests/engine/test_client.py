from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.scripted import END, VOCAB, ScriptedEngine, serve_scripted


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def client(engine: ScriptedEngine, tmp_path: Path) -> Iterator[EngineClient]:
    with serve_scripted(engine, profile_dir=tmp_path) as url, EngineClient(url, timeout_s=20) as client:
        while not client.is_healthy():
            time.sleep(0.01)
        yield client


def test_it_knows_its_model(client: EngineClient) -> None:
    assert client.model == "scripted"
    assert client.card()["vocab_size"] == VOCAB


def test_complete_chat_and_stream_agree(client: EngineClient) -> None:
    assert client.complete("hi")["choices"][0]["text"] == "Paris."
    assert client.chat([{"role": "user", "content": "hi"}])["choices"][0]["message"]["content"] == "Paris."
    tokens = list(client.stream([1, 2], max_tokens=16))
    assert [token.ids for token in tokens] == [(id,) for id in [*b"Paris.", END]]
    assert "".join(token.text for token in tokens) == "Paris."
    assert [token.finish for token in tokens] == [None] * 6 + ["stop"]
    assert all(a.at <= b.at for a, b in pairwise(tokens))


def test_scores_come_as_rows(client: EngineClient) -> None:
    rows = list(client.score([([1, 2, 3], []), ([9], [])], "prefill"))
    assert [(row.sequence, row.position) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [int(row.logits.argmax()) for row in rows] == [2, 3, 4, 10]
    assert rows[0].logits.dtype == np.float32 and rows[0].logits.shape == (VOCAB,)
    rows = list(client.score([([1, 2], [7, 8])], "decode"))
    assert [(row.position, int(row.logits.argmax())) for row in rows] == [(2, 8), (3, 9)]


def test_a_score_left_early_is_dropped_and_the_engine_goes_on(client: EngineClient, engine: ScriptedEngine) -> None:
    rows = client.score([([1] * 250, []) for _ in range(400)], "prefill")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert client.complete("hi")["choices"][0]["text"] == "Paris."
    assert engine.rows_made < 400 * 250


def test_a_slow_reader_holds_the_engine_back(client: EngineClient, engine: ScriptedEngine) -> None:
    rows = client.score([([1] * 250, []) for _ in range(400)], "prefill")
    next(rows)
    before = -1
    while engine.rows_made != before:  # until the sockets between us are full
        before = engine.rows_made
        time.sleep(0.5)
    assert engine.rows_made < 400 * 250 // 2
    rows.close()  # type: ignore[attr-defined]


def test_errors_carry_the_servers_words(client: EngineClient) -> None:
    with pytest.raises(EngineFailed, match=r"400: the context holds 256 tokens"):
        client.complete("hi", max_tokens=1000)
    with pytest.raises(EngineFailed, match="no profile is being taken"):
        client.stop_profile()


def test_kernels_metrics_and_profiles(client: EngineClient, tmp_path: Path) -> None:
    assert client.kernels()["kernels"][0]["definition"] == "add_rmsnorm_h8"
    assert "kernelwright:kernel_hits_total" in client.metrics()
    client.start_profile()
    assert client.stop_profile() == tmp_path / "trace-1.json"


def test_nobody_there_is_said() -> None:
    with EngineClient("http://127.0.0.1:9", timeout_s=2) as client:
        assert not client.is_healthy()
        with pytest.raises(EngineFailed, match="connection broke"):
            client.kernels()
