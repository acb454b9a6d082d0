"""The contract of `serve`, held by the official Python client: chat, whole and streamed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kernelwright.engine.client import ServerProcess
from tests.engine.contract.asking import (
    HELLO,
    QUIET,
    async_client_of,
)


def test_a_completion_has_every_field(client: Any) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, **QUIET)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == "tiny"
    assert abs(answer.created - time.time()) < 100 and answer.system_fingerprint.startswith("fp_")
    (choice,) = answer.choices
    assert choice.index == 0 and choice.finish_reason in ("stop", "length") and choice.logprobs is None
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.message.refusal is None and choice.message.tool_calls is None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    again = client.chat.completions.create(model="tiny", messages=HELLO, **QUIET)
    assert again.id != answer.id and again.system_fingerprint == answer.system_fingerprint


def test_streams_have_one_envelope_and_usage_where_asked(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO, **QUIET}
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    whole = client.chat.completions.create(**fields)
    assert {(chunk.id, chunk.object, chunk.created) for chunk in chunks} == {
        (chunks[0].id, "chat.completion.chunk", chunks[0].created)
    }
    *said, last = chunks
    assert last.choices == [] and last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in said)
    assert said[0].choices[0].delta.role == "assistant" and said[1].choices[0].delta.role is None
    assert "".join(chunk.choices[0].delta.content for chunk in said) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in said[:-1]] == [None] * (len(said) - 1)
    assert said[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    plain = list(client.chat.completions.create(**fields, stream=True))
    assert len(plain) == len(said) and "usage" not in plain[0].model_dump(exclude_unset=True)


async def test_the_asynchronous_client_gets_the_same(server: ServerProcess) -> None:
    fields = {"model": "tiny", "messages": HELLO, **QUIET}
    async with async_client_of(server) as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**fields) for _ in range(5)))
        stream = await client.chat.completions.create(**fields, stream=True)
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert {answer.choices[0].message.content for answer in answers} == {said}


def test_the_framing_of_a_stream(client: Any) -> None:
    raw = client.with_options(default_headers={"Origin": "https://elsewhere.example"})
    with raw.chat.completions.with_streaming_response.create(
        model="tiny", messages=HELLO, stream=True, **QUIET
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert not [name for name in response.headers if name.startswith("access-control")], "no CORS unasked"
        body = b"".join(response.iter_bytes())
    events = body.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    assert all(event.startswith(b"data: {") and b"\n" not in event for event in events[:-2])


def test_choices_seeds_and_temperature(client: Any) -> None:
    def draw(**fields: Any) -> list[str]:
        asked = {"model": "tiny", "messages": HELLO, "n": 3, "max_completion_tokens": 12, **fields}
        choices = client.chat.completions.create(**asked).choices
        assert [choice.index for choice in choices] == [0, 1, 2]
        return [choice.message.content for choice in choices]

    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    assert len(set(draw(seed=1))) == 3 and len(set(draw(temperature=0))) == 1
    with_nulls = dict.fromkeys(("top_p", "stop", "seed", "logit_bias", "tools", "response_format", "user"))
    assert len(draw(**with_nulls)) == 3


def test_logprobs(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO, **QUIET, "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**fields)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True) and entry.logprob == pytest.approx(tops[0])
    chunks = client.chat.completions.create(**fields, stream=True)
    streamed = [entry.logprob for chunk in chunks for entry in chunk.choices[0].logprobs.content]
    assert streamed == pytest.approx([entry.logprob for entry in content], abs=1e-4)
    bare = client.chat.completions.create(model="tiny", messages=HELLO, **QUIET, logprobs=True)
    assert all(entry.top_logprobs == [] for entry in bare.choices[0].logprobs.content)


def test_bias_penalties_and_stops(client: Any) -> None:
    letter = 3 + ord("x") - 33 + 1  # the byte's place among the printable ones, behind three control tokens
    for token in range(letter - 3, letter + 3):
        answer = client.chat.completions.create(
            model="tiny", messages=HELLO, **QUIET, logit_bias={str(token): 100}, logprobs=True
        )
        assert len({entry.token for entry in answer.choices[0].logprobs.content}) == 1
    said = client.chat.completions.create(
        model="tiny", messages=HELLO, **QUIET, frequency_penalty=2, presence_penalty=2
    )
    assert said.choices[0].message.content
    fields = {"model": "tiny", "messages": HELLO, "max_tokens": 20, "extra_body": {"guided_regex": "abc-def-ghi"}}
    cut = client.chat.completions.create(**fields, stop=["zz", "-g"])
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("abc-def", "stop")
    chunks = client.chat.completions.create(**fields, stop="f-", stream=True)
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "abc-de"


def test_messages_of_every_kind(client: Any) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]},
    ]
    harmless = {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "extra_body": {"new": 1}}
    assert client.chat.completions.create(model="tiny", messages=messages, **QUIET, **harmless).choices
