from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernelwright.profiles import ceilings
from kernelwright.profiles.errors import EnvironmentLacks, WrongUse


def test_the_best_round_counts_and_a_lucky_repetition_does_not() -> None:
    assert ceilings.best_rate(100.0, [[1.0, 10.0, 10.0], [5.0, 5.0, 0.1], [20.0]]) == pytest.approx(20.0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_this_machine_is_measured() -> None:
    got = ceilings.measure_ceilings(1, 64_000_000)
    assert (got.threads, got.working_set_bytes) == (1, 64_000_000)
    # orders of magnitude only: a loop that the compiler dropped would be far above, a stuck one far below
    assert 1e8 < got.dram_bytes_per_s < 1e12
    assert 1e9 < got.cache_bytes_per_s < 1e13
    assert 1e9 < got.fp32_flops_per_s < 1e12
    flags = Path("/proc/cpuinfo").read_text().split()
    for flag, rate in (("avx512_bf16", got.bf16_flops_per_s), ("avx512_vnni", got.int8_ops_per_s)):
        assert bool(rate) == (flag in flags and "amx_tile" not in flags), flag
        assert not rate or got.fp32_flops_per_s < rate < 64 * got.fp32_flops_per_s


@pytest.mark.parametrize("threads", [0, 10**6])
def test_threads_need_a_cpu_each(threads: int) -> None:
    with pytest.raises(WrongUse, match="one CPU per thread"):
        ceilings.measure_ceilings(threads, 1000)


def test_an_empty_working_set_is_refused() -> None:
    with pytest.raises(WrongUse, match="working set"):
        ceilings.measure_ceilings(1, 0)


def test_no_compiler_names_the_remedy() -> None:
    with pytest.raises(EnvironmentLacks, match="no compiler") as caught:
        ceilings.measure_ceilings(1, 1000, compiler="no-such-compiler")
    assert "g++" in caught.value.remedy


def script(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    os.chmod(path, 0o755)
    return str(path)


def test_a_compiler_that_fails_is_reported_with_its_words(tmp_path: Path) -> None:
    broken = script(tmp_path, "broken", "echo no headers here >&2; exit 1")
    with pytest.raises(EnvironmentLacks, match="no headers here"):
        ceilings.measure_ceilings(1, 1000, compiler=broken)


def test_a_measurement_that_fails_is_no_number(tmp_path: Path) -> None:
    # a stand-in compiler whose program runs out of memory as ours would
    program = script(tmp_path, "program", "exit 4")
    compiler = script(tmp_path, "compiler", f'for last; do :; done; cp {program} "$last"')
    with pytest.raises(EnvironmentLacks, match="status 4"):
        ceilings.measure_ceilings(1, 1000, compiler=compiler)
