"""Planted noise is measured right, planted damage is refused, and each limit decides something."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.engine.gate_fidelity import PhaseFidelity, summarise
from kernelwright.engine.gate_limits import FP32, HALF, Limits, rule
from kernelwright.engine.gate_row import Row, compare_row

VOCAB = 2000


def stream(seed: int, rows: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((rows, VOCAB)) * 3).astype(np.float32)


def compared(base: np.ndarray, new: np.ndarray, documents: int = 4) -> list[Row]:
    each = len(base) // documents
    targets = np.random.default_rng(9).integers(0, VOCAB, len(base))
    return [
        compare_row(base[i], new[i], int(targets[i]), f"d{i // each}", i % each) for i in range(each * documents)
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-4, 1e-3, 1e-2, 5e-2]))
def test_small_noise_gives_half_its_variance_under_the_distribution(seed: int, noise: float) -> None:
    base = stream(seed, 8)
    planted = np.random.default_rng(seed + 1).standard_normal(base.shape) * noise
    new = (base.astype(np.float64) + planted).astype(np.float32)
    effect = new.astype(np.float64) - base.astype(np.float64)
    p = np.exp(base.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    variance = (p * effect**2).sum(axis=1) - (p * effect).sum(axis=1) ** 2
    kld = [compare_row(a, b, None, "d", 0).kld for a, b in zip(base, new, strict=True)]
    assert np.allclose(kld, variance / 2, rtol=0.1)


def test_agrees_with_the_textbook_formula() -> None:
    base, new = stream(1, 1)[0], stream(2, 1)[0]
    p, q = (np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum() for x in (base, new))
    row = compare_row(base, new, 7, "d", 0)
    assert row.kld == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-12)
    assert row.delta_p == pytest.approx(q[7] - p[7], rel=1e-9)
    assert row.ln_ratio == pytest.approx(math.log(p[7] / q[7]), rel=1e-9)
    best, second = np.sort(p)[::-1][:2]
    assert row.margin == pytest.approx(best - second, rel=1e-9)


def test_a_shift_of_all_logits_is_no_change() -> None:
    base = np.round(stream(3, 1)[0] * 4) / 4  # quarters, so that the shift is exact
    assert compare_row(base, base + np.float32(16.0), 0, "d", 0).kld < 1e-13


def test_rounding_sized_noise_passes() -> None:
    base = stream(4, 400)
    new = (base.astype(np.float64) + np.random.default_rng(5).standard_normal(base.shape) * 2e-5).astype(np.float32)
    fidelity = summarise("decode", compared(base, new))
    assert rule(fidelity).state == "pass", rule(fidelity).reasons
    assert fidelity.tokens == 400 and fidelity.documents == 4
    assert sum(fidelity.histogram) == 400
    assert fidelity.ln_ppl_interval[0] <= fidelity.ln_ppl_ratio <= fidelity.ln_ppl_interval[1]


def swapped_rows(base: np.ndarray) -> np.ndarray:
    new = base.copy()
    new[[10, 11]] = new[[11, 10]]
    return new


def one_bad_token(base: np.ndarray) -> np.ndarray:
    new = base.copy()
    new[123, 17] += 9
    return new


def biased_logits(base: np.ndarray) -> np.ndarray:
    new = base.copy()
    new[:, :20] += 0.05  # a tile that came out a little high in every row
    return new


def half_precision(base: np.ndarray) -> np.ndarray:
    return base.astype(np.float16).astype(np.float32)


def not_a_number(base: np.ndarray) -> np.ndarray:
    new = base.copy()
    new[77, 3] = np.nan
    return new


def one_value(base: np.ndarray) -> np.ndarray:
    new = base.copy()
    new[5] = 1.0
    return new


@pytest.mark.parametrize("damage", [swapped_rows, one_bad_token, biased_logits, not_a_number, one_value])
def test_planted_damage_is_refused(damage) -> None:  # type: ignore[no-untyped-def]
    base = stream(6, 400)
    assert rule(summarise("decode", compared(base, damage(base)))).state == "refuse"


def test_half_precision_in_the_head_does_not_pass() -> None:
    base = stream(6, 400)
    assert rule(summarise("decode", compared(base, half_precision(base)))).state != "pass"


def test_a_collapsed_row_does_not_pass() -> None:
    base = stream(6, 8)
    ruling = rule(summarise("decode", compared(base, one_value(base))))
    assert ruling.state == "refuse" and "equal logits" in ruling.reasons[0]


def test_growth_with_the_position_is_seen() -> None:
    base = stream(7, 400)
    noise = np.random.default_rng(8).standard_normal(base.shape) * (np.arange(400) % 100)[:, None] * 4e-6
    fidelity = summarise("decode", compared(base, (base.astype(np.float64) + noise).astype(np.float32)))
    assert fidelity.last_quarter_kld > 4 * fidelity.first_quarter_kld
    assert any("position" in reason for reason in rule(fidelity).reasons)


def test_the_null_raises_the_limit() -> None:
    base = stream(7, 400)
    noisy = [
        (base.astype(np.float64) + np.random.default_rng(seed).standard_normal(base.shape) * 4e-4).astype(np.float32)
        for seed in (1, 2)
    ]
    rows, null = compared(base, noisy[0]), compared(base, noisy[1])
    assert rule(summarise("decode", rows)).state == "review"
    assert "mean KLD" in rule(summarise("decode", rows)).reasons[0]
    assert not any("mean KLD" in reason for reason in rule(summarise("decode", rows, null)).reasons)


def row(agrees: bool, margin: float) -> Row:
    return Row("d", 0, 1e-12, agrees, margin, 0.0, 0.0, True, False)


def test_a_tie_may_fall_either_way_once_and_nothing_else_may() -> None:
    calm = [row(True, 0.5)] * 4000
    assert rule(summarise("decode", [*calm, row(False, 5e-4)])).state == "pass"
    assert rule(summarise("decode", [*calm, row(False, 2e-3)])).state == "refuse"
    assert rule(summarise("decode", [*calm, row(False, 5e-4), row(False, 5e-4)])).state == "review"


def test_an_error_that_begins_at_some_length_is_found_among_thousands_of_good_rows() -> None:
    base = stream(11, 4000)
    noise = np.random.default_rng(12).standard_normal(base.shape) * 2e-5
    noise[3950:] *= 60  # the last fifty positions of one document
    new = (base.astype(np.float64) + noise).astype(np.float32)
    fidelity = summarise("decode", compared(base, new, documents=1))
    assert [r.low for r in fidelity.by_position] == [0, 32, 64, 128, 256, 512, 1024, 2048]
    assert sum(r.tokens for r in fidelity.by_position) == 4000 and fidelity.kld_slope > 0
    assert any("positions 2048 to 4095" in reason for reason in rule(fidelity).reasons), rule(fidelity).reasons


def test_synchronised_draws_agree_for_rounding_and_not_for_another_model() -> None:
    base, other = stream(13, 300), stream(14, 300)
    near = (base.astype(np.float64) + np.random.default_rng(5).standard_normal(base.shape) * 2e-5).astype(np.float32)
    mixed = (base + np.random.default_rng(6).standard_normal(base.shape) * 0.5).astype(np.float32)
    shares = [summarise("decode", compared(base, new)).synchronised_draws for new in (base, near, mixed, other)]
    assert shares[0] == 1.0 and shares[1] > 0.995 and shares[2] < 0.95 and shares[3] < 0.1


def test_draws_follow_the_distribution() -> None:
    """The shared noise is Gumbel's: drawn often enough, tokens come as their probabilities say."""
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    from kernelwright.engine.gate_row import _noise

    draws = np.array([np.argmax(logits + _noise(4)[i : i + 4]) for i in range(0, 60_000, 4)])
    assert np.allclose(np.bincount(draws, minlength=4) / len(draws), [0.5, 0.3, 0.15, 0.05], atol=0.015)


