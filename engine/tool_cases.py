"""Tool calls of two endpoints compared: the same questions, asked greedily, and what became of them.

As vendor verifiers do it (K2-Vendor-Verifier): does an endpoint call where the other calls, the same tool, with
arguments that are valid? Answers in words are not compared. The questions are `tool_cases.json`, written for this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from kernelwright.engine.client import EngineClient

MAX_TOKENS = 256


class ToolCase(BaseModel, frozen=True, extra="forbid"):
    """One question, the tools on offer (JSON schemas by name), and the tool that a good answer calls, if any."""

    name: str
    messages: tuple[dict[str, Any], ...]
    functions: tuple[dict[str, Any], ...]
    tool_choice: str | dict[str, Any]
    expected: str | None

    def request(self, max_tokens: int = MAX_TOKENS) -> dict[str, Any]:
        """Return the fields of a chat request, drawn greedily; one call at most."""
        return {
            "messages": list(self.messages),
            "tools": [{"type": "function", "function": function} for function in self.functions],
            "tool_choice": self.tool_choice,
            "parallel_tool_calls": False,
            "temperature": 0,
            "max_tokens": max_tokens,
        }


class ToolAnswer(BaseModel, frozen=True, extra="forbid"):
    """What an endpoint said to one case; `calls` are (name, arguments as text)."""

    case: str
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.calls)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two endpoints, `a` the reference, over the same cases. Shares are of cases, from 0 to 1."""

    cases: int
    same_tool: float
    """The same tools in the same order, or both none."""
    same_finish: float
    both_valid: float
    """Every call of either has arguments that are valid under its tool's schema."""
    agreed: float
    """All three."""
    trigger_f1: float
    """F1 of "b calls a tool" with "a calls a tool" as the truth; 1 where neither ever calls."""
    expected_a: float
    """Cases in which a called the expected tool first, or none where none is expected."""
    expected_b: float
    differing: tuple[str, ...]
    """Names of the cases that did not agree."""


def load_cases(path: Path | None = None) -> tuple[ToolCase, ...]:
    """Return the shipped cases, or those of a file of the same form."""
    text = (path or Path(__file__).with_name("tool_cases.json")).read_text(encoding="utf-8")
    body = json.loads(text)
    functions = {function["name"]: function for function in body["tools"]}
    return tuple(
        ToolCase(functions=tuple(functions[name] for name in case.pop("tools")), **case) for case in body["cases"]
    )


def ask(client: EngineClient, case: ToolCase, max_tokens: int = MAX_TOKENS) -> ToolAnswer:
    """Put `case` to an endpoint. Raises EngineFailed as the client does."""
    request = case.request(max_tokens)
    return read_answer(case, client.chat(request.pop("messages"), **request))


def read_answer(case: ToolCase, body: dict[str, Any]) -> ToolAnswer:
    """Return what the first choice of a chat's response object did."""
    choice = body["choices"][0]
    calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
    told = tuple((call["name"], call["arguments"]) for call in calls)
    return ToolAnswer(case=case.name, calls=told, finish=choice["finish_reason"])


def is_valid(case: ToolCase, answer: ToolAnswer) -> bool:
    """Return whether every call names a tool on offer and has arguments that are valid JSON under its schema."""
    import jsonschema

    schemas = {function["name"]: function["parameters"] for function in case.functions}
    for name, arguments in answer.calls:
        try:
            if name not in schemas or list(
                jsonschema.Draft202012Validator(schemas[name]).iter_errors(json.loads(arguments))
            ):
                return False
        except ValueError:
            return False
    return True


def agreement(cases: Sequence[ToolCase], a: Sequence[ToolAnswer], b: Sequence[ToolAnswer]) -> Agreement:
    """Compare the answers of two endpoints to `cases`, in the cases' order. Raises WrongUse when they do not match."""
    names = [case.name for case in cases]
    if not names or [x.case for x in a] != names or [x.case for x in b] != names:
        raise WrongUse("the answers are not those to the cases, one each, in order", "Ask both endpoints every case")
    rows = list(zip(cases, a, b, strict=True))
    tools = [x.tools == y.tools for _, x, y in rows]
    finishes = [x.finish == y.finish for _, x, y in rows]
    valid = [is_valid(case, x) and is_valid(case, y) for case, x, y in rows]
    agreed = [all(marks) for marks in zip(tools, finishes, valid, strict=True)]
    return Agreement(
        cases=len(rows),
        same_tool=_share(tools),
        same_finish=_share(finishes),
        both_valid=_share(valid),
        agreed=_share(agreed),
        trigger_f1=_f1([(bool(x.calls), bool(y.calls)) for _, x, y in rows]),
        expected_a=_share([_is_expected(case, x) for case, x, _ in rows]),
        expected_b=_share([_is_expected(case, y) for case, _, y in rows]),
        differing=tuple(name for name, same in zip(names, agreed, strict=True) if not same),
    )


def _is_expected(case: ToolCase, answer: ToolAnswer) -> bool:
    return (answer.tools[0] if answer.tools else None) == case.expected


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / len(marks)


def _f1(pairs: Sequence[tuple[bool, bool]]) -> float:
    hits = sum(truth and said for truth, said in pairs)
    called = sum(truth for truth, _ in pairs) + sum(said for _, said in pairs)
    return 2 * hits / called if called else 1.0
