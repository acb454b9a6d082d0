from __future__ import annotations

import pytest

from kernelwright.profiles.profile import Ceilings
from kernelwright.profiles.roofline import attainable_flops, bandwidth_at, time_at_roofline


@pytest.mark.parametrize(
    ("num_bytes", "flops", "ns", "bound"),
    [
        (1_000_000, 2_000_000, 100_000, "memory"),
        (1_000_000, 100_000_000, 1_000_000, "compute"),
        (100, 100, 1_000, "overhead"),
        (0, 0, 1_000, "overhead"),
    ],
)
def test_the_slowest_term_bounds(ceilings: Ceilings, num_bytes: int, flops: int, ns: float, bound: str) -> None:
    got = time_at_roofline(num_bytes, flops, ceilings)
    assert (got.ns, got.bound) == (pytest.approx(ns), bound)


def test_cache_level_and_the_pure_roofline(ceilings: Ceilings) -> None:
    assert time_at_roofline(1_000_000, 0, ceilings, level="cache").ns == pytest.approx(10_000)
    assert time_at_roofline(100, 0, ceilings, call_ns=0).ns == pytest.approx(10)


def test_the_roof_bends_at_the_balance_of_the_machine(ceilings: Ceilings) -> None:
    assert attainable_flops(1, ceilings) == pytest.approx(1e10)
    assert attainable_flops(10, ceilings) == attainable_flops(1000, ceilings) == pytest.approx(1e11)


@pytest.mark.parametrize(
    ("footprint", "level", "rate"),
    [
        (1, "l1", 400.0),
        (4 * 64, "l1", 400.0),
        (4 * 64 + 1, "l2", 200.0),
        (4 * 1024 + 1, "cache", 100.0),
        (10**6, "dram", 10.0),
    ],
)
def test_the_floor_is_that_of_the_level_the_data_lives_in(footprint: int, level: str, rate: float) -> None:
    known = Ceilings(
        dram_bytes_per_s=10, cache_bytes_per_s=100, fp32_flops_per_s=1, threads=2, working_set_bytes=1,
        l1_bytes_per_s=400, l2_bytes_per_s=200, l1_bytes=64, l2_bytes=1024,
    )  # fmt: skip
    assert bandwidth_at(footprint, known, last_level_bytes=8192) == (level, rate)
    unknown = known.model_copy(update={"l1_bytes": 0})
    assert bandwidth_at(footprint, unknown, last_level_bytes=8192) == ("l1", 400.0), "never a floor that is too high"
