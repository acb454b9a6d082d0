"""The build context of an image: everything the build needs in one folder, so that it needs no network."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kernelwright.engine.bundle import bundle_digest
from kernelwright.engine.checkpoint import model_digest, model_files
from kernelwright.engine.pack import PackManifest, read_kernel, read_manifest
from kernelwright.engine.weights import is_model
from kernelwright.engine.wheelhouse import write_wheelhouse
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import BrokenInput, KernelwrightError

DEFAULT_BASE = "kernelwright-base"
LABEL = "org.kernelwright"
HOW = """\
# Build this image

    docker build --network none -t {tag} .          (or: buildah build --network none -t {tag} .)

The base `{base}` must be there. Any image with Python {python}, its venv module and g++ will do (change the two FROM
lines). To make one from a Debian root file system, as root:

    debootstrap --variant=minbase --include={packages} {suite} rootfs
    tar -C rootfs -c . | docker import - {base}

Run it: `docker run --rm -p 8000:8000 {tag}`. Ask `/v1/kernels` whether the kernels are live.
"""


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What an image takes from a session folder."""

    name: str
    pack: Path
    evidence: Path
    model: Path
    manifest: PackManifest
    evidence_digest: str
    gate_digest: str


def read_session(session_dir: Path, model: Path | None = None) -> SessionParts:
    """Return the parts of a finished session.

    Raises BrokenInput when the folder is no finished session, KernelwrightError (the answer is no) when its pack has
    not passed the gate.
    """
    gate = session_dir / "gate.json"
    remedy = "Give the folder of a session that `kernelwright optimize` finished"
    if not gate.is_file():
        raise BrokenInput(f"{session_dir} has no gated kernels (no gate.json)", remedy)
    text = gate.read_bytes()
    try:
        state, reasons = (found := json.loads(text))["state"], found["reasons"]
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{gate} cannot be read: {error}", remedy) from error
    if state != "pass":
        why = "; ".join(reasons)
        raise KernelwrightError(f"the kernels of {session_dir} did not pass the gate: {why}", "Optimise again")
    pack, evidence = session_dir / "pack", session_dir / "evidence"
    manifest = read_manifest(pack)
    for entry in manifest.kernels:
        read_kernel(pack, entry)
    return SessionParts(
        name=session_dir.resolve().name,
        pack=pack,
        evidence=evidence,
        model=model or _model_of(session_dir),
        manifest=manifest,
        evidence_digest=bundle_digest(evidence),
        gate_digest=digest_bytes(text),
    )


def write_context(
    folder: Path,
    parts: SessionParts,
    base: str,
    tag: str,
    on_progress: Callable[[str], None],
    base_digest: str | None = None,
) -> dict[str, str]:
    """Write Dockerfile, wheelhouse, pack, evidence and weights to `folder` (replaced) and return the image's labels.

    Raises BrokenInput when the weights are not those the kernels were judged with.
    """
    if model_digest(parts.model) != parts.manifest.model_digest:
        raise BrokenInput(
            f"{parts.model} is not the model the kernels were judged with", "Give the session's own model"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    on_progress("writing the wheelhouse")
    write_wheelhouse(folder / "wheelhouse", on_progress)
    shutil.copytree(parts.pack, folder / "pack")
    shutil.copytree(parts.evidence, folder / "evidence")
    model = copy_model(parts.model, folder)
    labels = {
        f"{LABEL}.session": parts.name,
        f"{LABEL}.base": base_digest or base,
        f"{LABEL}.pack": digest_of(parts.manifest),
        f"{LABEL}.evidence": parts.evidence_digest,
        f"{LABEL}.gate": parts.gate_digest,
        f"{LABEL}.model": parts.manifest.model_digest,
    }
    (folder / "Dockerfile").write_text(render_dockerfile(parts.name, base, labels, model))
    (folder / ".dockerignore").write_text("BUILD.md\n")
    how = HOW.format(tag=tag, base=base, python=python_version(), packages=",".join(BASE_PACKAGES), suite=suite_name())
    (folder / "BUILD.md").write_text(how)
    return labels


def copy_model(model: Path, folder: Path) -> str:
    """Copy a GGUF file, or the files of a model folder that are read, into `folder`; return the copy's name there."""
    if not model.is_dir():
        shutil.copyfile(model, folder / "model.gguf")
        return "model.gguf"
    (folder / "model").mkdir()
    for file in model_files(model):
        shutil.copyfile(file, folder / "model" / file.name)
    return "model"


def render_dockerfile(session: str, base: str, labels: dict[str, str], model: str = "model.gguf") -> str:
    """Return the Dockerfile's text; `model` is the weights' file or folder in the context."""
    import jinja2

    source = (files("kernelwright.engine") / "docker" / "Dockerfile.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(source).render(
        session=session, base=base, labels=labels, model=model, python=python_version()
    )


SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""Python → the Debian release whose own python3 it is."""
BASE_PACKAGES = ("python3", "python3-venv", "g++", "libgomp1", "ca-certificates")


def python_version() -> str:
    """Return this interpreter's version as the wheels name it, e.g. 3.11."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def suite_name() -> str:
    """Return the Debian release with this interpreter's Python; `unstable` where none has it."""
    return SUITES.get(python_version(), "unstable")


def _model_of(session_dir: Path) -> Path:
    """Return the model a session served, from its ledger (table `meta`, key `arguments`)."""
    path = session_dir / "session.db"
    remedy = "Name the weights: --model PATH"
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as ledger:
            row = ledger.execute("SELECT value FROM meta WHERE key = 'arguments'").fetchone()
        model = Path(json.loads(row[0])["model"])
    except (sqlite3.Error, TypeError, ValueError, KeyError) as error:
        raise BrokenInput(f"{path} does not say which model was served: {error}", remedy) from error
    if not is_model(model):
        raise BrokenInput(f"the session's model is gone: {model}", remedy)
    return model
