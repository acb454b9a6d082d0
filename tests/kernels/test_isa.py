"""Levels are found from flags, each only on top of the one below."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.kernels.isa import LEVELS, cpu_name, detect_isa, levels_of, read_flags, supports

V2, V3, V4 = (LEVELS[f"x86-64-v{n}"] for n in (2, 3, 4))


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (V2 | V3 | V4, ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
        (V2 | V3, ("x86-64-v3", "x86-64-v2")),
        (V2 | V4, ("x86-64-v2",)),
        (V2 | V3 - {"f16c"}, ("x86-64-v2",)),
        (LEVELS["armv8.2"], ("armv8.2",)),
        (frozenset(), ()),
    ],
)
def test_levels_of(flags: frozenset[str], levels: tuple[str, ...]) -> None:
    assert levels_of(flags) == levels


def test_cpuinfo_is_read(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A Processor\nflags\t\t: sse4_2 avx2\n")
    assert read_flags(cpuinfo) == {"sse4_2", "avx2"}
    assert cpu_name(cpuinfo) == "A Processor"


def test_without_cpuinfo_nothing_is_claimed(tmp_path: Path) -> None:
    assert read_flags(tmp_path / "none") == frozenset()
    assert cpu_name(tmp_path / "none")


def test_the_host_supports_what_it_has() -> None:
    assert supports(detect_isa())
    assert supports("any")
    assert not supports("x86-64-v9")
