"""`serve` as a process: its two processes, their signals and deaths, and real weights behind the `openai` client."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from kernelwright.engine.client import EngineClient, EngineFailed, ServerProcess
from kernelwright.engine.listen import listen
from kernelwright.engine.load import Shape, measure_mixed
from kernelwright.engine.server import ServeOptions, _Signals, _StoppedWhileLoading
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, KernelwrightError, WrongUse

START_S = 240.0
"""Generous: the machine may be busy with something else."""


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on the tiny random model, whose context is 256 tokens; 200 are asked for."""
    folder = tmp_path_factory.mktemp("profiles")
    options = ServeOptions(model=tiny_model, port=0, threads=1, profile_dir=folder, max_model_len=200)
    with ServerProcess.start(options) as server:
        server.wait_until_healthy(START_S)
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[EngineClient]:
    with server.client() as client:
        yield client


@contextmanager
def openai_client(server: ServerProcess) -> Iterator[Any]:
    transport = httpx.HTTPTransport(uds=str(server.options.uds))
    with httpx.Client(transport=transport, timeout=120) as http:
        yield openai.OpenAI(base_url="http://engine/v1", api_key="unused", max_retries=0, http_client=http)


@pytest.fixture
def chat(server: ServerProcess) -> Iterator[Any]:
    with openai_client(server) as client:
        yield client


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# ---- the listening socket ------------------------------------------------------------------------------------------


def test_a_port_in_use_is_named_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ServeOptions(model=Path("/nowhere/model.gguf"), port=port)
        with ServerProcess.start(options) as server, pytest.raises(EnvironmentLacks, match="exit status 3") as raised:
            server.wait_until_healthy(60)
    assert f"port {port} on 127.0.0.1 is in use" in raised.value.remedy
    assert "--port" in raised.value.remedy


def test_a_socket_left_behind_is_replaced_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen("", 0, path), pytest.raises(EnvironmentLacks, match="another server"), listen("", 0, path):
        pass
    assert not path.exists()


@pytest.mark.parametrize(("name", "says"), [("x" * 120, "shorter|over"), ("file", "not a socket")])
def test_a_path_that_cannot_be_a_socket_is_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(WrongUse, match=says), listen("", 0, tmp_path / name):
        pass
    assert (tmp_path / "file").read_text() == "precious"


def test_a_host_that_is_not_ours_is_refused() -> None:
    with pytest.raises(KernelwrightError, match=r"192\.0\.2\.1"), listen("192.0.2.1", 0, None):
        pass


def test_a_missing_model_ends_both_processes_with_the_reason(tmp_path: Path) -> None:
    options = ServeOptions(model=tmp_path / "missing.gguf", port=0)
    with ServerProcess.start(options) as server, pytest.raises(BrokenInput, match="exit status 4") as raised:
        server.wait_until_healthy(START_S)
    assert "missing.gguf" in raised.value.remedy and "Traceback" not in raised.value.remedy


def test_options_that_are_none_are_wrong_use() -> None:
    command = [sys.executable, "-P", "-m", "kernelwright.engine.server"]
    result = subprocess.run(command, input=b'{"port": "x"}', capture_output=True, timeout=60, check=False)
    assert result.returncode == 2 and b"Traceback" not in result.stderr


def test_no_key_shows_where_options_are_printed() -> None:
    assert "secret" not in repr(ServeOptions(api_key="secret"))


# ---- the contract, over real processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[ServerProcess]:
    with ServerProcess.start(ServeOptions(model=smollm2, port=0, threads=1, served_name="smol")) as server:
        server.wait_until_healthy(START_S)
        yield server


