"""The gates pass honest rounding and stop what is not."""

from __future__ import annotations

import pytest
import torch

from kernelwright.sandbox.fidelity import judge_output

K = 576


def posed(kind: str = "normal", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, w, the exact product and |x||w|."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, K, generator=generator)
    if kind == "exact":
        x = (x > 0).float()
    w = (
        torch.randint(-8, 8, (96, K), generator=generator).float()
        if kind == "exact"
        else torch.randn(96, K, generator=generator)
    )
    return x, w, x.double() @ w.double().T, x.double().abs() @ w.double().abs().T


def blocked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Another honest order of summation: 24 blocks of 24."""
    parts = (x.view(8, 1, 24, 24) * w.view(1, 96, 24, 24)).sum(-1)
    return parts.sum(-1)


@pytest.mark.parametrize("seed", range(5))
def test_another_order_of_summation_passes(seed: int) -> None:
    x, w, exact, magnitude = posed(seed=seed)
    finding = judge_output(blocked(x, w), x @ w.T, exact, magnitude=magnitude, zero_mean=True)
    assert finding.failed == "", finding


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_inputs_fail(dtype: torch.dtype) -> None:
    x, w, exact, magnitude = posed()
    finding = judge_output(x.to(dtype).float() @ w.T, x @ w.T, exact, magnitude=magnitude, zero_mean=True)
    assert finding.failed
    assert finding.rms_ratio > 16


def test_the_relative_gate_is_what_stops_them() -> None:
    """The control switched off: the usual tolerance of 1e-2 lets TF32-like rounding through."""
    x, w, exact, magnitude = posed()
    rounded = (x.view(torch.int32) & ~0x1FFF).view(torch.float32) @ w.T
    assert judge_output(rounded, x @ w.T, exact, magnitude=magnitude, zero_mean=True).failed
    assert ((rounded - exact).abs() <= 1e-2 + 1e-2 * exact.abs()).double().mean() > 0.95


def test_one_wrong_element_fails() -> None:
    x, w, exact, magnitude = posed()
    result = x @ w.T
    result[3, 50] += 1e-3
    assert judge_output(result, x @ w.T, exact, magnitude=magnitude, zero_mean=True).failed


def test_one_bad_slice_fails_though_the_whole_looks_fine() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(512, 64, dtype=torch.float64, generator=generator)
    incumbent = (exact + 1e-6 * torch.randn(512, 64, dtype=torch.float64, generator=generator)).float()
    result = incumbent.clone()
    result[7] = (exact[7] + 5e-6 * torch.sign(exact[7])).float()
    finding = judge_output(result, incumbent, exact)
    assert finding.rms_ratio < 1.5
    assert finding.failed == "error in one slice"


def test_masks_come_first() -> None:
    exact = torch.tensor([[1.0, float("nan"), float("inf"), 2.0]], dtype=torch.float64)
    right = exact.float()
    assert judge_output(right, right, exact).failed == ""
    for wrong in ([1.0, 0.0, float("inf"), 2.0], [1.0, float("nan"), -float("inf"), 2.0], [float("nan")] * 4):
        assert judge_output(torch.tensor([wrong]), right, exact).failed == "non-finite values"


def test_exact_cases_are_exact() -> None:
    x, w, exact, magnitude = posed("exact")
    result = x @ w.T
    assert judge_output(result, result, exact, magnitude=magnitude, bit_exact=True).failed == ""
    result[0, 0] += 1
    assert judge_output(result, x @ w.T, exact, magnitude=magnitude, bit_exact=True).failed == "exact case"


def test_a_truncated_sum_fails_the_exact_case() -> None:
    x, w, exact, magnitude = posed("exact")
    finding = judge_output(x[:, :-1] @ w[:, :-1].T, x @ w.T, exact, magnitude=magnitude, bit_exact=True)
    assert finding.failed == "exact case"


def test_integers_must_be_equal() -> None:
    exact = torch.arange(6).view(2, 3)
    assert judge_output(exact.clone(), exact, exact).failed == ""
    assert judge_output(exact + 1, exact, exact).failed == "integers differ"


def test_a_copy_must_be_a_copy() -> None:
    """Where the incumbent makes no error, neither may the candidate, beyond half an ulp."""
    exact = torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).float().double()
    copied = exact.float()
    assert judge_output(copied, copied, exact).failed == ""
    assert judge_output(copied * (1 + 1e-4), copied, exact).failed
