"""An image's context holds all a build needs; with a daemon it is built, started and asked, and its kernels run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from kernelwright.engine.bundle import write_bundle
from kernelwright.engine.image import build_image, connect
from kernelwright.engine.image_base import base_name, find_or_make_base
from kernelwright.engine.image_context import read_session, render_dockerfile, write_context
from kernelwright.engine.image_probe import KernelInImage, Probe
from kernelwright.engine.pack import read_manifest
from kernelwright.engine.weights import file_digest
from kernelwright.engine.wheelhouse import find_dependencies, pack_installed, write_own_wheel
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, KernelwrightError

_spec = importlib.util.spec_from_file_location("packing", Path(__file__).with_name("packing.py"))
assert _spec and _spec.loader
packing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(packing)

ROOTFS = "KERNELWRIGHT_TEST_ROOTFS"
"""A Debian root file system with python3-venv and g++, to save the minute that debootstrap takes."""


@pytest.fixture
def session(tmp_path: Path, make_tiny_model: Callable[..., Path]) -> Path:
    """A session folder as `optimize` leaves it, for the tiny model."""
    folder = tmp_path / "s1"
    model = make_tiny_model(tmp_path / "tiny.gguf", metadata={"llama.context_length": 2048})
    packing.make_pack(folder / "pack", 64)
    manifest = folder / "pack" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("0" * 64, file_digest(model)))
    write_bundle(folder / "evidence", {"note.txt": "for a test"})
    (folder / "gate.json").write_text(json.dumps({"state": "pass", "reasons": []}))
    return folder


def model_of(session: Path) -> Path:
    return session.parent / "tiny.gguf"


def test_reads_what_an_image_takes_from_a_session(session: Path) -> None:
    parts = read_session(session, model_of(session))
    assert parts.name == "s1" and len(parts.manifest.kernels) == 1 and len(parts.gate_digest) == 64


def test_a_session_that_did_not_pass_makes_no_image(session: Path) -> None:
    (session / "gate.json").write_text(json.dumps({"state": "review", "reasons": ["decode: mean KLD 2e-08"]}))
    with pytest.raises(KernelwrightError, match="mean KLD 2e-08") as caught:
        build_image(session, model=model_of(session))
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("lost", ["gate.json", "evidence/note.txt", "pack/manifest.json"])
def test_half_a_session_is_told(session: Path, lost: str) -> None:
    (session / lost).unlink()
    with pytest.raises(BrokenInput):
        read_session(session, model_of(session))


def test_the_model_comes_from_the_ledger_or_is_asked_for(session: Path) -> None:
    import sqlite3

    with pytest.raises(BrokenInput, match="does not say which model") as caught:
        read_session(session)
    assert "--model" in caught.value.remedy
    with sqlite3.connect(session / "session.db") as ledger:
        ledger.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT)")
        ledger.execute("INSERT INTO meta VALUES ('arguments', ?)", (json.dumps({"model": str(model_of(session))}),))
    assert read_session(session).model == model_of(session)


def test_other_weights_are_refused(session: Path, make_tiny_model: Callable[..., Path]) -> None:
    other = make_tiny_model(session.parent / "other.gguf", seed=5)
    with pytest.raises(BrokenInput, match="not the model"):
        write_context(session / "image", read_session(session, other), "base", "t", lambda text: None)


def test_the_dockerfile_names_all_and_needs_no_network() -> None:
    text = render_dockerfile("s1", "some-base:1", {"org.kernelwright.pack": "p" * 64})
    assert text.count("FROM some-base:1") == 2 and f'LABEL org.kernelwright.pack="{"p" * 64}"' in text
    assert "--no-index" in text and "USER 10001" in text
    assert not any(word in text for word in ("apt-get", "curl", "http://deb", "{{", "{%"))


def test_our_own_wheel_has_texts_templates_and_headers(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_own_wheel(tmp_path)).namelist()
    for part in (
        "engine/texts/prose/story.txt",
        "engine/texts/SOURCES.md",
        "engine/gate.html.j2",
        "engine/tool_cases.json",
        "engine/docker/Dockerfile.j2",
        "kernels/include/kernelwright.h",
    ):
        assert f"kernelwright/{part}" in names
    assert not any("__pycache__" in name or name.startswith("kernelwright/tests") for name in names)


def test_an_installed_distribution_is_packed_back_into_a_wheel_pip_takes(tmp_path: Path) -> None:
    wheel = pack_installed(distribution("smmap"), tmp_path)
    assert pack_installed(distribution("smmap"), tmp_path / ".." / tmp_path.name).read_bytes() == wheel.read_bytes()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*command, "--target", str(tmp_path / "to"), str(wheel)], check=True)
    for file in distribution("smmap").files or ():
        if file.suffix == ".py":
            assert (tmp_path / "to" / str(file)).read_bytes() == Path(str(file.locate())).read_bytes()


def test_all_that_is_needed_is_found() -> None:
    names = {str(dist.metadata["Name"]).lower() for dist in find_dependencies("kernelwright")}
    assert {"torch", "numpy", "starlette", "smmap"} <= names  # smmap: needed by gitdb, needed by gitpython
    assert not {"pytest", "kernelwright"} & names
    with pytest.raises(EnvironmentLacks, match="no-such-thing"):
        find_dependencies("no-such-thing")


def kernel(**more: Any) -> KernelInImage:
    return KernelInImage(
        **{"definition": "d", "candidate": "c", "state": "live", "hits": 9, "binary": "b", "as_judged": True} | more
    )


@pytest.mark.parametrize(
    ("kernels", "state"),
    [
        ((kernel(), kernel(hits=0)), "live"),
        ((kernel(), kernel(as_judged=False)), "rebuilt"),
        ((kernel(hits=0),), "not live"),
        ((kernel(), kernel(state="failed")), "not live"),
        ((), "not live"),
    ],
)
def test_live_means_loaded_as_judged_and_run(kernels: tuple[KernelInImage, ...], state: str) -> None:
    assert Probe(question="?", answer="!", kernels=kernels).state == state


@pytest.mark.slow
def test_without_a_daemon_the_context_is_left_ready(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{session}/nobody.sock")
    assert connect() is None
    image = build_image(session, base="some-base:1", model=model_of(session))
    assert image.state == "context only" and image.id is None and "BUILD.md" in image.note
    folder = Path(str(image.context))
    assert {path.name for path in folder.iterdir()} >= {"Dockerfile", "BUILD.md", "wheelhouse", "pack", "model.gguf"}
    wheels = {path.name.partition("-")[0] for path in (folder / "wheelhouse").iterdir()}
    assert {"kernelwright", "torch"} <= wheels
    assert (session / "image.json").exists()


@pytest.mark.alone
@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_builds_starts_and_proves_an_image_live(daemon: str, session: Path) -> None:
    rootfs = os.environ.get(ROOTFS)
    said: list[str] = []
    image = build_image(
        session, tag="kernelwright:test", model=model_of(session), rootfs=Path(rootfs) if rootfs else None,
        on_progress=said.append,
    )  # fmt: skip
    assert image.state == "live", image
    assert image.probe is not None
    (found,) = image.probe.kernels
    assert found.hits > 0 and found.as_judged and found.binary == read_manifest(session / "pack").kernels[0].binary
    assert any(text.startswith("Step ") for text in said)
    client = connect()
    assert client is not None
    tagged = client.images.get("kernelwright:test")
    assert tagged.id == image.id and tagged.labels["org.kernelwright.pack"] == image.pack
    assert tagged.labels["org.kernelwright.evidence"] == image.evidence
    assert client.containers.list(all=True) == []
    assert find_or_make_base(client, said.append) == client.images.get(base_name()).id  # made once
    other_binary_is_rebuilt(session)
    client.close()


def other_binary_is_rebuilt(session: Path) -> None:
    """The control: with another digest in the pack the same image is `rebuilt` and its tag does not move."""
    manifest = session / "pack" / "manifest.json"
    binary = str(read_manifest(session / "pack").kernels[0].binary)
    manifest.write_text(manifest.read_text().replace(binary, "f" * 64))
    image = build_image(session, tag="kernelwright:other", model=model_of(session))
    assert image.state == "rebuilt" and "was not moved" in image.note
    client = connect()
    assert client is not None
    assert not [tag for found in client.images.list() for tag in found.tags if tag == "kernelwright:other"]
    client.close()
