"""Which phase of serving a range of an engine names: vLLM's, SGLang's and our own."""

from __future__ import annotations

import re
from typing import NamedTuple

_VLLM = re.compile(r"execute_(?:\d+_)?context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
_SGLANG = re.compile(r"step\[(\w+)(?:\s+bs=(\d+))?(?:\s+toks=(\d+))?")
_OURS = re.compile(r"step\|(\w+)\|(\d+)\|(\d+)$")
_CAPTURE = re.compile(r"capture_(\d+)_(?:FULL|PIECEWISE)|capture_traces/bs_(\d+)")
_LENGTHS = re.compile(r"(sqsq|sqsk|sq|sk)(\d+)")
_SGLANG_PHASES = {
    "EXTEND": "prefill", "PREFILL": "prefill", "DECODE": "decode", "MIXED": "mixed", "TARGET_VERIFY": "verify",
    "DRAFT_EXTEND": "draft", "IDLE": "idle", "SPLIT_PREFILL": "prefill",
}  # fmt: skip


class Lengths(NamedTuple):
    """Sums over the sequences of one step: of query lengths, of lengths of keys, of their products, and of the squares
    of query lengths.
    """

    queries: int
    keys: int
    products: int
    squares: int


class Step(NamedTuple):
    """What a range says of the step in it."""

    phase: str
    """`prefill`, `decode`, `mixed`, `verify`, `draft`, `capture`, `idle`."""
    sequences: int
    tokens: int
    """Tokens that enter the model; 0: not said."""
    prefill: Lengths | None = None
    decode: Lengths | None = None


def parse_step(name: str) -> Step | None:
    """Return what the range `name` tells of a step of an engine; None if it is no such range.

    Formats: vLLM (`vllm/v1/worker/gpu_worker.py`, plain and detailed annotations), SGLang (`step[EXTEND bs=… toks=…]`),
    the embedded engine (`step|phase|tokens|sequences`), and ranges of graph capture of both.
    """
    if match := _VLLM.match(name):
        return _vllm_step(int(match[1]), match[2], int(match[3]), match[4])
    if match := _SGLANG.match(name):
        phase = _SGLANG_PHASES.get(match[1].upper(), match[1].lower())
        sequences = int(match[2] or 0)
        return Step(phase, sequences, int(match[3] or (sequences if phase == "decode" else 0)))
    if match := _OURS.match(name):
        return Step(match[1], int(match[3]), int(match[2]))
    if match := _CAPTURE.match(name):
        return Step("capture", 0, int(match[1] or match[2]))
    return None


def _vllm_step(context: int, context_detail: str, generation: int, generation_detail: str) -> Step:
    prefill, decode = _lengths(context_detail), _lengths(generation_detail)
    phase = "mixed" if context and generation else "decode" if generation else "prefill"
    tokens = (prefill.queries if prefill else _plain_tokens(context_detail)) + (
        decode.queries if decode else generation
    )
    return Step(phase, context + generation, tokens, prefill, decode)


def _lengths(detail: str) -> Lengths | None:
    """Read `sq32sk55086sqsq32sqsk55086`."""
    found = {name: int(value) for name, value in _LENGTHS.findall(detail)}
    if "sq" not in found or "sk" not in found:
        return None
    return Lengths(found["sq"], found["sk"], found.get("sqsk", 0), found.get("sqsq", 0))


def _plain_tokens(detail: str) -> int:
    """Read `888_788544`: tokens and the sum of their squares."""
    first = detail.partition("_")[0]
    return int(first) if first.isdigit() else 0
