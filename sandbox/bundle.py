"""Evidence bundle of one verdict: everything needed to judge it again, as plain files or one archive.

    bundle.json     what the bundle names but leaves out: the model's digest, stored inputs by digest
    problem.json candidate.json verdict.json
    sources/…       the candidate's files, as they were compiled
    SHA256SUMS      every other file; its own SHA-256 is the bundle's digest (`sha256sum -c` checks it)

Captured activations and weights never go in, and nothing that names a machine, a person's home or an account.
"""

from __future__ import annotations

import getpass
import gzip
import io
import json
import os
import re
import shutil
import socket
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import StoredInput
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.verdict import Verdict

SUMS = "SHA256SUMS"
MOST_FILES, FILE_BYTES, TOTAL_BYTES = 512, 16 << 20, 64 << 20
REMEDY = "Take the bundle again from where it was published"
Noun = TypeVar("Noun", bound=BaseModel)


class Named(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """`bundle.json`: what belongs to the evidence and is not in it."""

    schema_version: Literal[1] = 1
    verdict: str
    """Digest of the verdict as the judge wrote it; the one here has machine paths and names taken out of its texts."""
    model: str | None = None
    """SHA-256 of the weight file."""
    withheld: dict[str, str] = {}
    """Stored input (path in the problem folder) → SHA-256 of the file, '' where it was not at hand."""


class Bundle(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    problem: Problem
    candidate: Candidate
    verdict: Verdict
    named: Named
    sources: dict[str, str]
    """As the files hold them; they must be those of the candidate."""
    digest: str
    """SHA-256 of SHA256SUMS."""
    altered: tuple[str, ...] = ()
    """Files that differ from SHA256SUMS, are missing, or are not listed there."""


def write_bundle(
    folder: Path,
    problem: Problem,
    candidate: Candidate,
    verdict: Verdict,
    *,
    problem_dir: Path | None = None,
    model: str | None = None,
) -> Path:
    """Write the bundle at `folder`, replacing an older one, and return `folder`. Equal arguments give equal bytes.

    `problem_dir`: where stored inputs lie, for their digests. `model`: SHA-256 of the weight file. Raises BrokenInput
    on a source path that cannot be listed.
    """
    files = _render(problem, candidate, verdict, problem_dir, model)
    building = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    for name, content in files.items():
        path = building / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(building, folder)
    return folder


def pack_bundle(folder: Path, archive: Path) -> Path:
    """Write the bundle at `folder` as one .tar.gz with no times, owners or modes of its own; return `archive`."""
    files = _read_folder(folder)
    with (
        open(archive, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    return archive


def read_bundle(path: Path) -> Bundle:
    """Return the bundle at `path`, a folder or .tar.gz. Nothing is unpacked to disk.

    Digests that do not hold are told in `altered`; what is no bundle at all raises BrokenInput.
    """
    files = _read_folder(path) if path.is_dir() else _read_archive(path)
    if SUMS not in files:
        raise BrokenInput(f"{path} is no evidence bundle: it has no {SUMS}", REMEDY)
    sums = files.pop(SUMS)
    sources = {name.removeprefix("sources/"): content for name, content in files.items() if name.startswith("sources/")}
    try:
        texts = {name: content.decode() for name, content in sources.items()}
    except UnicodeDecodeError as error:
        raise BrokenInput(f"{path}: a source is not UTF-8", REMEDY) from error
    return Bundle(
        problem=_parse(files, "problem.json", Problem),
        candidate=_parse(files, "candidate.json", Candidate),
        verdict=_parse(files, "verdict.json", Verdict),
        named=_parse(files, "bundle.json", Named),
        sources=texts,
        digest=digest_bytes(sums),
        altered=_differing(sums, files),
    )


def _render(
    problem: Problem, candidate: Candidate, verdict: Verdict, problem_dir: Path | None, model: str | None
) -> dict[str, bytes]:
    named = Named(verdict=digest_of(verdict), model=model, withheld=_withheld(problem, problem_dir))
    nouns = {"bundle": named, "problem": problem, "candidate": candidate, "verdict": without_places(verdict)}
    files = {f"{name}.json": _json(noun) for name, noun in nouns.items()}
    for source in candidate.sources:
        name = f"sources/{PurePosixPath(source.path)}"
        if name in files or re.search(r"[\x00-\x1f\x7f\\]", name):
            raise BrokenInput(f"a source cannot be listed under its path: {source.path!r}", "Give it a plain file name")
        files[name] = source.content.encode()
    return {**files, SUMS: _sums(files)}


def _json(noun: BaseModel) -> bytes:
    """Return JSON in the order of the fields: that of a definition's inputs has a meaning."""
    return (json.dumps(noun.model_dump(mode="json"), indent=1) + "\n").encode()


def _withheld(problem: Problem, folder: Path | None) -> dict[str, str]:
    paths = sorted({i.path for w in problem.workloads for i in w.inputs.values() if isinstance(i, StoredInput)})
    there = {path: folder / path for path in paths if folder is not None and (folder / path).is_file()}
    return {path: digest_bytes(there[path].read_bytes()) if path in there else "" for path in paths}


def without_places(verdict: Verdict) -> Verdict:
    """Return `verdict` with absolute paths, host name, account and home taken out of its logs and facts."""
    names = {socket.gethostname(): "HOST", os.environ.get("HOSTNAME", ""): "HOST", _account(): "ACCOUNT"}

    def clean(text: str) -> str:
        text = re.sub(r"(?<![\w.:/-])/(?:[\w.+@~ -]*[\w.+@~-]/)+", ".../", text)
        for name, stand_in in names.items():
            if len(name) > 2:
                text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", stand_in, text)
        return text

    return verdict.model_copy(
        update={
            "evaluations": tuple(e.model_copy(update={"log": clean(e.log)}) for e in verdict.evaluations),
            "isolation_facts": {key: clean(value) for key, value in verdict.isolation_facts.items()},
            "environment": {key: clean(value) for key, value in verdict.environment.items()},
        }
    )


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""


def _sums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{digest_bytes(files[name])}  {name}\n" for name in sorted(files)).encode()


def _differing(sums: bytes, files: Mapping[str, bytes]) -> tuple[str, ...]:
    listed, found = sums.decode(errors="replace"), _sums(files).decode()
    if listed == found:
        return ()
    lines = set(listed.splitlines()) ^ set(found.splitlines())
    return tuple(sorted({line.partition("  ")[2][:200] or SUMS for line in lines})) or (SUMS,)


def _parse(files: Mapping[str, bytes], name: str, noun: type[Noun]) -> Noun:
    if name not in files:
        raise BrokenInput(f"the bundle has no {name}", REMEDY)
    try:
        return noun.model_validate_json(files[name])
    except ValidationError as error:
        raise BrokenInput(f"{name} of the bundle is no {noun.__name__}: {error}", REMEDY) from error


def _read_folder(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BrokenInput(f"{path} is neither a file nor a folder", REMEDY)
        if path.is_file():
            _admit(files, path.relative_to(folder).as_posix(), path.stat().st_size)
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def _read_archive(path: Path) -> dict[str, bytes]:
    """Return name → content of a .tar.gz that holds plain files only, none outside its root, none large."""
    files: dict[str, bytes] = {}
    try:
        with gzip.open(path) as stream:
            content = stream.read(TOTAL_BYTES + 1)
        if len(content) > TOTAL_BYTES:
            raise BrokenInput(f"{path} unpacks to more than {TOTAL_BYTES >> 20} MiB", REMEDY)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for entry in tar:
                name = PurePosixPath(entry.name)
                if not entry.isreg() or entry.issparse() or name.is_absolute() or ".." in name.parts:
                    raise BrokenInput(f"{path} holds what no bundle has: {entry.name[:200]!r}", REMEDY)
                _admit(files, entry.name, entry.size)
                held = tar.extractfile(entry)
                files[entry.name] = held.read() if held else b""
    except (OSError, EOFError, tarfile.TarError, ValueError, ArithmeticError, zlib.error) as error:
        raise BrokenInput(f"cannot read {path}: {error}", "Give a bundle's folder or its .tar.gz") from error
    return files


def _admit(files: Mapping[str, bytes], name: str, size: int) -> None:
    if name in files or len(files) >= MOST_FILES or size > FILE_BYTES:
        raise BrokenInput(f"the bundle has too many files, one twice or one too large: {name[:200]!r}", REMEDY)
    if sum(map(len, files.values())) + size > TOTAL_BYTES:
        raise BrokenInput(f"the bundle is larger than {TOTAL_BYTES >> 20} MiB", REMEDY)
