"""Candidates in one line each, for the tests of the screens."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.sandbox.screens import Screening, screen

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_x86 = pytest.mark.skipif(not detect_isa().startswith("x86"), reason="holds x86 instructions")
BODY = (
    '\nextern "C" __attribute__((visibility("default"))) float __tvm_ffi_run(float* x, float* y) {'
    " y[0] = x[0] * x[1] + x[2]; %s return y[0]; }\n"
)


def cpp(source: str, *more: SourceFile) -> Candidate:
    return Candidate(
        definition="any", language="cpp", sources=(SourceFile(path="kernel.cpp", content=source), *more),
        proposer="import", author="test",
    )  # fmt: skip


def python(source: str, language: str = "python") -> Candidate:
    file = SourceFile(path="candidate.py", content=source)
    return Candidate(definition="any", language=language, sources=(file,), proposer="import", author="test")  # type: ignore[arg-type]


def screened(source: str, folder: Path, policy: PrecisionPolicy | None = None) -> Screening:
    """Build `source` as a candidate is built, and screen source and binary."""
    candidate = cpp(source)
    built = build_native(candidate, folder)
    assert built.binary is not None, built.log
    return screen(candidate, built.binary.read_bytes(), policy or PrecisionPolicy())


def linked(source: str, folder: Path, *flags: str) -> bytes:
    """Link `source` with flags a candidate cannot give, for objects our own command never makes."""
    (folder / "k.cpp").write_text(source)
    command = ["g++", "-O2", "-fPIC", "-shared", *flags, "k.cpp", "-o", "k.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "k.so").read_bytes()
