"""The check of every timed element sees one wrong element, row or NaN, and accepts honest rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.sandbox.projections import agree_in_every_element

SHAPES = st.sampled_from([(1, 300), (5, 64), (3, 4, 32), (2, 16, 2, 16), (40, 17), (7,), (6, 3)])


def draw_output(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def somewhere(tensor: torch.Tensor, seed: int) -> int:
    return seed % tensor.numel()


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 10**6), size=st.sampled_from([1e-3, 1.0, 1e4]))
def test_a_single_wrong_element_is_seen(shape: tuple[int, ...], seed: int, size: float) -> None:
    expected = size * draw_output(shape, seed)
    result = expected.clone()
    result.view(-1)[somewhere(result, seed)] += 1e-3 * size
    assert not agree_in_every_element(expected, result)
    assert agree_in_every_element(expected, expected.clone())


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 10**6), wrong=st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_nan_and_infinities_agree_only_with_themselves(shape: tuple[int, ...], seed: int, wrong: float) -> None:
    expected = draw_output(shape, seed)
    result = expected.clone()
    result.view(-1)[somewhere(result, seed)] = wrong
    assert not agree_in_every_element(expected, result) and not agree_in_every_element(result, expected)
    rounded = result * (1 + 1e-7)
    assert agree_in_every_element(result, rounded)
    other = result.clone()
    other.view(-1)[somewhere(result, seed)] = float("inf") if wrong != float("inf") else float("nan")
    assert not agree_in_every_element(result, other)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(2, 40), columns=st.integers(16, 300), seed=st.integers(0, 10**6))
def test_a_zeroed_row_is_seen_even_if_it_is_small(rows: int, columns: int, seed: int) -> None:
    expected = draw_output((rows, columns), seed)
    row = seed % rows
    expected[row] *= 1e-4  # against the whole output's size it would pass
    result = expected.clone()
    result[row] = 0
    assert float(expected[row].abs().max()) < 320 * 1.2e-7 * 16
    assert not agree_in_every_element(expected, result)


@settings(max_examples=20, deadline=None)
@given(k=st.sampled_from([64, 576, 1536]), seed=st.integers(0, 10**6), kind=st.sampled_from(["normal", "exponential"]))
def test_another_order_of_summation_agrees(k: int, seed: int, kind: str) -> None:
    x, w = draw_output((4, k), seed), draw_output((48, k), seed + 1)
    x = x.exp() if kind == "exponential" else x
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    blocked = (x.view(4, 1, -1, 32) * w.view(1, 48, -1, 32)).sum(-1).sum(-1)
    for result in (x[:, order] @ w[:, order].T, blocked):
        assert agree_in_every_element(x @ w.T, result)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_by_their_own_eps(dtype: torch.dtype) -> None:
    if dtype == torch.float16:
        expected = 200 * draw_output((64, 1000), 0, dtype)  # a sum of its squares does not fit half precision
    else:
        expected = draw_output((8, 100), 0, dtype)
    eps = torch.finfo(dtype).eps
    assert agree_in_every_element(expected, expected * (1 + 2 * eps))
    assert not agree_in_every_element(expected, expected * (1 + 1200 * eps))


def test_integers_are_exact_and_shapes_and_dtypes_do_not_broadcast() -> None:
    numbers = torch.arange(12).view(3, 4)
    assert agree_in_every_element(numbers, numbers.clone())
    assert not agree_in_every_element(numbers, numbers + (numbers == 7))
    expected = torch.zeros(3, 4)
    assert not agree_in_every_element(expected, torch.zeros(()))
    assert not agree_in_every_element(expected, expected.double())


def test_the_control_switched_off_lets_rounded_inputs_through() -> None:
    x, w = draw_output((4, 576), 0), draw_output((48, 576), 1)
    rounded = x.bfloat16().float() @ w.T
    assert not agree_in_every_element(x @ w.T, rounded)
    assert agree_in_every_element(x @ w.T, rounded, closely=False)
