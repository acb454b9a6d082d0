"""The shipped tool cases and the score of two endpoints' answers to them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kernelwright.engine import tool_cases
from kernelwright.engine.client import EngineClient
from kernelwright.engine.grammar import check_grammar
from kernelwright.engine.openai_api import ChatRequest
from kernelwright.engine.scripted import END, ScriptedEngine, serve_scripted
from kernelwright.engine.tool_cases import ToolAnswer, ToolCase, agreement, ask, is_valid, load_cases
from kernelwright.profiles.errors import WrongUse

CASES = load_cases()


def test_there_are_enough_and_the_file_is_small() -> None:
    assert len(CASES) >= 24 and len({case.name for case in CASES}) == len(CASES)
    assert Path(tool_cases.__file__).with_name("tool_cases.json").stat().st_size <= 40 * 1024
    assert sum(case.expected is None for case in CASES) >= 4, "cases in which nothing is to be called"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_is_a_request_that_we_serve_with_sound_schemas(case: ToolCase) -> None:
    for function in case.functions:
        jsonschema.Draft202012Validator.check_schema(function["parameters"])
    assert case.expected is None or case.expected in {function["name"] for function in case.functions}
    asked = ChatRequest.model_validate({"model": "m"} | case.request())
    plan = asked.model_copy(update={"tool_choice": "required"}).plan(None)
    assert plan is not None
    grammar = plan.grammar(None)
    assert grammar is not None
    check_grammar(grammar)


def answer(case: ToolCase, *calls: tuple[str, str], finish: str = "tool_calls") -> ToolAnswer:
    return ToolAnswer(case=case.name, calls=calls, finish=finish)


CASE = CASES[0]
GOOD = answer(CASE, ("get_weather", '{"city": "Oslo"}'))
NONE = answer(CASE, finish="stop")


def test_arguments_are_held_against_the_schema() -> None:
    assert is_valid(CASE, GOOD) and is_valid(CASE, NONE)
    for arguments in ('{"city": 3}', "{}", '{"city": "Oslo"', '{"city": "Oslo", "more": 1}', "[]"):
        assert not is_valid(CASE, answer(CASE, ("get_weather", arguments)))
    assert not is_valid(CASE, answer(CASE, ("get_rain", "{}")))


@pytest.mark.parametrize(
    ("other", "differs_in"),
    [
        (GOOD, ""),
        (answer(CASE, ("get_weather", '{"city": "Bergen", "unit": "celsius"}')), ""),
        (answer(CASE, ("get_weather", '{"city": 1}')), "both_valid"),
        (answer(CASE, ("get_time", '{"zone": "Europe/Oslo"}')), "same_tool"),
        (answer(CASE, ("get_weather", '{"city": "Oslo"}'), finish="stop"), "same_finish"),
        (answer(CASE, *GOOD.calls, *GOOD.calls), "same_tool"),
    ],
)
def test_each_way_to_differ_is_seen(other: ToolAnswer, differs_in: str) -> None:
    found = agreement([CASE], [GOOD], [other])
    assert found.agreed == (0.0 if differs_in else 1.0)
    for field in ("same_tool", "same_finish", "both_valid"):
        assert getattr(found, field) == (0.0 if field == differs_in else 1.0)
    assert found.differing == ((CASE.name,) if differs_in else ())


def test_triggers_and_expectations_are_counted() -> None:
    cases = CASES[:4]
    calls = [answer(case, (case.expected or "", "{}")) for case in cases]
    silent = [answer(case, finish="stop") for case in cases]
    found = agreement(cases, calls, [*calls[:2], *silent[2:]])
    assert found.trigger_f1 == pytest.approx(2 * 2 / 6) and found.expected_a == 1.0 and found.expected_b == 0.5
    assert agreement(cases, silent, silent).trigger_f1 == 1.0


def test_answers_to_other_cases_are_refused() -> None:
    with pytest.raises(WrongUse, match="in order"):
        agreement([CASE, CASES[1]], [GOOD], [GOOD])
    with pytest.raises(WrongUse):
        agreement([CASES[1]], [GOOD], [GOOD])


def test_a_case_is_asked_over_http() -> None:
    call = b'<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    engine = ScriptedEngine(says=lambda prompt: [*call, END])
    with serve_scripted(engine, max_model_len=4096) as url, EngineClient(url) as client:
        while not client.is_healthy():
            pass
        said = ask(client, CASE)
    assert said == GOOD
    assert engine.submitted[0][1].temperature == 0
    assert json.dumps("get_weather").encode() in bytes(engine.submitted[0][0]), "the model is told of its tools"
