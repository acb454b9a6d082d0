"""The contract of `serve` at its edges: legacy completions, errors, keys, and clients that leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from kernelwright.engine.client import ServerProcess
from kernelwright.engine.scripted import ScriptedEngine, serve_scripted
from tests.engine.contract.asking import (
    HELLO,
    KEY,
    QUIET,
    async_client_of,
    client_of,
    metric,
    wait_for,
)


def test_legacy_completions(client: Any) -> None:
    fields = {"model": "tiny", "prompt": ["Hello", "there"], "max_tokens": 6, "temperature": 0}
    answer = client.completions.create(**fields, n=2, best_of=2, logprobs=2, echo=True)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-") and answer.system_fingerprint
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text[:5] for choice in answer.choices] == ["Hello", "Hello", "there", "there"]
    logprobs = answer.choices[0].logprobs
    assert (
        logprobs.token_logprobs[0] is None
        and "".join(logprobs.tokens[:5]) == "Hello"[: len("".join(logprobs.tokens[:5]))]
    )
    assert len(logprobs.tokens) == len(logprobs.text_offset) == len(logprobs.top_logprobs)
    texts = ["", ""]
    chunks = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    for chunk in chunks[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [answer.choices[0].text[5:], answer.choices[2].text[5:]]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert client.completions.create(model="tiny", prompt=[10, 20], max_tokens=1).usage.prompt_tokens == 2


# ---- errors --------------------------------------------------------------------------------------------------------

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]
BAD_FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strin"}}}


@pytest.mark.parametrize(
    ("fields", "kind", "param", "code", "says"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model", "model_not_found", "gpt-9"),
        ({"max_tokens": 10**6}, openai.BadRequestError, "max_tokens", "context_length_exceeded", "context holds"),
        (
            {"messages": [{"role": "user", "content": "x" * 5000}]},
            openai.BadRequestError,
            "messages",
            "context_length_exceeded",
            "context",
        ),
        ({"messages": IMAGE}, openai.BadRequestError, "messages", "bad_request", "image_url"),
        ({"messages": []}, openai.BadRequestError, "messages", "bad_request", "at least 1"),
        ({"temperature": 3}, openai.BadRequestError, "temperature", "bad_request", "less than or equal to 2"),
        ({"n": 41}, openai.RateLimitError, None, "queue_full", "40 requests"),
        ({"response_format": BAD_FORM}, openai.BadRequestError, "response_format", "invalid_grammar", "strin"),
        ({"response_format": {"type": "xml"}}, openai.BadRequestError, "response_format", "bad_request", "type"),
        ({"extra_body": {"guided_regex": "a("}}, openai.BadRequestError, "guided_regex", "invalid_grammar", "unclosed"),
        ({"functions": [{"name": "f"}]}, openai.BadRequestError, "functions", "bad_request", "tools"),
        ({"tool_choice": "required"}, openai.BadRequestError, "tool_choice", "bad_request", "needs `tools`"),
        ({"top_logprobs": 2}, openai.BadRequestError, "top_logprobs", "bad_request", "logprobs"),
        ({"extra_body": {"min_tokens": 5}}, openai.BadRequestError, "min_tokens", "bad_request", "not served"),
        ({"modalities": ["audio"]}, openai.BadRequestError, "modalities", "bad_request", "not served"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_raise_the_right_class(
    client: Any,
    fields: dict[str, Any],
    kind: type[openai.APIStatusError],
    param: str,
    code: str,
    says: str,
    stream: bool,
) -> None:
    with pytest.raises(kind) as raised:
        client.chat.completions.create(**({"model": "tiny", "messages": HELLO, "stream": stream} | fields))
    error: Any = raised.value
    assert (error.param, error.code) == (param, code) and says in error.message
    assert error.type == ("rate_limit_error" if kind is openai.RateLimitError else "invalid_request_error")


def test_a_schema_that_is_too_deep_is_refused_and_the_server_goes_on(client: Any) -> None:
    for depth in (200, 700, 5000):
        schema: Any = {}
        for _ in range(min(depth, 700)):
            schema = {"items": schema}
        body = b'{"model": "tiny", "prompt": "x", "guided_json": %s}' % json.dumps(schema).encode()
        if depth == 5000:
            body = (
                b'{"model": "tiny", "prompt": "x", "guided_json": ' + b'{"items":' * depth + b"1" + b"}" * depth + b"}"
            )
        with pytest.raises(openai.BadRequestError, match=r"recursion|deep"):
            client.post("/completions", cast_to=object, content=body)
    assert client.models.list()


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"n": 1, "best_of": 3}])
def test_what_legacy_completions_do_not_do_is_refused(client: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match=next(reversed(fields))):
        client.completions.create(model="tiny", prompt="x", **fields)


def test_models(client: Any) -> None:
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "kernelwright") and model.created > 0
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


def test_the_key_is_asked_for_and_never_written_down(server: ServerProcess) -> None:
    for key in ("wrong", KEY[:-1], KEY + "1"):
        with client_of(server, key) as stranger, pytest.raises(openai.AuthenticationError) as raised:
            stranger.models.list()
        assert raised.value.code == "invalid_api_key" and KEY not in str(raised.value)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.options.uds))) as http:
        for given in ([], [(b"Authorization", b"Bearer \xc3\xa9")], [(b"Authorization", KEY.encode())]):
            assert http.get("http://engine/v1/models", headers=given).status_code == 401
    assert KEY not in server.log.read_text()
    assert KEY not in Path(f"/proc/{server.process.pid}/cmdline").read_text()


# ---- clients that leave --------------------------------------------------------------------------------------------

LONG = {"model": "tiny", "messages": HELLO, "max_tokens": 3000, "extra_body": {"ignore_eos": True}}


def test_a_timeout_is_the_clients_and_ends_the_work(server: ServerProcess) -> None:
    before = metric(server, "request_aborted_total")
    with client_of(server) as client, pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.4).chat.completions.create(**LONG)
    wait_for(lambda: metric(server, "request_aborted_total") == before + 1)
    wait_for(lambda: metric(server, "num_requests_running") == 0)


def test_an_error_in_the_middle_of_a_stream_is_raised() -> None:
    engine = ScriptedEngine(says=lambda prompt: [65], step_s=0.02)
    with serve_scripted(engine, request_timeout_s=0.4) as url:
        wait_for(lambda: httpx.get(f"{url}/health", trust_env=False).status_code == 200)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        fields: Any = {"model": "scripted", "messages": HELLO, "max_tokens": 200}
        with pytest.raises(openai.APIError, match="given up"):
            for _ in client.chat.completions.create(**fields, stream=True):
                pass
        with pytest.raises(openai.InternalServerError) as raised:
            client.chat.completions.create(**fields)
    assert raised.value.status_code == 504


async def test_a_cancelled_stream_ends_the_work(server: ServerProcess) -> None:
    before = metric(server, "request_aborted_total")
    async with async_client_of(server) as client:
        stream = await client.chat.completions.create(**LONG, stream=True)
        async for _ in stream:
            break
        await stream.close()
    wait_for(lambda: metric(server, "request_aborted_total") == before + 1)
    with client_of(server) as again:
        assert again.chat.completions.create(model="tiny", messages=HELLO, **QUIET).choices
