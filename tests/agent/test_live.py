"""Traces of servers that run already."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent.live import capture_live
from kernelwright.engine.client import EngineFailed
from kernelwright.profiles.errors import EnvironmentLacks, WrongUse

TRACE = json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7}]})


@contextmanager
def server(
    folder: Path | None, *, profiles: bool = True, status: int = 200, chats: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """A stand-in with vLLM's endpoints: it answers /stop_profile with nothing and writes a trace for each rank."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def answer(self, body: str, code: int = 200) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            self.answer(json.dumps({"data": [{"id": "m"}]}))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path)
            if self.path.endswith("_profile"):
                if not profiles:
                    return self.answer("{}", 404)
                if self.path == "/stop_profile" and folder is not None:
                    for rank in (0, 1):
                        (folder / f"x-rank-{rank}.pt.trace.json").write_text(TRACE)
                return self.answer("", status)
            if "chat" in self.path and not chats:
                return self.answer("{}", 400)
            return self.answer(json.dumps({"choices": [{"text": "x"}]}))

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", asked
    finally:
        running.shutdown()


@pytest.mark.parametrize("chats", [True, False])
def test_new_traces_of_a_server_that_says_nothing_are_found(tmp_path: Path, chats: bool) -> None:
    (tmp_path / "old.json").write_text(TRACE)
    with server(tmp_path, chats=chats) as (url, asked):
        found = capture_live(url, tmp_path, requests=2, tokens=3, quiet_s=0.5)
    assert [path.name for path in found] == ["x-rank-0.pt.trace.json", "x-rank-1.pt.trace.json"]
    one = ["/v1/chat/completions"] if chats else ["/v1/chat/completions", "/v1/completions"]
    assert asked == ["/start_profile", *one, *one, "/stop_profile"]


def test_a_server_that_cannot_profile_says_how_it_would(tmp_path: Path) -> None:
    with server(tmp_path, profiles=False) as (url, _), pytest.raises(WrongUse, match="start_profile") as caught:
        capture_live(url, tmp_path)
    assert "--profile-dir" in caught.value.remedy and "torch_profiler_dir" in caught.value.remedy


def test_without_a_folder_nobody_knows_where_the_trace_is(tmp_path: Path) -> None:
    with server(tmp_path) as (url, _), pytest.raises(WrongUse, match="where its trace is"):
        capture_live(url, None, requests=0)


def test_a_server_that_fails_or_is_not_there(tmp_path: Path) -> None:
    with server(tmp_path, status=500) as (url, _), pytest.raises(EngineFailed, match="500"):
        capture_live(url, tmp_path)
    with pytest.raises(EngineFailed):
        capture_live("http://127.0.0.1:9", tmp_path)


def test_a_trace_that_never_comes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.agent.live.FLUSH_S", 1.0)
    (tmp_path / "elsewhere").mkdir()
    with server(tmp_path / "elsewhere") as (url, _), pytest.raises(EnvironmentLacks, match="no trace"):
        capture_live(url, tmp_path / "here", requests=0, quiet_s=0.2)
