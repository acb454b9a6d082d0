"""Counters of Nsight Compute: units by row, thousands separators, values that are not there."""

from __future__ import annotations

import json

import pytest

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.ncu import KernelCounters, read_ncu
from tests.profiles.test_answers import TRACES, needs_traces

HEADER = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Description"\n'


def rows(*metrics: tuple[str, str, str]) -> str:
    return HEADER + "".join(f'"0","k<a, b>","S","{n}","{u}","{v}","",""\n' for n, u, v in metrics)


@pytest.mark.parametrize(
    ("unit", "value", "seconds"),
    [
        ("us", "6.75", 6.75e-6),
        ("ns", "6,750", 6.75e-6),
        ("ms", "1.5", 1.5e-3),
        ("usecond", "2", 2e-6),
        ("us", "n/a", None),
    ],
)
def test_units_are_those_of_the_row(unit: str, value: str, seconds: float | None) -> None:
    (found,) = read_ncu("==PROF== talk\n" + rows(("Duration", unit, value), ("DRAM Throughput", "%", "50")))
    assert found.seconds == (None if seconds is None else pytest.approx(seconds))
    assert found.name == "k<a, b>" and found.dram_share == 0.5


def test_headroom_is_to_the_nearer_roof() -> None:
    (found,) = read_ncu(rows(("DRAM Throughput", "%", "80"), ("Compute (SM) Throughput", "%", "20")))
    assert found.headroom == pytest.approx(1.25) and found.bound == "memory"
    (none,) = read_ncu(rows(("Duration", "us", "1")))
    assert none.headroom is None and none.bound == "unknown"


def test_advice_of_rules_is_kept() -> None:
    (found,) = read_ncu(rows(("Duration", "us", "1")) + '"0","k<a, b>","S","","","","SOL","The grid is too small."\n')
    assert found.advice == ("The grid is too small.",)


@pytest.mark.parametrize("text", ["", "a,b\n", HEADER])
def test_what_holds_no_counter_is_refused(text: str) -> None:
    with pytest.raises(BrokenInput):
        read_ncu(text)


@needs_traces
@pytest.mark.parametrize("section", ["SpeedOfLight_RooflineChart", "SpeedOfLight"])
def test_recorded_counters_are_right(section: str) -> None:
    key = f"ncu_csv/gemv.ncu.section_{section}.csv"
    right = json.loads((TRACES / "ANSWERS.json").read_text())[key]
    (found,) = read_ncu((TRACES / key).read_text())
    assert isinstance(found, KernelCounters)
    if section == "SpeedOfLight":
        assert found.seconds == pytest.approx(right["duration_us"] * 1e-6)
        assert found.dram_share == pytest.approx(right["dram_pct"] / 100)
        assert found.compute_share == pytest.approx(right["compute_pct"] / 100)
    else:
        assert found.dram_bytes_per_s == pytest.approx(right["dram_gbyte_s"] * 1e9)
        assert found.peak_dram_bytes_per_s == pytest.approx(right["peak_dram_gbyte_s"] * 1e9, rel=1e-4)
        assert found.peak_fp32_flops_per_s == pytest.approx(2 * right["peak_ffma_per_cycle"] * right["sm_ghz"] * 1e9)
        least = 2 * right["ffma_per_cycle"] * right["sm_ghz"] * 1e9
        assert found.fp32_flops_per_s is not None and least <= found.fp32_flops_per_s < 1.05 * least
