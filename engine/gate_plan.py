"""How much a gate measures: the least that is never cut, and what the time budget adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.engine.checkpoint import read_tokenizer
from kernelwright.engine.gate_speed import DECODE_NEW, PREFILL_PROMPT, Kind, Timings
from kernelwright.engine.gate_texts import Library, Run, plan_batched, plan_decode, plan_prefill
from kernelwright.engine.tokenizer import build_tokenizer

DECODE_TOKENS, BATCHED_TOKENS, PREFILL_TOKENS = 1024, 4096, 16384
"""Forced tokens; a gate with less than FULL_S seconds, or FULL_NULLS times what the incumbent's null took, takes the
brief ones and says so; one with ROOMY_S or more reads every text that is shipped through prefill.
"""
FULL_S, FULL_NULLS, ROOMY_S = 360.0, 14.0, 1200.0
UNTOUCHED_TOKENS = 4096
"""Prefill ends here when no kernel was called in it and every row is the incumbent's, bit for bit."""
BRIEF_DECODE, BRIEF_BATCHED, BRIEF_PREFILL = 512, 1024, 2048
LONGEST, ANY_LENGTH = 2047, 1 << 20
LAUNCHES, TOOL_CASES, ALL_CASES = 3, 5, 1000
MOST_ROUNDS: dict[Kind, int] = {"decode": 3, "prefill": 6}
PREFILL_FIRST = 2


@dataclass(frozen=True, slots=True)
class GatePlan:
    library: Library
    decode_tokens: int = DECODE_TOKENS
    batched_tokens: int = BATCHED_TOKENS
    prefill_tokens: int = PREFILL_TOKENS
    launches: int = LAUNCHES
    longest: int = LONGEST
    """Tokens of a context at most; a gate with ROOMY_S seconds goes as far as the model."""
    untouched_tokens: int = UNTOUCHED_TOKENS
    tool_cases: int = TOOL_CASES
    """Shipped tool-call cases that are asked, spread over all of them."""
    brief: bool = False
    """Fewer forced tokens than a gate should have, for want of time."""

    @property
    def rows(self) -> int:
        return self.decode_tokens + self.batched_tokens + self.prefill_tokens

    @property
    def total(self) -> int:
        """Rows to compare and pairs to time: the length of the progress bar."""
        return self.rows + 2 * self.launches * (1 + PREFILL_FIRST)

    def within(self, left_s: float, null_s: float) -> GatePlan:
        """Return the plan that fits into `left_s` on a machine where the incumbent's null took `null_s` seconds."""
        return self if self.longest == ANY_LENGTH or left_s >= FULL_NULLS * null_s else shorten(self.library)

    def runs(self, card: dict[str, Any]) -> Iterator[Run]:
        """Yield all scoring runs for the model of `card` (its entry of /v1/models)."""
        longest = min(int(card["max_model_len"]) - 1, self.longest)
        yield from plan_decode(self.library, self.decode_tokens, longest)
        yield from plan_batched(self.library, self.batched_tokens, longest)
        yield from plan_prefill(self.library, self.prefill_tokens, longest)

    def rounds(self, timings: Timings, left_s: float) -> dict[Kind, int]:
        """Return ABBA rounds for the next launch: the least in the first, then what fits into `left_s` seconds."""
        least: dict[Kind, int] = {"decode": 1, "prefill": PREFILL_FIRST}
        coming = self.launches - len(timings.launches["decode"])
        if not timings.launches["decode"] or coming <= 0:
            return least
        cost = {
            kind: sum(launches[-1].incumbent + launches[-1].candidate) / len(launches[-1].incumbent) * 2 * tokens
            for kind, launches, tokens in (
                ("decode", timings.launches["decode"], DECODE_NEW),
                ("prefill", timings.launches["prefill"], PREFILL_PROMPT),
            )
        }
        spare = left_s / coming - sum(least[kind] * cost[kind] for kind in least)
        rounds = dict(least)
        # prefill first: it is shorter and has the tighter bar (not slower, rather than some times as fast)
        for kind in ("prefill", "decode"):
            more = min(MOST_ROUNDS[kind] - least[kind], max(0, int(spare / 2 / cost[kind])))
            rounds[kind] += more
            spare -= more * cost[kind]
        return rounds


def plan_gate(model: Path, budget_s: float) -> GatePlan:
    """Return the plan for `model`, whose own tokenizer cuts the texts. Raises BrokenInput as `read_tokenizer` does."""
    library = Library(build_tokenizer(read_tokenizer(model)).encode)
    if budget_s < FULL_S:
        return shorten(library)
    if budget_s < ROOMY_S:
        return GatePlan(library)
    prefill = max(PREFILL_TOKENS, library.size)
    return GatePlan(
        library, prefill_tokens=prefill, longest=ANY_LENGTH, untouched_tokens=prefill, tool_cases=ALL_CASES
    )  # fmt: skip


def shorten(library: Library) -> GatePlan:
    """Return the brief plan."""
    return GatePlan(library, BRIEF_DECODE, BRIEF_BATCHED, BRIEF_PREFILL, tool_cases=0, brief=True)
