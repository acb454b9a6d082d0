"""Metrics say what a plain computation over the whole output says, whatever its shape."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.sandbox import metrics
from kernelwright.sandbox.fidelity import judge_output
from kernelwright.sandbox.metrics import Metrics, measure, slices_of, unravel


def draw_pair(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(shape, dtype=torch.float64, generator=generator)
    return (exact + 1e-4 * torch.randn(shape, dtype=torch.float64, generator=generator)).float(), exact


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=4).filter(lambda s: torch.Size(s).numel() < 40_000),
    block=st.sampled_from([1, 64, 1 << 18]),
    seed=st.integers(0, 1000),
)
def test_sums_equal_those_over_the_whole(shape: list[int], block: int, seed: int) -> None:
    result, exact = draw_pair(tuple(shape), seed)
    before, metrics.BLOCK = metrics.BLOCK, block
    try:
        found, finding = measure(result, exact), judge_output(result, exact.float(), exact)
    finally:
        metrics.BLOCK = before
    error = result.double() - exact
    assert found.max_abs == float(error.abs().max())
    assert found.worst == int(error.abs().reshape(-1).argmax())
    assert found.total == pytest.approx(float(error.square().sum()))
    said = finding.errors
    assert said.bias == pytest.approx(float(error.mean()), abs=1e-12)
    assert said.rms == pytest.approx(float(error.square().mean().sqrt()))
    assert said.relative_frobenius == pytest.approx(float(error.norm() / exact.norm()))
    x = result.double()
    assert said.calc_diff == pytest.approx(float(1 - 2 * (x * exact).sum() / (x * x + exact * exact).sum()), abs=1e-13)
    assert exact[said.worst_index] == exact.reshape(-1)[found.worst]
    for name, slices in slices_of(found).items():
        if not name.startswith("axis"):
            continue
        axis = int(name.split()[1])
        dims = [d for d in range(len(shape)) if d != axis] if len(shape) > 1 else []
        squares = error.reshape(shape if len(shape) > 1 else (1, *shape)).square()
        assert torch.allclose(slices, (squares.mean(dims) if dims else squares).sqrt().reshape(-1), rtol=1e-9), name


def test_ulps_are_those_of_the_outputs_dtype() -> None:
    exact = torch.tensor([[1.0, 1.5, -3.0, 1024.0, 2.0**-140]], dtype=torch.float64).repeat(1, 4)
    for dtype, ulp in ((torch.float32, 2.0**-23), (torch.bfloat16, 2.0**-7)):
        result = (exact.to(dtype).double() * 1.0).to(dtype)
        up = torch.nextafter(result, torch.full_like(result, torch.inf)) if dtype == torch.float32 else result
        said = judge_output(up, result, exact).errors
        if dtype == torch.float32:
            assert said.ulp_p50 == said.ulp_max == 1.0
            assert said.max_abs == 1024 * ulp


def test_a_bias_shows_where_the_rms_does_not() -> None:
    _, exact = draw_pair((64, 64), 0)
    truncated = (exact.float().view(torch.int32) & ~0xFF).view(torch.float32)
    rounded = ((exact.float().view(torch.int32) + 0x80) & ~0xFF).view(torch.float32)
    by_size = [judge_output(r.abs(), exact.float().abs(), exact.abs()).errors for r in (truncated, rounded)]
    assert by_size[0].bias < -0.5 * by_size[0].rms and abs(by_size[1].bias) < 0.1 * by_size[1].rms


def test_counts_of_what_is_not_finite() -> None:
    result, exact = draw_pair((4, 8), 0)
    result[0, :3], result[1, 0], result[2, :2] = float("nan"), float("inf"), float("-inf")
    said = judge_output(result, exact.float(), exact).errors
    assert (said.num_nan, said.num_posinf, said.num_neginf, said.num_mismatched) == (3, 1, 2, 6)
    assert said.gate == "non-finite values" and said.max_abs < 1e-2, "errors are over what is finite"
    assert Metrics.model_validate_json(json.dumps(said.model_dump(mode="json"), allow_nan=False)) == said


def test_an_empty_output_is_nothing_to_fail() -> None:
    empty = torch.zeros(0, 8)
    assert judge_output(empty, empty, empty.double()).failed == ""


@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 10**6))
def test_unravel(shape: list[int], seed: int) -> None:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    index = seed % numbers.numel()
    assert int(numbers[unravel(index, tuple(shape))]) == index
