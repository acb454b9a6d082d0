"""The front end's contract, held by the real `openai` client against a scripted engine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from kernelwright.engine.guard import Guard
from kernelwright.engine.scripted import END, VOCAB, ScriptedEngine, serve_scripted

HELLO = [{"role": "user", "content": "What is the capital of France?"}]


def wait_for(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def is_up(url: str) -> bool:
    return httpx.get(f"{url}/health", trust_env=False).status_code == 200


class Served:
    def __init__(self, engine: ScriptedEngine, url: str) -> None:
        self.engine = engine
        self.url = url
        self.openai: Any = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=20)

    def post(self, path: str, body: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(path, content=content)


@pytest.fixture
def served() -> Iterator[Served]:
    engine = ScriptedEngine()
    with serve_scripted(engine) as url:
        wait_for(lambda: is_up(url))
        yield Served(engine, url)


def test_models(served: Served) -> None:
    assert [model.id for model in served.openai.models.list()] == ["scripted"]
    assert served.openai.models.retrieve("scripted").id == "scripted"
    with pytest.raises(openai.NotFoundError):
        served.openai.models.retrieve("another")


def test_chat(served: Served) -> None:
    answer = served.openai.chat.completions.create(model="scripted", messages=HELLO, temperature=0)
    assert answer.choices[0].message.content == "Paris."
    assert answer.choices[0].finish_reason == "stop"
    prompt, sampling = served.engine.submitted[0]
    assert bytes(prompt) == b"user: What is the capital of France?\nassistant: "
    assert sampling.temperature == 0
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), 7)


def test_a_chat_fills_the_context_when_no_limit_is_given(served: Served) -> None:
    served.openai.chat.completions.create(model="scripted", messages=HELLO)
    prompt, sampling = served.engine.submitted[0]
    assert len(prompt) + sampling.max_tokens == 256


def test_streamed_chat_says_the_same_with_usage_last(served: Served) -> None:
    chunks = list(
        served.openai.chat.completions.create(
            model="scripted", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:] if chunk.choices] == ["stop"]
    assert chunks[-1].usage.completion_tokens == 7


def test_one_event_for_every_token_even_inside_a_character(served: Served) -> None:
    served.engine.says = lambda prompt: list("é€".encode())
    stream = served.openai.completions.create(model="scripted", prompt="x", stream=True, max_tokens=5)
    assert [chunk.choices[0].text for chunk in stream] == ["", "é", "", "", "€"]


def test_chat_logprobs(served: Served) -> None:
    answer = served.openai.chat.completions.create(model="scripted", messages=HELLO, logprobs=True, top_logprobs=2)
    first = answer.choices[0].logprobs.content[0]
    assert (first.token, first.bytes, first.logprob) == ("P", [ord("P")], -0.5)
    assert [(top.token, top.logprob) for top in first.top_logprobs] == [("P", -0.5), ("<end>", -1.0)]


@pytest.mark.parametrize(
    ("prompt", "count"), [("hi", 1), (["hi", "ho"], 2), ([104, 105], 1), ([[104], [105], [106]], 3)]
)
def test_the_four_forms_of_a_prompt(served: Served, prompt: Any, count: int) -> None:
    answer = served.openai.completions.create(model="scripted", prompt=prompt)
    assert [choice.text for choice in answer.choices] == ["Paris."] * count
    assert [choice.index for choice in answer.choices] == list(range(count))


def test_several_choices_of_several_prompts_have_their_own_seeds(served: Served) -> None:
    answer = served.openai.completions.create(model="scripted", prompt=["a", "b"], n=2, seed=7)
    assert len(answer.choices) == 4
    assert sorted(sampling.seed for _, sampling in served.engine.submitted) == [7, 7, 8, 8]
    stream = served.openai.completions.create(model="scripted", prompt=["a", "b"], n=2, stream=True)
    texts = ["", "", "", ""]
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Paris."] * 4


def test_echo_and_the_prompts_own_logprobs(served: Served) -> None:
    answer = served.openai.completions.create(model="scripted", prompt="abz", echo=True, logprobs=1, max_tokens=0)
    choice = answer.choices[0]
    assert choice.text == "abz" and choice.logprobs.tokens == ["a", "b", "z"]
    none, follows, surprises = choice.logprobs.token_logprobs
    assert none is None and follows > surprises
    assert choice.logprobs.text_offset == [0, 1, 2]
    assert list(choice.logprobs.top_logprobs[1]) == ["b"]
    assert not served.engine.submitted
    answer = served.openai.completions.create(model="scripted", prompt="abz", echo=True)
    assert answer.choices[0].text == "abzParis."


def test_sampling_travels_to_the_engine_as_it_was_asked(served: Served) -> None:
    served.openai.chat.completions.create(
        model="scripted", messages=HELLO, presence_penalty=0.5, frequency_penalty=-1,
        logit_bias={"65": -100, "66": 2.5},
        extra_body={"min_p": 0.1, "repetition_penalty": 1.2, "top_k": 5},
    )  # fmt: skip
    _, sampling = served.engine.submitted[0]
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0.5, -1.0, 1.2)
    assert (sampling.min_p, sampling.top_k, sampling.logit_bias) == (0.1, 5, ((65, -100.0), (66, 2.5)))


@pytest.mark.parametrize("stream", [False, True])
def test_usage_says_what_of_the_prompt_was_computed_already(served: Served, stream: bool) -> None:
    served.engine.cached = 16
    asked = {"model": "scripted", "prompt": ["a", "b"], "n": 2}
    if stream:
        *_, last = served.openai.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        usage = last.usage
    else:
        usage = served.openai.completions.create(**asked).usage
    assert usage.prompt_tokens_details.cached_tokens == 32, "two prompts, each counted once"


def test_the_prefix_cache_is_forgotten_on_demand_and_shown(served: Served) -> None:
    served.openai.completions.create(model="scripted", prompt="x")
    assert served.http.post("/reset_prefix_cache").json() == {"forgotten_pages": 3}
    text = served.http.get("/metrics").text
    assert "kernelwright:prefix_cache_queries_total 40.0" in text
    assert "kernelwright:prefix_cache_hits_total 16.0" in text
    assert "kernelwright:kv_cache_usage_perc 0.25" in text and "kernelwright:num_preemptions_total 2.0" in text


def test_a_stop_string_ends_the_answer_and_the_engines_work(served: Served) -> None:
    served.engine.says = lambda prompt: list(b"one two three four ")
    answer = served.openai.completions.create(model="scripted", prompt="x", stop="wo th", max_tokens=200)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one t", "stop")
    wait_for(lambda: len(served.engine.aborted) == 1)
    stream = served.openai.completions.create(model="scripted", prompt="x", stop=["wo th"], max_tokens=200, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "one t"


def test_ignore_eos_and_token_ids(served: Served) -> None:
    body = {"model": "scripted", "prompt": "x", "max_tokens": 9, "ignore_eos": True, "return_token_ids": True}
    choice = served.post("/v1/completions", body).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["token_ids"] == [*b"Paris.", END, *b"Pa"]


GOOD = {"model": "scripted", "prompt": "a"}


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", b"{", 400, "not valid JSON"),
        ("/v1/completions", b"\xff", 400, "not valid JSON"),
        ("/v1/completions", b"[1]", 400, "dictionary"),
        ("/v1/completions", {"prompt": "a"}, 400, "model"),
        ("/v1/completions", GOOD | {"model": "gpt"}, 404, "serves 'scripted'"),
        ("/v1/completions", GOOD | {"max_tokens": 300}, 400, "256 tokens; the prompt has 1, 300 more"),
        ("/v1/completions", GOOD | {"prompt": "a" * 257, "max_tokens": 1}, 400, "the prompt has 257"),
        ("/v1/completions", GOOD | {"prompt": ""}, 400, "prompt is empty"),
        ("/v1/completions", GOOD | {"prompt": [VOCAB]}, 400, "outside the vocabulary"),
        ("/v1/completions", GOOD | {"temperature": 9}, 400, "temperature"),
        ("/v1/completions", GOOD | {"tools": [{}]}, 400, "`tools` is not served"),
        ("/v1/completions", GOOD | {"logit_bias": {"a": 1}}, 400, "keys are token ids"),
        ("/v1/completions", GOOD | {"logit_bias": {"1": 101}}, 400, "logit_bias"),
        ("/v1/completions", GOOD | {"logit_bias": {str(VOCAB): 1}}, 400, "outside the vocabulary"),
        ("/v1/completions", GOOD | {"min_p": 2}, 400, "min_p"),
        ("/v1/completions", GOOD | {"presence_penalty": 3}, 400, "presence_penalty"),
        ("/v1/completions", GOOD | {"prompt": "refuse me"}, 400, "no room"),
        ("/v1/completions", GOOD | {"prompt": "refuse me", "stream": True}, 400, "no room"),
        ("/v1/chat/completions", {"model": "scripted", "messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"model": "scripted", "messages": [{"role": "x", "content": ""}]}, 400, "role"),
        ("/v1/score", {"sequences": [{"prompt": []}], "phase": "prefill"}, 400, "prompt"),
        ("/v1/score", {"sequences": [{"prompt": [1] * 300}], "phase": "prefill"}, 400, "256 tokens"),
        ("/v1/nothing", {}, 404, "/v1/nothing"),
        ("/v1/models", {}, 405, "Method Not Allowed"),
        ("/start_profile", b"", 409, "--profile-dir"),
    ],
)
def test_bad_requests_are_answered_in_openais_form(
    served: Served, path: str, body: Any, status: int, says: str
) -> None:
    answer = served.post(path, body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert says in error["message"] and set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    assert served.post("/v1/completions", GOOD).status_code == 200, "the server goes on"


def test_a_body_beyond_the_limit_is_refused(served: Served) -> None:
    answer = served.post("/v1/score", b" " * (33 * 1024 * 1024))
    assert answer.status_code == 413


def test_a_fault_of_our_own_shows_no_traceback(served: Served) -> None:
    served.engine.kernels = lambda: [{"nonsense": 1}]  # type: ignore[method-assign]
    answer = served.http.get("/metrics")
    assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
    assert "Traceback" not in answer.text and "KeyError" not in answer.text


def test_a_client_that_leaves_takes_its_request_along(served: Served) -> None:
    served.engine.says = lambda prompt: [65]
    served.engine.step_s = 0.01
    body = GOOD | {"max_tokens": 250, "ignore_eos": True}
    with served.http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        next(answer.iter_lines())
    wait_for(lambda: len(served.engine.aborted) == 1)
    with pytest.raises(httpx.ReadTimeout):
        served.http.post("/v1/completions", json=body, timeout=0.3)
    wait_for(lambda: len(served.engine.aborted) == 2)
    assert len(served.engine.submitted) == 2


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_ours(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
        time.sleep(0.2)
    wait_for(lambda: served.http.get("/health").status_code == 200)
    time.sleep(0.2)
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_is_given_up(stream: bool) -> None:
    engine = ScriptedEngine(says=lambda prompt: [65], step_s=0.02)
    with serve_scripted(engine, request_timeout_s=0.3) as url:
        wait_for(lambda: is_up(url))
        served = Served(engine, url)
        answer = served.post("/v1/completions", GOOD | {"max_tokens": 250, "stream": stream})
        if stream:
            assert answer.status_code == 200 and answer.text.count("data: ") > 3
            assert "given up" in answer.text.splitlines()[-4] and answer.text.endswith("data: [DONE]\n\n")
        else:
            assert answer.status_code == 504 and "0.3 s" in answer.json()["error"]["message"]
        wait_for(lambda: len(engine.aborted) == 1)
        assert served.post("/v1/completions", GOOD | {"max_tokens": 2}).status_code == 200


def test_more_than_the_queue_holds_is_turned_away() -> None:
    engine = ScriptedEngine(says=lambda prompt: [65], step_s=0.02)
    with serve_scripted(engine, max_queued=2) as url:
        wait_for(lambda: is_up(url))
        served = Served(engine, url)
        assert served.post("/v1/completions", GOOD | {"n": 3}).status_code == 429
        with served.http.stream("POST", "/v1/completions", json=GOOD | {"n": 2, "stream": True, "max_tokens": 99}):
            answer = served.post("/v1/completions", GOOD)
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        wait_for(lambda: served.post("/v1/completions", GOOD | {"max_tokens": 1}).status_code == 200)


def test_the_key_is_asked_for_where_it_is_set() -> None:
    with serve_scripted(ScriptedEngine(), api_key="secret") as url:
        wait_for(lambda: is_up(url))
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0).models.list()
        assert list(openai.OpenAI(base_url=f"{url}/v1", api_key="secret").models.list())
        assert httpx.post(f"{url}/stop_profile", trust_env=False).status_code == 401
        assert httpx.get(f"{url}/metrics", trust_env=False).status_code == 200


def test_metrics_and_kernels(served: Served) -> None:
    served.post("/v1/completions", GOOD)
    text = served.http.get("/metrics").text
    assert "kernelwright:generation_tokens_total 7.0" in text
    assert 'kernelwright:kernel_hits_total{candidate="cccccccccccc",definition="add_rmsnorm_h8"} 3.0' in text
    assert 'reason="tokens"' in text
    kernels = served.http.get("/v1/kernels").json()
    assert kernels["kernels"][0]["hits"] == 3 and kernels["threads"] == 1


def test_a_collapse_ends_the_answer_when_the_guard_may() -> None:
    engine = ScriptedEngine(says=lambda prompt: [65])
    with serve_scripted(engine, guard=Guard(max_repeats=5, action="stop")) as url:
        wait_for(lambda: is_up(url))
        choice = Served(engine, url).post("/v1/completions", GOOD | {"max_tokens": 50}).json()["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("A" * 6, "collapse")
        assert 'guard_trips_total{kind="repeat"} 1.0' in httpx.get(f"{url}/metrics", trust_env=False).text


def test_a_request_may_be_left_alone_by_the_guard() -> None:
    engine = ScriptedEngine(says=lambda prompt: [65])
    with serve_scripted(engine, guard=Guard(max_repeats=5, action="stop")) as url:
        wait_for(lambda: is_up(url))
        served = Served(engine, url)
        choice = served.post("/v1/completions", GOOD | {"max_tokens": 50, "guard": "off"}).json()["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("A" * 50, "length")
        assert served.post("/v1/completions", GOOD | {"max_tokens": 50}).json()["choices"][0]["text"] == "A" * 6


def test_a_rule_of_forty_dashes_is_no_collapse() -> None:
    engine = ScriptedEngine(says=lambda prompt: [*b"a table\n", *b"-" * 40, END])
    with serve_scripted(engine, guard=Guard(action="stop")) as url:
        wait_for(lambda: is_up(url))
        choice = Served(engine, url).post("/v1/completions", GOOD | {"max_tokens": 80}).json()["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("a table\n" + "-" * 40, "stop")


def test_profiles_over_http(tmp_path: Path) -> None:
    with serve_scripted(ScriptedEngine(), profile_dir=tmp_path) as url:
        wait_for(lambda: is_up(url))
        assert httpx.post(f"{url}/start_profile", trust_env=False).status_code == 200
        assert httpx.post(f"{url}/start_profile", trust_env=False).status_code == 409
        trace = httpx.post(f"{url}/stop_profile", trust_env=False).json()["trace"]
        assert Path(trace).parent == tmp_path and Path(trace).is_file()


def test_the_front_end_never_loads_torch() -> None:
    code = (
        "import sys, kernelwright.engine.frontend, kernelwright.engine.text, kernelwright.engine.server;"
        "print([m for m in ('torch', 'gguf', 'matplotlib', 'docker', 'openai') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
