"""What a candidate does wrong is a status; what the machine lacks is an error with a remedy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernelwright.kernels.build import (
    CommandResult,
    build_cached,
    build_key,
    build_native,
    compile_command,
    compiler_version,
)
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.isa import detect_isa
from kernelwright.profiles.digest import digest_bytes
from kernelwright.profiles.errors import EnvironmentLacks

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
GOOD = "#include <kernelwright.h>\nKW_RUN(args, 1) { args.tensor<float>(0, 1); }\n"


def candidate(content: str = GOOD, flags: tuple[str, ...] = (), language: str = "cpp") -> Candidate:
    return Candidate(
        definition="d",
        language=language,  # type: ignore[arg-type]
        sources=(SourceFile(path="src/kernel.cpp", content=content),),
        compile_flags=flags,
        proposer="import",
        author="test",
    )


@pytest.fixture
def fresh_compiler_version() -> Iterator[None]:
    compiler_version.cache_clear()
    yield
    compiler_version.cache_clear()


@needs_compiler
def test_a_good_candidate_builds_with_the_digest_of_its_binary(tmp_path: Path) -> None:
    result = build_native(candidate(), tmp_path)
    assert result.status == "PASSED"
    assert result.binary is not None
    assert result.digest == digest_bytes(result.binary.read_bytes())


@needs_compiler
def test_equal_candidates_build_to_equal_binaries(tmp_path: Path) -> None:
    first, second = (build_native(candidate(), tmp_path / name) for name in ("a", "b"))
    assert first.digest == second.digest


@needs_compiler
def test_a_compile_error_is_a_status_with_the_compilers_words(tmp_path: Path) -> None:
    result = build_native(candidate("int broken( {"), tmp_path)
    assert result.status == "COMPILE_ERROR"
    assert "error" in result.log
    assert result.binary is None


@needs_compiler
@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-fplugin=x.so", "-I/", "@file", "-O3 -ffast-math"])
def test_a_flag_outside_the_allow_list_is_a_status(tmp_path: Path, flag: str) -> None:
    result = build_native(candidate(flags=(flag,)), tmp_path)
    assert result.status == "COMPILE_ERROR"
    assert flag in result.log


@needs_compiler
def test_a_build_that_takes_too_long_is_a_status(tmp_path: Path) -> None:
    def never_ready(command: Sequence[str], workdir: Path, seconds: float) -> CommandResult:
        return CommandResult(None, "stopped")

    assert build_native(candidate(), tmp_path, run=never_ready).status == "TIMEOUT"
    assert build_native(candidate(), tmp_path, seconds=0.001).status == "TIMEOUT"


@needs_compiler
def test_a_run_that_leaves_no_binary_did_not_pass(tmp_path: Path) -> None:
    result = build_native(candidate(), tmp_path, run=lambda *_: CommandResult(0, ""))
    assert result.status == "COMPILE_ERROR"


def test_without_a_compiler_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_compiler_version: None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks, match=r"apt-get install g\+\+"):
        build_native(candidate(), tmp_path)


def test_python_candidates_are_not_compiled() -> None:
    with pytest.raises(ValueError, match="only cpp"):
        compile_command(candidate(language="python"), Path("out.so"))


def test_the_command_keeps_floating_point_meaning() -> None:
    command = compile_command(candidate(flags=("-funroll-loops",)), Path("out.so"), "x86-64-v3")
    assert {"-fno-fast-math", "-march=x86-64-v3", "-funroll-loops", "src/kernel.cpp"} <= set(command)


@needs_compiler
def test_the_key_tells_sources_flags_and_levels_apart() -> None:
    keys = {
        build_key(candidate(), "x86-64-v2"),
        build_key(candidate(), "x86-64-v3"),
        build_key(candidate(GOOD + "\n"), "x86-64-v2"),
        build_key(candidate(flags=("-O2",)), "x86-64-v2"),
    }
    assert len(keys) == 4
    assert build_key(candidate()) == build_key(candidate(), detect_isa())


@needs_compiler
def test_a_passed_build_is_kept_and_a_failed_one_is_not(tmp_path: Path) -> None:
    def refuse(command: Sequence[str], workdir: Path, seconds: float) -> CommandResult:
        return CommandResult(1, "refused")

    assert build_cached(candidate(), tmp_path, run=refuse).status == "COMPILE_ERROR"
    assert build_cached(candidate(), tmp_path).status == "PASSED"
    assert build_cached(candidate(), tmp_path, run=refuse).status == "PASSED"
