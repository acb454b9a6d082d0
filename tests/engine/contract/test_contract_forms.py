"""The contract of `serve`, held by the official Python client: answers that keep to a form."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError

from kernelwright.engine.client import ServerProcess
from tests.engine.contract.asking import (
    FORM,
    HELLO,
    SCHEMA,
    Thing,
    async_client_of,
)

sys.path.append(str(Path(__file__).parents[1]))
from random_schemas import check_answer, schemas


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
