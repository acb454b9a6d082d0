"""Calls out of text, whatever its pieces are; what a chat template is given; the grammar of calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kernelwright.engine.chat_messages import Message, native, spelled_out
from kernelwright.engine.checkpoint import read_tokenizer
from kernelwright.engine.grammar import check_grammar
from kernelwright.engine.openai_api import ChatRequest
from kernelwright.engine.text import load_text
from kernelwright.engine.tool_calls import CallReader

Told = tuple[str, list[tuple[str, str]]]


def read(text: str, size: int, most: int = 16, bare: bool = True) -> Told:
    """Return words and calls of `text`, fed in pieces of `size` characters."""
    reader = CallReader(frozenset({"f", "g"}), most, bare)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    words, calls = "", list[list[str]]()
    for heard in [*(reader.feed(piece) for piece in pieces), reader.flush()]:
        words += heard.content
        for call in heard.calls:
            if call.id is not None:
                assert call.index == len(calls) and call.name
                calls.append([call.name, ""])
            calls[call.index][1] += call.arguments
    return words, [(name, arguments) for name, arguments in calls]


F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
ONE = [("f", '{"a": 1}')]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello  \n", ("hello  \n", [])),
        ("", ("", [])),
        (F, ("", ONE)),
        (f"Let me see.\n\n{F}\n", ("Let me see.", ONE)),
        (f"{F}\n{F}", ("", ONE * 2)),
        ('<tool_call>{"arguments": {"x": [1, "}"]}, "name": "new"}</tool_call>', ("", [("new", '{"x": [1, "}"]}')])),
        ('<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
        ('<tool_call>{"name": "f", "arguments": {"a": "\\"<tool_call>{"}}', ("", [("f", '{"a": "\\"<tool_call>{"}')])),
        ('<tool_call>{"name": "f", "arguments": {"a":', ("", [("f", '{"a":')])),
        ('{"name": "f", "parameters": {"a": 1}}', ("", ONE)),
        ('{"type": "function", "name": "f", "parameters": {"a": 1}}', ("", ONE)),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', ("", ONE)),
        ('[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]', ("", [*ONE, ("g", "{}")])),
        ('{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', ("", [*ONE, ("g", "{}")])),
        # words that look like calls
        ("<tool_ca", ("<tool_ca", [])),
        ("<tool_call> no", ("<tool_call> no", [])),
        ("<tool_call>[]</tool_call>", ("<tool_call>[]</tool_call>", [])),
        ('{"name": "nobody", "arguments": {}}', ('{"name": "nobody", "arguments": {}}', [])),
        (' {"name": "f"}', (' {"name": "f"}', [])),
        ('{"a": 1} is JSON', ('{"a": 1} is JSON', [])),
        ("[1, 2]", ("[1, 2]", [])),
        ('{name: "f"}', ('{name: "f"}', [])),
        ('{"name": "f", "argu', ('{"name": "f", "argu', [])),
    ],
)
def test_words_and_calls_are_the_same_however_they_arrive(text: str, told: Told) -> None:
    for size in (1, 2, 3, 7, 1000):
        assert read(text, size) == told


def test_calls_beyond_the_limit_are_dropped_and_bare_objects_can_be_words() -> None:
    assert read(f"{F}{F} tail", 3, most=1) == ("", ONE)
    assert read('{"name": "f", "arguments": {}}', 3, bare=False) == ('{"name": "f", "arguments": {}}', [])


def test_json_that_is_no_call_is_not_held_back() -> None:
    reader = CallReader(frozenset({"f"}), 1)
    assert reader.feed('{"title": "a lo').content == '{"title": "a lo'


# ---- messages ------------------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT = [
    Message.model_validate(message)
    for message in (
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "user", "content": "go on"},
    )
]


def test_a_template_that_knows_tools_gets_them_as_they_are() -> None:
    flat = native(CHAT)
    assert flat[0] == {"role": "system", "content": "Be brief."}
    assert flat[1] == {"role": "user", "content": "ab"}
    assert flat[2]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert (flat[3]["role"], flat[3]["name"], flat[3]["tool_call_id"]) == ("tool", "f", "c1")


def test_another_template_gets_hermes_words() -> None:
    flat = spelled_out(CHAT, "TOOLS")
    assert [message["role"] for message in flat] == ["system", "user", "assistant", "user", "user"]
    assert flat[0]["content"] == "Be brief.\n\nTOOLS"
    assert flat[2]["content"] == F
    assert flat[3]["content"].count("<tool_response>") == 2
    assert spelled_out(CHAT[1:2], "TOOLS")[0] == {"role": "system", "content": "TOOLS"}
    assert spelled_out(CHAT[1:2], None) == [{"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "'image_url' cannot"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "'input_audio' cannot"),
        ({"role": "user", "content": None}, "needs a content"),
        ({"role": "assistant", "content": None}, "needs a content"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "only messages of role assistant"),
        ({"role": "function", "name": "f", "content": "x"}, "role"),
    ],
)
def test_messages_that_are_none_are_refused(message: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Message.model_validate(message)


# ---- what tools ask for --------------------------------------------------------------------------------------------


def tool(name: str, strict: bool | None = None, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields)


TOOLS = [tool("f", a={"type": "integer"}), tool("g")]
NAMED = {"type": "function", "function": {"name": "g"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("fields", "names", "forced", "most"),
    [
        ({}, {"f", "g"}, False, 16),
        ({"tool_choice": "auto", "parallel_tool_calls": False}, {"f", "g"}, False, 1),
        ({"tool_choice": "required"}, {"f", "g"}, True, 16),
        ({"tool_choice": NAMED}, {"g"}, True, 1),
        ({"tool_choice": ALLOWED}, {"g"}, True, 16),
    ],
)
def test_the_choice_decides_what_may_be_called(
    fields: dict[str, Any], names: set[str], forced: bool, most: int
) -> None:
    plan = chat(tools=TOOLS, **fields).plan(None)
    assert plan is not None
    assert (plan.names, plan.forced, plan.most, plan.is_native) == (names, forced, most, False)
    assert (plan.grammar(None) is not None) == forced
    assert all(json.dumps(name) in plan.preface() for name in names)


def test_none_may_be_called_without_tools_or_with_the_choice_none() -> None:
    assert chat().plan(None) is None and chat(tools=[], tool_choice="auto").plan(None) is None
    assert chat(tools=TOOLS, tool_choice="none").plan(None) is None


@pytest.mark.parametrize("form", ["hermes", "llama3"])
@pytest.mark.parametrize("answer", [None, {"type": "object"}])
@pytest.mark.parametrize("fields", [{"tool_choice": "required"}, {"strict": True}, {"parallel_tool_calls": False}])
def test_every_grammar_of_calls_compiles(form: Any, answer: Any, fields: dict[str, Any]) -> None:
    tools = [tool("f", fields.get("strict"), a={"enum": ["é", '"']}), tool("g")]
    plan = chat(tools=tools, **{k: v for k, v in fields.items() if k != "strict"}).plan(form)
    assert plan is not None
    grammar = plan.grammar(answer)
    assert (grammar is None) == (answer is None and "parallel_tool_calls" in fields)
    if grammar is not None:
        check_grammar(grammar)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "'custom' are not served"),
        ({"tools": [tool("f"), tool("f")]}, "same name"),
        ({"tools": [tool("a b")]}, "pattern"),
        ({"tool_choice": "required"}, "needs `tools`"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}, "names 'h'"),
        ({"tools": TOOLS, "tool_choice": "any"}, "none of"),
        ({"tools": TOOLS, "tool_choice": {"type": "mcp"}}, "its type is one of"),
        ({"functions": [{"name": "f"}]}, "give `tools`"),
        ({"function_call": {"name": "f"}}, "give `tool_choice`"),
    ],
)
def test_what_tools_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        chat(**fields)


# ---- templates -----------------------------------------------------------------------------------------------------

KNOWS_HERMES = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool.function.name }} {% endfor %}"
    'as <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>\n{% endif %}'
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls %}{{ call.function.arguments.a }}{% endfor %}\n{% endfor %}"
)
KNOWS_LLAMA3 = '{% if tools is defined %}{"name": …, "parameters": …}{{ tools[0].function.name }}{% endif %}go'
KNOWS_NONE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "form"), [(KNOWS_HERMES, "hermes"), (KNOWS_LLAMA3, "llama3"), (KNOWS_NONE, None), (None, None)]
)
def test_the_template_says_how_calls_are_written(
    make_tiny_model: Callable[..., Path], tmp_path: Path, template: str | None, form: str | None
) -> None:
    path = make_tiny_model(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": template})
    text = load_text(read_tokenizer(path))
    assert text.call_form == form
    if form is None:
        return
    plan = chat(tools=TOOLS).plan(text.call_form)
    assert plan is not None and plan.is_native
    shown = text.decode(text.render_chat(native(CHAT), plan.declared()))
    assert "f g as" in shown and "assistant:1" in shown if form == "hermes" else shown.endswith("fgo")
    assert "f g as" not in text.decode(text.render_chat(native(CHAT[1:2])))
