"""The compiler runs in a cage: it builds, and sees nothing of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.profiles.digest import digest_bytes
from kernelwright.sandbox.builder import build_caged, caged_run
from kernelwright.sandbox.cage import open_cage
from tests.sandbox.posed import load_evil, pose

pytestmark = pytest.mark.cage


def written(text: str) -> Candidate:
    return Candidate(
        definition="any",
        language="cpp",
        sources=(SourceFile(path="kernel.cpp", content=text),),
        proposer="import",
        author="test",
    )


def test_a_caged_build_gives_the_digest_of_its_binary(tmp_path: Path) -> None:
    built = build_caged(load_evil("honest.cpp", pose()), tmp_path / "cache", open_cage("bubblewrap"))
    assert built.status == "PASSED", built.log
    assert built.binary is not None
    assert built.digest == digest_bytes(built.binary.read_bytes())


def test_what_does_not_compile_is_a_status_with_the_compilers_words(tmp_path: Path) -> None:
    built = build_caged(load_evil("does_not_compile.cpp", pose()), tmp_path / "cache", open_cage("bubblewrap"))
    assert built.status == "COMPILE_ERROR"
    assert "error" in built.log


def test_the_compiler_cannot_read_the_host_into_the_binary(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    thief = written(f'asm(".global stolen\\nstolen: .incbin \\"{secret}\\"");')
    caged = build_caged(thief, tmp_path / "cache", open_cage("bubblewrap"))
    assert caged.status == "COMPILE_ERROR"
    bare = build_native(thief, tmp_path / "bare")
    assert bare.status == "PASSED", "without the cage the same source reads the file"


def test_a_build_that_never_ends_is_stopped(tmp_path: Path) -> None:
    run = caged_run(open_cage("bubblewrap"))
    assert run(["/bin/sleep", "60"], tmp_path, 0.5).returncode is None
