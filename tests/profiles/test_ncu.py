"""Counters of Nsight Compute: units by row, thousands separators, values that are not there."""

from __future__ import annotations

import json

import pytest

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.ncu import KernelCounters, is_ncu_csv, read_ncu
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


RAW = (
    '"ID","Process Name","Host Name","Kernel Name","Stream","dram__bytes.sum.peak_sustained","dram__bytes_read.sum",'
    '"dram__cycles_elapsed.avg.per_second","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"\n'
    '"","","","","","byte/cycle","Mbyte","Ghz","us","%","%"\n'
)
LAUNCHES = '"0","python","a-host","k<a, b>","7","128","2.33","13.72","6.75","10.5","80"\n'


def test_the_raw_page_has_a_column_for_each_metric_and_a_row_of_units() -> None:
    text = "==PROF== Connected\n" + RAW + LAUNCHES + '"1","python","a-host","other","7","","1,000","n/a","2","",""\n'
    assert is_ncu_csv(text)
    first, second = read_ncu(text)
    assert (first.name, first.seconds, first.dram_bytes) == ("k<a, b>", pytest.approx(6.75e-6), pytest.approx(2.33e6))
    assert (first.dram_share, first.compute_share, first.bound) == (0.8, 0.105, "memory")
    assert first.peak_dram_bytes_per_s == pytest.approx(128 * 13.72e9)
    assert (second.name, second.dram_bytes, second.peak_dram_bytes_per_s) == ("other", 1e9, None)


def test_without_units_only_shares_are_known() -> None:
    header, _ = RAW.splitlines(keepends=True)
    (found,) = read_ncu(header + LAUNCHES)
    assert (found.seconds, found.dram_bytes, found.peak_dram_bytes_per_s, found.dram_share) == (None, None, None, 0.8)


def test_two_raw_pages_in_one_file_have_units_and_ids_of_their_own() -> None:
    first, second = read_ncu(RAW + LAUNCHES + RAW.replace('"us"', '"ms"') + LAUNCHES)
    assert (first.seconds, second.seconds) == (pytest.approx(6.75e-6), pytest.approx(6.75e-3))
    other = RAW.replace("gpu__time_duration.sum", "gpu__time_active.sum")
    with pytest.raises(BrokenInput, match="other columns"):
        read_ncu(RAW + LAUNCHES + other + LAUNCHES)


def test_two_details_pages_in_one_file_are_two_launches() -> None:
    found = read_ncu(rows(("Duration", "us", "1")) + rows(("Duration", "us", "2")))
    assert [k.seconds for k in found] == [pytest.approx(1e-6), pytest.approx(2e-6)]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "n/a"])
def test_what_is_no_number_is_unknown(value: str) -> None:
    (found,) = read_ncu(rows(("Duration", "us", value), ("DRAM Throughput", "%", "50")))
    assert found.seconds is None


@pytest.mark.parametrize("text", ["", "a,b\n", HEADER, RAW, '"ID","Kernel Name","a metric"\n"0","k","1"\n'])
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