@pytest.mark.weights
def test_the_capital_of_france(smol: ServerProcess) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    fields = {"model": "smol", "messages": question, "temperature": 0, "max_tokens": 16}
    with openai_client(smol) as chat:
        text = chat.chat.completions.create(**fields).choices[0].message.content
        stream = chat.chat.completions.create(**fields, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == text
    assert "Paris" in text


def test_the_name_is_a_slug_of_the_files_own(chat: Any) -> None:
    assert [model.id for model in chat.models.list()] == ["tiny"]


def test_chat_and_stream_agree(chat: Any) -> None:
    fields = {"model": "tiny", "messages": [{"role": "user", "content": "hé"}], "temperature": 0, "max_tokens": 20}
    answer = chat.chat.completions.create(**fields)
    stream = chat.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == answer.choices[0].message.content
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(chunks[-1].usage, name) == getattr(answer.usage, name)
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == answer.usage.prompt_tokens // 16 * 16
    assert answer.usage.completion_tokens <= 20


@pytest.mark.weights
def test_seeds_repeat_and_choices_differ(smol: ServerProcess) -> None:
    def draw(seed: int) -> list[str]:
        fields = {"seed": seed, "n": 3, "max_tokens": 12, "temperature": 1.5, "top_p": 0.95}
        with openai_client(smol) as chat:
            choices = chat.completions.create(model="smol", prompt="Once upon a time", **fields).choices
        return [choice.text for choice in choices]

    first = draw(3)
    assert first == draw(3) != draw(100)
    assert len(set(first)) > 1


def test_top_k_of_one_is_greedy(chat: Any) -> None:
    fields = {"model": "tiny", "prompt": "the", "max_tokens": 8}
    greedy = chat.completions.create(**fields, temperature=0).choices[0].text
    assert chat.completions.create(**fields, temperature=1.5, extra_body={"top_k": 1}).choices[0].text == greedy


def test_logprobs_agree_with_the_score(client: EngineClient) -> None:
    prompt = [10, 20, 30, 40]
    fields = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
    choice = client.complete(prompt, **fields, logprobs=3, return_token_ids=True)["choices"][0]
    rows = list(client.score([([*prompt, *choice["token_ids"]], [])], "prefill"))
    for step, (token, logprob) in enumerate(
        zip(choice["token_ids"], choice["logprobs"]["token_logprobs"], strict=True)
    ):
        logits = rows[len(prompt) - 1 + step].logits.astype(np.float64)
        expected = logits[token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert logprob == pytest.approx(expected, abs=1e-4)
        assert int(logits.argmax()) == token
    echoed = client.complete(prompt, max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]["token_logprobs"]
    assert echoed[0] is None and all(logprob < 0 for logprob in echoed[1:])


def test_decode_and_prefill_score_the_same_text_alike(client: EngineClient) -> None:
    text = [50, 12, 31, 26, 35, 28, 253, 28]
    prefill = {row.position: row.logits for row in client.score([(text, [])], "prefill")}
    decode = {row.position: row.logits for row in client.score([(text[:3], text[3:])], "decode")}
    assert sorted(prefill) == list(range(8)) and sorted(decode) == [3, 4, 5, 6, 7]
    for position, logits in decode.items():
        np.testing.assert_allclose(logits, prefill[position], atol=1e-4)


def test_kernels_tell_what_numbers_depend_on(client: EngineClient) -> None:
    facts = client.kernels()
    assert facts["threads"] == 1 and facts["resident_bytes"] > 50_000_000
    assert len(facts["model_digest"]) == len(facts["configuration"]) == 64
    assert {"isa", "cpu", "wait_policy", "torch"} <= set(facts)
    assert {"definition", "state", "hits", "fallbacks", "candidate", "binary"} <= set(facts["kernels"][0])


def test_a_profile_has_our_ranges(client: EngineClient) -> None:
    client.start_profile()
    client.complete("Hello", max_tokens=3, ignore_eos=True)
    text = client.stop_profile().read_text()
    assert "step|decode|1|1" in text and "slot|add_rmsnorm_h64|decode|1|0" in text


def test_the_context_limit_is_the_one_asked_for(client: EngineClient) -> None:
    with pytest.raises(EngineFailed, match="the context holds 200 tokens"):
        client.complete([30] * 190, max_tokens=11)
    assert client.complete([30] * 190, max_tokens=10, ignore_eos=True)["usage"]["completion_tokens"] == 10


def test_many_at_once_are_all_answered(server: ServerProcess) -> None:
    shapes = [Shape(prompt_tokens=5 + 7 * i, new_tokens=20 - i) for i in range(20)]
    taken = measure_mixed(server.client, shapes, concurrency=20)
    assert len(taken.requests) == 20  # each was checked for its token count and finish reason


def test_idle_processes_sleep(server: ServerProcess) -> None:
    pids = [server.process.pid, front_end_of(server)]
    before = sum(map(cpu_seconds, pids))
    time.sleep(1)
    assert sum(map(cpu_seconds, pids)) - before < 0.2


def test_the_engine_process_serves_from_one_front_end_without_torch(server: ServerProcess) -> None:
    maps = Path(f"/proc/{front_end_of(server)}/maps").read_text()
    assert "libtorch" not in maps


# ---- signals and deaths --------------------------------------------------------------------------------------------


def front_end_of(server: ServerProcess) -> int:
    """Return the pid of the front end: the only child of the engine."""
    text = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    (pid,) = text.split()
    return int(pid)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that the test may kill."""
    options = ServeOptions(model=tiny_model, port=0, threads=1)
    with ServerProcess.start(options, log=tmp_path / "log") as server:
        server.wait_until_healthy(START_S)
        yield server


def test_sigterm_finishes_what_runs_and_ends_with_0(own: ServerProcess) -> None:
    with own.client() as client:
        tokens = client.stream("Count:", max_tokens=200, ignore_eos=True)
        next(tokens)
        own.process.send_signal(signal.SIGTERM)
        rest = list(tokens)
    assert len(rest) == 199 and rest[-1].finish == "length"
    assert own.process.wait(60) == 0
    assert own.options.uds is not None and not own.options.uds.exists()


def test_when_the_engine_is_killed_the_front_end_ends_and_says_so(own: ServerProcess) -> None:
    front = front_end_of(own)
    with own.client() as client, pytest.raises(EngineFailed):
        for number, _ in enumerate(client.stream("Count:", max_tokens=240, ignore_eos=True)):
            if number == 1:
                own.process.kill()
    wait_for(lambda: not is_alive(front))
    assert "the engine process has ended" in own.log.read_text()


def test_when_the_front_end_is_killed_the_engine_ends_and_says_so(own: ServerProcess) -> None:
    os.kill(front_end_of(own), signal.SIGKILL)
    assert own.process.wait(60) == 1
    assert "the HTTP front end ended by itself" in own.log.read_text()


def test_a_server_ends_with_the_process_that_started_it(own: ServerProcess) -> None:
    assert own.process.stdin is not None
    own.process.stdin.close()  # what the kernel does when its owner is killed
    assert own.process.wait(60) == 0


def test_health_is_503_until_the_engine_is_ready(tiny_model: Path) -> None:
    with ServerProcess.start(ServeOptions(model=tiny_model, port=0, threads=1)) as server, server.client() as client:
        answers: list[int] = []

        def is_loading() -> bool:
            try:
                answers.append(client.http.get("/health", timeout=5).status_code)
            except httpx.TransportError:
                return False
            return True

        wait_for(is_loading, 60)
        if answers[-1] == 503:
            refused = client.http.post("/v1/completions", json={"model": "m", "prompt": "a"})
            assert refused.status_code in (200, 404, 503)
        server.wait_until_healthy(START_S)
        assert client.is_healthy()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_finaliser_swallowed_still_ends_the_load() -> None:
    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)  # the handler raises in here, where Python prints and goes on

    with _Signals() as signals:
        leaving = Finalised()
        del leaving
        with pytest.raises(_StoppedWhileLoading):
            signals.stop_by(lambda: None)


def test_a_signal_while_loading_ends_at_once(tiny_model: Path) -> None:
    with ServerProcess.start(ServeOptions(model=tiny_model, port=0)) as server:
        wait_for(lambda: server.options.uds is not None and server.options.uds.exists(), 60)
        assert server.stop(60) == 0
