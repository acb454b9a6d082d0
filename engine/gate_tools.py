"""Do both engines call the same tools? The shipped cases, asked greedily of both, eight at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient
from kernelwright.engine.gate_limits import State
from kernelwright.engine.tool_cases import ToolAnswer, ToolCase, agreement, ask, is_valid

AT_ONCE = 8
ANSWER_TOKENS = 96
SAME, TRIGGER = 0.9, 0.7
"""Least share of cases with the same tools, and least F1 of calling any; below the second it is refused."""

Connect = Callable[[], EngineClient]


class ToolCheck(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Both engines on the same cases; shares from 0 to 1."""

    cases: int
    same_tool: float
    """The same tools in the same order, or none in both."""
    same_finish: float
    both_valid: float
    agreed: float
    trigger_f1: float
    """F1 of "the patched engine calls a tool" with the incumbent as the truth."""
    expected_a: float
    """Cases in which the incumbent called the tool that a good answer calls."""
    expected_b: float
    differing: tuple[str, ...]
    lost: tuple[str, ...] = ()
    """Cases whose arguments are valid from the incumbent and not from the patched engine."""


def compare_tools(incumbent: Connect, patched: Connect, cases: Sequence[ToolCase]) -> ToolCheck:
    """Ask both engines every case. Raises EngineFailed."""
    base, new = (_ask_all(connect, cases) for connect in (incumbent, patched))
    answers = zip(cases, base, new, strict=True)
    lost = tuple(case.name for case, a, b in answers if is_valid(case, a) and not is_valid(case, b))
    return ToolCheck(**asdict(agreement(cases, base, new)), lost=lost)


def _ask_all(connect: Connect, cases: Sequence[ToolCase]) -> list[ToolAnswer]:
    def put(case: ToolCase) -> ToolAnswer:
        with connect() as client:
            return ask(client, case, ANSWER_TOKENS)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(put, cases))


def judge_tools(tools: ToolCheck | None) -> list[tuple[State, str]]:
    """Return (state, reason) where the patched engine calls other tools, or writes arguments that are not valid."""
    if tools is None:
        return []
    found: list[tuple[State, str]] = []
    if tools.trigger_f1 < TRIGGER:
        found.append(("refuse", f"tools: whether one is called agrees to F1 {tools.trigger_f1:.2f} < {TRIGGER}"))
    elif tools.same_tool < SAME:
        found.append(("review", f"tools: the same one in {tools.same_tool:.0%} of {tools.cases} cases < {SAME:.0%}"))
    if tools.lost:
        found.append(("review", f"tools: arguments are no longer valid in {', '.join(tools.lost)}"))
    return found
