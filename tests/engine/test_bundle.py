"""A bundle's digest covers every file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelwright.engine.bundle import bundle_digest, write_bundle
from kernelwright.profiles.errors import BrokenInput


def test_digest_is_that_of_the_sums_and_sha256sum_agrees(tmp_path: Path) -> None:
    digest = write_bundle(tmp_path / "b", {"gate.json": "{}\n", "sub/note.txt": "x"})
    assert bundle_digest(tmp_path / "b") == digest
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=tmp_path / "b", check=True)
    assert write_bundle(tmp_path / "c", {"sub/note.txt": "x", "gate.json": "{}\n"}) == digest


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {"old.txt": "x"})
    write_bundle(tmp_path / "b", {"new.txt": "x"})
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["SHA256SUMS", "new.txt"]


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
def test_any_change_is_seen(tmp_path: Path, change: str) -> None:
    write_bundle(tmp_path / "b", {"gate.json": "{}\n"})
    file = tmp_path / "b" / ("gate.json" if change != "add" else "more.json")
    file.unlink() if change == "remove" else file.write_text("{ }\n")
    with pytest.raises(BrokenInput, match=file.name):
        bundle_digest(tmp_path / "b")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "SHA256SUMS"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="place in a bundle"):
        write_bundle(tmp_path / "b", {name: "x"})
