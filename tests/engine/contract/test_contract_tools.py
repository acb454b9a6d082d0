"""The contract of `serve`, held by the official Python client: tool calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

from kernelwright.engine.client import ServerProcess
from kernelwright.engine.scripted import END, ScriptedEngine, serve_scripted
from kernelwright.engine.tool_cases import agreement, ask, is_valid, load_cases
from tests.engine.contract.asking import (
    FORM,
    HELLO,
    QUIET,
    SCHEMA,
    Colour,
    wait_for,
)

sys.path.append(str(Path(__file__).parents[1]))
from random_schemas import check_answer


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
