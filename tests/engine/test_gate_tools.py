"""Tool calls in the gate: other tools, none, or broken arguments are told; the same ones pass."""

from __future__ import annotations

import pytest

from kernelwright.engine.gate_tools import ToolCheck, compare_tools, judge_tools
from kernelwright.engine.tool_cases import load_cases

SAME = ToolCheck(
    cases=10, same_tool=1.0, same_finish=1.0, both_valid=0.5, agreed=0.5, trigger_f1=1.0, expected_a=0.4,
    expected_b=0.4, differing=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "states"),
    [
        ({}, []),
        ({"same_tool": 0.8}, ["review"]),
        ({"trigger_f1": 0.5, "same_tool": 0.5}, ["refuse"]),
        ({"lost": ("weather",)}, ["review"]),
    ],
)
def test_each_rule_fires(change: dict[str, object], states: list[str]) -> None:
    assert [state for state, _ in judge_tools(SAME.model_copy(update=change))] == states
    assert judge_tools(None) == []


class Answering:
    """A client that calls the expected tool, or what `says` makes of it."""

    def __init__(self, says: str) -> None:
        self.says = says

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *error: object) -> None: ...

    def chat(self, messages: object, tools: list[dict[str, dict[str, object]]], **fields: object) -> dict[str, object]:
        if self.says == "nothing":
            return {"choices": [{"message": {"content": "no"}, "finish_reason": "stop"}]}
        function = tools[0]["function"]
        arguments = "{}" if self.says == "broken" else '{"anything": 1}'
        name = "none_of_them" if self.says == "another" else function["name"]
        call = {"function": {"name": name, "arguments": arguments if self.says != "broken" else "{"}}
        return {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}


def test_two_engines_are_asked_the_same_and_compared() -> None:
    cases = load_cases()[:10]
    found = {
        says: compare_tools(lambda: Answering("right"), lambda says=says: Answering(says), cases)  # type: ignore[arg-type, misc, return-value]
        for says in ("right", "another", "nothing", "broken")
    }
    assert found["right"].same_tool == found["right"].same_finish == 1.0 and judge_tools(found["right"]) == []
    assert found["another"].same_tool == 0.0 and judge_tools(found["another"])
    assert judge_tools(found["nothing"])[0][0] == "refuse"
    assert set(found["broken"].lost) <= {case.name for case in cases}