CALM = summarise("decode", [row(True, 0.5)] * 4000)
BEYOND = [
    ({"mean_kld": 5e-8}, "review"), ({"mean_kld": 5e-6}, "refuse"),
    ({"p999_kld": 5e-6}, "review"), ({"p999_kld": 5e-4}, "refuse"),
    ({"max_kld": 5e-5}, "review"), ({"max_kld": 5e-3}, "refuse"),
    ({"last_quarter_kld": 5e-8}, "review"),
    ({"mismatches": 1, "mismatches_beyond_ties": 1, "largest_mismatch_margin": 0.01}, "refuse"),
    ({"mismatches": 2, "top1": 0.9995}, "review"),
    ({"synchronised_draws": 0.99}, "refuse"),
    ({"rms_delta_p": 5e-4}, "review"), ({"rms_delta_p": 5e-3}, "refuse"),
    ({"ln_ppl_ratio": 1e-3, "ln_ppl_interval": (5e-4, 2e-3), "documents": 9}, "review"),
    ({"mean_entropy": (2.0, 2.01)}, "review"),
    ({"non_finite": 1}, "refuse"),
    ({"by_position": ({"low": 1024, "high": 2048, "tokens": 99, "mean_kld": 5e-6, "max_kld": 5e-6},)}, "refuse"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "state"), BEYOND)
def test_each_limit_decides_alone_and_lets_it_through_when_it_is_off(change: dict[str, Any], state: str) -> None:
    fidelity = PhaseFidelity.model_validate(CALM.model_dump() | change)
    off = Limits((1, 1), (1, 1), (1, 1), 4.0, (0, 0), (1, 1), (1, 1), 0.0, 1.0)
    assert rule(CALM).state == "pass" and rule(fidelity).state == state and len(rule(fidelity).reasons) == 1
    if not {"non_finite", "mismatches_beyond_ties"} & set(change):  # those are counted: no limit switches them off
        assert rule(fidelity, off).state == "pass"


def test_what_half_precision_may_do_float32_may_not() -> None:
    base = stream(6, 400)
    rounded = (base.astype(np.float64) + np.random.default_rng(8).standard_normal(base.shape) * 5e-3).astype(np.float32)
    fidelity = summarise("decode", compared(base, rounded), tie_margin=HALF.margin[0])
    assert rule(fidelity, HALF).state == "pass" and rule(fidelity, FP32).state == "refuse"
    coarse = (base.astype(np.float64) + np.random.default_rng(8).standard_normal(base.shape) * 0.1).astype(np.float32)
    assert rule(summarise("decode", compared(base, coarse), tie_margin=HALF.margin[0]), HALF).state == "refuse"


def test_nothing_compared_is_an_error_not_a_pass() -> None:
    with pytest.raises(ValueError, match="no rows"):
        summarise("decode", [])
    with pytest.raises(ValueError, match="differ in shape"):
        compare_row(np.zeros(3, np.float32), np.zeros(4, np.float32), None, "d", 0)
