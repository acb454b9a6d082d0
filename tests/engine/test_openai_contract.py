"""The contract of `serve`, held by the official Python client against a server as users start it.

The model is random and reads bytes, so what is proved is form, not sense; a few tests repeat the essential with real
weights and their tokenizer.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError
from pydantic import BaseModel, Field

from kernelwright.engine.client import ServerProcess
from kernelwright.engine.scripted import END, ScriptedEngine, serve_scripted
from kernelwright.engine.server import ServeOptions
from kernelwright.engine.tool_cases import agreement, ask, is_valid, load_cases

sys.path.append(str(Path(__file__).parent))
from random_schemas import check_answer, schemas

START_S = 240.0
KEY = "kw-secret-4711"
CONTEXT = 4096
HELLO = [{"role": "user", "content": "Hello"}]
QUIET = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def server(make_tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("contract")
    model = make_tiny_model(folder / "tiny.gguf", metadata={"llama.context_length": CONTEXT})
    options = ServeOptions(model=model, port=0, threads=1, api_key=KEY, max_queued=40)
    with ServerProcess.start(options, log=folder / "log") as server:
        server.wait_until_healthy(START_S)
        yield server


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[ServerProcess]:
    with ServerProcess.start(ServeOptions(model=smollm2, port=0, threads=1, served_name="tiny")) as server:
        server.wait_until_healthy(START_S)
        yield server


def client_of(server: ServerProcess, key: str = KEY, **options: Any) -> Any:
    http = httpx.Client(transport=httpx.HTTPTransport(uds=str(server.options.uds)), timeout=120)
    return openai.OpenAI(base_url="http://engine/v1", api_key=key, max_retries=0, http_client=http, **options)


@asynccontextmanager
async def async_client_of(server: ServerProcess) -> AsyncIterator[Any]:
    transport = httpx.AsyncHTTPTransport(uds=str(server.options.uds))
    async with httpx.AsyncClient(transport=transport, timeout=120) as http:
        yield openai.AsyncOpenAI(base_url="http://engine/v1", api_key=KEY, max_retries=0, http_client=http)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    with client_of(server) as client:
        yield client


def metric(server: ServerProcess, name: str) -> float:
    with server.client() as client:
        found = re.search(rf"^kernelwright:{name} (\S+)$", client.metrics(), re.MULTILINE)
    assert found, name
    return float(found[1])


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


# ---- chat, whole and streamed --------------------------------------------------------------------------------------


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


# ---- forms ---------------------------------------------------------------------------------------------------------


class Colour(Enum):
    red = "red"
    green = "grün"


class Part(BaseModel):
    name: str = Field(max_length=8)
    colour: Colour


class Thing(BaseModel):
    count: int = Field(ge=0, le=999)
    parts: list[Part] = Field(max_length=2)
    note: str | None = Field(max_length=5)


def test_parse_gives_the_model(client: Any) -> None:
    for seed in range(3):
        answer = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Thing, seed=seed)
        assert isinstance(answer.choices[0].message.parsed, Thing)


async def test_the_stream_helper_tells_of_content_and_the_model(server: ServerProcess) -> None:
    async with (
        async_client_of(server) as client,
        client.chat.completions.stream(model="tiny", messages=HELLO, response_format=Thing, seed=1) as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    kinds = [event.type for event in events]
    assert {"chunk", "content.delta", "content.done"} == set(kinds)
    assert isinstance(final.choices[0].message.parsed, Thing)
    assert events[-1].type == "content.done" or kinds.count("content.done") == 1


def test_an_answer_cut_short_is_told_as_such(client: Any) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Thing, max_tokens=3)


def test_json_object_and_the_extensions(client: Any) -> None:
    def say(**fields: Any) -> str:
        asked = {"model": "tiny", "messages": HELLO, "max_tokens": 400, "seed": 3, "temperature": 0.7, **fields}
        choice = client.chat.completions.create(**asked).choices[0]
        return choice.message.content if choice.finish_reason == "stop" else ""

    drawn = [say(response_format={"type": "json_object"}, seed=seed) for seed in range(4)]
    assert any(drawn) and all(isinstance(json.loads(text), dict) for text in drawn if text)
    assert re.fullmatch("[a-c]{3}é", say(extra_body={"structured_outputs": {"regex": "[a-c]{3}é"}}))
    assert say(extra_body={"guided_choice": ["left", "right"]}) in ("left", "right")
    assert say(extra_body={"guided_json": {"enum": [7]}}) == "7"
    assert say(extra_body={"guided_grammar": 'start: "a" ("b" | "c")'}) in ("ab", "ac")
    assert say(response_format={"type": "text"}, max_tokens=5) is not None


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["é", "z"]}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


def test_forms_go_with_choices_streams_logprobs_and_a_cached_prompt(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO * 5, "response_format": FORM, "max_tokens": 60}
    answer = client.chat.completions.create(**fields, n=4, logprobs=True, seed=5)
    for choice in answer.choices:
        check_answer(SCHEMA, choice.message.content)
        assert "".join(bytes(entry.bytes).decode("utf-8", "replace") for entry in choice.logprobs.content)
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**fields, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content
    for text in texts:
        check_answer(SCHEMA, text)
    greedy = [client.chat.completions.create(**fields, temperature=0) for _ in range(2)]
    assert greedy[0].choices[0].message.content == greedy[1].choices[0].message.content
    assert greedy[1].usage.prompt_tokens_details.cached_tokens > 0
    legacy = client.completions.create(
        model="tiny", prompt=["x", "y"], max_tokens=60, logprobs=2, echo=True, extra_body={"response_format": FORM}
    )
    for prompt, choice in zip("xy", legacy.choices, strict=True):
        check_answer(SCHEMA, choice.text.removeprefix(prompt))


async def ask_all(server: ServerProcess, forms: list[dict[str, Any]], constrained: bool, **fields: Any) -> list[Any]:
    """Return one choice for each schema, all asked at once."""
    async with async_client_of(server) as client:

        async def draw(number: int, schema: dict[str, Any]) -> Any:
            form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
            asked = {"response_format": form} if constrained else {}
            answer = await client.chat.completions.create(model="tiny", messages=HELLO, seed=number, **asked, **fields)
            return answer.choices[0]

        return await asyncio.gather(*(draw(number, schema) for number, schema in enumerate(forms)))


def check_all(forms: list[dict[str, Any]], choices: list[Any]) -> int:
    """Check every whole answer; return how many there were."""
    whole = [(form, choice) for form, choice in zip(forms, choices, strict=True) if choice.finish_reason == "stop"]
    for form, choice in whole:
        check_answer(form, choice.message.content)
    return len(whole)


FEW = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)


@FEW
@given(forms=st.lists(schemas, min_size=12, max_size=12))
def test_answers_are_valid_under_random_schemas(server: ServerProcess, forms: list[dict[str, Any]]) -> None:
    choices = asyncio.run(ask_all(server, forms, True, max_tokens=1000))
    assert check_all(forms, choices) >= 11, "an answer may only be cut short by an endless number"


@pytest.mark.weights
@settings(FEW, max_examples=1)
@given(forms=st.lists(schemas, min_size=8, max_size=8))
def test_so_they_are_with_a_real_tokenizer(smol: ServerProcess, forms: list[dict[str, Any]]) -> None:
    choices = asyncio.run(ask_all(smol, forms, True, max_tokens=100, temperature=0.8))
    assert check_all(forms, choices) >= 6


def test_the_check_fires_where_no_grammar_holds_the_answer(server: ServerProcess) -> None:
    choices = asyncio.run(ask_all(server, [SCHEMA] * 8, False, max_tokens=40))
    for choice in choices:
        with pytest.raises((ValueError, ValidationError)):
            check_answer(SCHEMA, choice.message.content)


# ---- tools ---------------------------------------------------------------------------------------------------------


class Weather(BaseModel):
    """Weather of a city."""

    city: str = Field(max_length=8)
    unit: Colour


class Clock(BaseModel):
    """Time of day."""

    zone: int = Field(ge=-12, le=14)


TOOLS = [openai.pydantic_function_tool(Weather, name="weather"), openai.pydantic_function_tool(Clock, name="clock")]
KINDS: dict[str, type[BaseModel]] = {"weather": Weather, "clock": Clock}
NAMED = {"type": "function", "function": {"name": "clock"}}


def check_calls(calls: Any) -> list[str]:
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.type == "function" and call.id.startswith("call_")
        KINDS[call.function.name].model_validate_json(call.function.arguments)
    return [call.function.name for call in calls]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_has_to_be_made(client: Any, choice: Any, stream: bool) -> None:
    fields = {"model": "tiny", "messages": HELLO, "tools": TOOLS, "tool_choice": choice, "seed": 4, "max_tokens": 2000}
    fields["parallel_tool_calls"] = False
    if stream:
        with client.chat.completions.stream(**fields) as events:
            kinds = [event.type for event in events]
            answer = events.get_final_completion()
        assert kinds.count("tool_calls.function.arguments.done") == 1 and "content.delta" not in kinds
        assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Weather | Clock)
    else:
        answer = client.chat.completions.create(**fields)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and message.content is None
    names = check_calls(message.tool_calls)
    assert names == ["clock"] if choice is NAMED else len(names) == 1


def test_streamed_calls_arrive_as_the_client_expects(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 3000}
    counts = set()
    for seed in range(3):
        calls: list[dict[str, Any]] = []
        chunks = list(client.chat.completions.create(**fields, seed=seed, stream=True))
        for part in (part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()):
            if part.index == len(calls):
                assert part.id and part.type == "function" and part.function.name
                calls.append({"name": part.function.name, "arguments": ""})
            else:
                assert part.index == len(calls) - 1 and part.id is None and part.function.name is None
            calls[part.index]["arguments"] += part.function.arguments
        for call in calls:
            KINDS[call["name"]].model_validate_json(call["arguments"])
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        counts.add(len(calls))
    assert max(counts) > 1, "several calls in one answer"


def test_none_and_auto(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO, "tools": TOOLS, **QUIET}
    none = client.chat.completions.create(**fields, tool_choice="none")
    plain = client.chat.completions.create(model="tiny", messages=HELLO, **QUIET)
    assert none.choices[0].message.content == plain.choices[0].message.content
    auto = client.chat.completions.create(**fields, tool_choice="auto")
    assert auto.choices[0].message.content and auto.choices[0].finish_reason in ("stop", "length")
    assert auto.usage.prompt_tokens > none.usage.prompt_tokens, "the model is told of the tools"


HERMES = b'Now.\n<tool_call>\n{"name": "clock", "arguments": {"zone": 2}}\n</tool_call>'
LLAMA3 = b'{"name": "clock", "parameters": {"zone": 2}}'
LOOSE = [{"type": "function", "function": {"name": "clock", "parameters": Clock.model_json_schema()}}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("said", "content"), [(HERMES, "Now."), (LLAMA3, None), (b"[%s]" % LLAMA3, None)])
def test_auto_reads_the_usual_forms(said: bytes, content: str | None, stream: bool) -> None:
    with serve_scripted(ScriptedEngine(says=lambda prompt: [*said, END]), max_model_len=4096) as url:
        wait_for(lambda: httpx.get(f"{url}/health", trust_env=False).status_code == 200)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        fields: Any = {"model": "scripted", "messages": HELLO, "tools": LOOSE}
        if stream:
            with client.chat.completions.stream(**fields) as events:
                answer: Any = events.until_done().get_final_completion()
        else:
            answer = client.chat.completions.create(**fields)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", content)
    assert [(c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [("clock", '{"zone": 2}')]


def test_tools_and_a_schema_together(client: Any) -> None:
    fields = {"model": "tiny", "messages": HELLO, "tools": TOOLS, "response_format": FORM, "max_tokens": 2000}
    seen = set()
    for seed in range(6):
        message = client.chat.completions.create(**fields, seed=seed).choices[0].message
        seen.add(message.tool_calls is None)
        check_calls(message.tool_calls) if message.tool_calls else check_answer(SCHEMA, message.content)
    assert seen


@pytest.mark.weights
def test_real_weights_call_with_valid_arguments_and_agree_with_themselves(smol: ServerProcess) -> None:
    cases = [case for case in load_cases() if case.name == "named-event"]
    with smol.client() as client:
        said, again = ([ask(client, case) for case in cases] for _ in range(2))
    assert all(answer.calls and is_valid(case, answer) for case, answer in zip(cases, said, strict=True))
    assert agreement(cases, said, again).agreed == 1.0


# ---- legacy completions --------------------------------------------------------------------------------------------


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
