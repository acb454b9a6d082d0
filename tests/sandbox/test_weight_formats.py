"""The judge, in its cage, on a family's default point for every kind of weights, and on a broken one of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.families.rendering import LANES
from kernelwright.kernels.families.tiled import KINDS
from kernelwright.kernels.families.tiled_linear import of_kind
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from tests.sandbox.posed import SETS, SLOW, extend, open_bench, require_cage, when_quiet

pytestmark = [
    pytest.mark.cage,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(detect_isa() not in LANES, reason="no family is rendered for this processor"),
]
BROKEN = {
    "q4_0": ("(in[2 + k] >> 4) ^ 8", "(in[2 + k] & 15) ^ 8"),
    "q8_0": ("memcpy(block + 2 * lane, in, 2)", "memcpy(block + 2 * lane, row, 2)"),
    "q4_k": ("s[sub - 4] >> 6 << 4", "s[sub - 4] >> 6 << 3"),
    "q6_k": ("return {d * to_float", "return {set(1.0001f) * d * to_float"),
    "bf16": ("k % 2 ?", "k % 2 == 0 ?"),
}
"""Kind → a slip in its part: nibbles, scales, bits of scales, their size, order."""


def pose_linear(kind: str) -> Problem:
    """Return a layer whose incumbent repeats its work, so that what is right is faster for certain."""
    definition = define(f"{kind}_linear", n=200, k=512)
    op = op_of(definition)
    return Problem(
        target=None,
        definition=definition,
        contract=op.contract(definition),
        incumbent=extend(op.incumbent(definition), SLOW),
        workloads=(),
        ranges={"T": AxisRange(low=1, high=8)},
        timed_axes={"T": 3},
        num_weight_sets=SETS,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_is_found_right_and_a_slip_in_it_wrong(kind: str, tmp_path: Path) -> None:
    require_cage()
    problem, family = pose_linear(kind), of_kind(kind)
    good = family.render(problem.definition, family.default_point(), detect_isa())
    right, wrong = BROKEN[kind]
    text = good.sources[0].content
    assert text.count(right) == 1
    sources = (SourceFile(path="kernel.cpp", content=text.replace(right, wrong)),)
    bad = Candidate.model_validate({**good.model_dump(), "sources": sources})
    with open_bench(problem, tmp_path) as bench:
        verdict = when_quiet(lambda: bench.search(good))
        assert verdict.outcome == "faster", verdict.reason
        assert bench.search(bad).outcome == "incorrect"
