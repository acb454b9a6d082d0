"""Kernel pack: a folder of accepted kernels, one per repository. Layout: docs/architecture.md, "Kernel pack".

Sources and evidence are in the pack, binaries are not: `load_pack` (engine/pack_load.py) rebuilds them into the cache
and compares them with the digest that was judged. A kernel's folder is written beside its place and renamed, the
manifest last, so that a pack never lists what is not there.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ValidationError, field_validator, model_validator

from kernelwright.kernels.candidate import AxisRange, Candidate, Isa
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.verdict import Verdict

MANIFEST = "manifest.json"
DEFAULT_LICENCE = "Apache-2.0"
SOURCE_SUFFIXES = {
    "cpp": (".cpp", ".cc", ".h", ".hpp", ".inc"), "cuda": (".cu", ".cuh", ".h"), "python": (".py",), "triton": (".py",),
}  # fmt: skip

PYTEST_INI = """\
[pytest]
# every kernel's test has the same file name
addopts = --import-mode=importlib
"""
ATTRIBUTES = """\
# sources are compared by digest: no newline conversion
* -text
"""
TEST = '''\
"""Rebuild this kernel and check it against its reference at the ends of its ranges: `pytest {path}`.

Needs `kernelwright` and a C++ compiler. It loads the kernel into this very process: read the source first.
"""

from pathlib import Path

from kernelwright.engine.pack_check import check_kernel


def test_kernel_matches_its_reference():
    report = check_kernel(Path(__file__).parent)
    assert report.state != "wrong", report.describe()
    if report.state == "skipped":
        import pytest

        pytest.skip(report.describe())
'''


class KernelEntry(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One kernel of a pack. Its folder is `kernels/<definition>/<candidate[:12]>/`."""

    definition: str
    candidate: str
    """Digest of the Candidate."""
    binary: str | None
    """SHA-256 of the shared object that was judged; None for a candidate that is not compiled."""
    ranges: dict[str, AxisRange]
    """Axis ranges proven; outside them the incumbent runs."""
    isa: Isa
    hardware: str
    """The machine it was judged on, in words."""
    verdict: str
    """Digest of the confirm Verdict."""
    author: str
    proposer: str
    licence: str = DEFAULT_LICENCE
    """SPDX identifier."""

    @model_validator(mode="before")
    @classmethod
    def _drop_the_mark_of_earlier_judges(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if k != "provisional"} if isinstance(data, dict) else data

    @field_validator("definition", "candidate")
    @classmethod
    def _is_a_plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise ValueError(f"not a name: {name!r}")  # it becomes a path
        return name

    @property
    def folder(self) -> str:
        """The kernel's folder, relative to the pack."""
        return f"kernels/{self.definition}/{self.candidate[:12]}"


class PackManifest(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    name: str
    model_digest: str
    """SHA-256 of the weights file the kernels were judged with; they are right for any weights of these shapes."""
    kernels: tuple[KernelEntry, ...] = ()


class PackedKernel(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What a kernel's folder says about it, read back."""

    entry: KernelEntry
    candidate: Candidate
    verdict: Verdict
    definition: Definition
    contract: SlotContract
    cases: tuple[dict[str, int], ...]
    """Axis values at which the kernel's own test runs it."""


def write_kernel(
    pack_dir: Path,
    candidate: Candidate,
    verdict: Verdict,
    problem: Problem,
    *,
    model_digest: str,
    hardware: str,
    name: str = "kernels",
    licence: str = DEFAULT_LICENCE,
) -> KernelEntry:
    """Add an accepted candidate to the pack at `pack_dir` (made if absent) and return its entry.

    A kernel of the same definition whose ranges are the same is replaced in the manifest. Raises ValueError when the
    verdict does not allow a patch or is not about this candidate and problem, BrokenInput when a source file's name
    has no place in a pack.
    """
    _check_belongs(candidate, verdict, problem)
    ranges = {axis: _narrower(problem.ranges.get(axis), r) for axis, r in candidate.ranges.items()}
    ranges |= {axis: r for axis, r in problem.ranges.items() if axis not in ranges}
    entry = KernelEntry(
        definition=candidate.definition,
        candidate=digest_of(candidate),
        binary=verdict.binary,
        ranges=ranges,
        isa=candidate.isa,
        hardware=hardware,
        verdict=digest_of(verdict),
        author=candidate.author,
        proposer=candidate.proposer,
        licence=licence,
    )
    pack_dir.mkdir(parents=True, exist_ok=True)
    _write_folder(pack_dir, entry, candidate, verdict, problem)
    manifest = read_manifest(pack_dir) if (pack_dir / MANIFEST).exists() else None
    others = manifest.kernels if manifest else ()
    kept = tuple(k for k in others if (k.definition, k.ranges) != (entry.definition, entry.ranges))
    write_manifest(pack_dir, PackManifest(name=name, model_digest=model_digest, kernels=(*kept, entry)))
    return entry


def write_manifest(pack_dir: Path, manifest: PackManifest) -> None:
    """Write manifest.json and the two files that make a checkout of the pack testable and byte-exact."""
    _write_file(pack_dir / "pytest.ini", PYTEST_INI)
    _write_file(pack_dir / ".gitattributes", ATTRIBUTES)
    _write_file(pack_dir / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def keep_kernels(pack_dir: Path, candidates: Collection[str]) -> PackManifest:
    """Take every kernel but `candidates` (digests) out of the pack at `pack_dir` and return the new manifest."""
    manifest = read_manifest(pack_dir)
    kept = PackManifest(
        name=manifest.name,
        model_digest=manifest.model_digest,
        kernels=tuple(entry for entry in manifest.kernels if entry.candidate in candidates),
    )
    write_manifest(pack_dir, kept)
    for entry in [entry for entry in manifest.kernels if entry not in kept.kernels]:
        shutil.rmtree(pack_dir / entry.folder, ignore_errors=True)
    return kept


def read_manifest(pack_dir: Path) -> PackManifest:
    """Return the manifest of the pack at `pack_dir`. Raises BrokenInput when there is none or it cannot be read."""
    path = pack_dir / MANIFEST
    remedy = "Give the folder that holds manifest.json and kernels/, as `optimize` wrote it"
    try:
        return PackManifest.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise BrokenInput(f"{pack_dir} is not a kernel pack: it has no {MANIFEST}", remedy) from error
    except (OSError, ValidationError) as error:
        raise BrokenInput(f"{path} cannot be read: {_first_line(error)}", remedy) from error


def read_kernel(pack_dir: Path, entry: KernelEntry) -> PackedKernel:
    """Return one kernel of a pack, checked against the digests of its entry.

    Raises BrokenInput when a file is missing, does not parse, or is not what the manifest says it is.
    """
    folder = pack_dir / entry.folder
    remedy = f"Restore {folder} (git checkout -- {entry.folder}), or take the entry out of {MANIFEST}"
    try:
        kernel = PackedKernel(
            entry=entry,
            candidate=Candidate.model_validate_json((folder / "candidate.json").read_bytes()),
            verdict=Verdict.model_validate_json((folder / "verdict.json").read_bytes()),
            definition=Definition.model_validate_json((folder / "definition.json").read_bytes()),
            contract=SlotContract.model_validate_json((folder / "contract.json").read_bytes()),
            cases=_Cases.model_validate_json((folder / "cases.json").read_bytes()).cases,
        )
    except (OSError, ValidationError) as error:
        raise BrokenInput(f"kernel {entry.folder} cannot be read: {_first_line(error)}", remedy) from error
    if digest_of(kernel.candidate) != entry.candidate:
        raise BrokenInput(f"{folder}/candidate.json is not the candidate the manifest names", remedy)
    if digest_of(kernel.verdict) != entry.verdict or kernel.verdict.candidate != entry.candidate:
        raise BrokenInput(f"{folder}/verdict.json is not the verdict the manifest names", remedy)
    for source in kernel.candidate.sources:
        if not (folder / source.path).is_file() or (folder / source.path).read_bytes() != source.content.encode():
            raise BrokenInput(f"{folder / source.path} differs from what was judged", remedy)
    return kernel


def kernel_folder_entry(folder: Path) -> tuple[Path, KernelEntry]:
    """Return the pack and the entry of a kernel's folder. Raises BrokenInput when no manifest above it names it."""
    pack_dir = folder.resolve().parent.parent.parent
    for entry in read_manifest(pack_dir).kernels:
        if (pack_dir / entry.folder) == folder.resolve():
            return pack_dir, entry
    raise BrokenInput(f"{pack_dir / MANIFEST} does not name {folder}", "The kernel was replaced; remove its folder")


class _Cases(BaseModel, frozen=True, extra="forbid"):
    cases: tuple[dict[str, int], ...]


def _check_belongs(candidate: Candidate, verdict: Verdict, problem: Problem) -> None:
    if not verdict.accepted:
        raise ValueError(f"a verdict of `{verdict.outcome}` ({verdict.phase}, {verdict.isolation}) allows no patch")
    if verdict.candidate != digest_of(candidate):
        raise ValueError("the verdict is about another candidate")
    if verdict.problem != digest_of(problem) or problem.definition.name != candidate.definition:
        raise ValueError("the verdict is about another problem")
    for source in candidate.sources:
        name = PurePosixPath(source.path).name
        # a candidate must not bring a conftest.py, a test or a record of ours into a folder that people run pytest in
        if not name.endswith(SOURCE_SUFFIXES[candidate.language]) or name.startswith((".", "conftest", "test_")):
            raise BrokenInput(f"a kernel pack takes no {source.path!r} in a {candidate.language} kernel", "Rename it")


def _narrower(asked: AxisRange | None, claimed: AxisRange) -> AxisRange:
    if asked is None:
        return claimed
    return AxisRange(low=max(asked.low, claimed.low), high=min(asked.high, claimed.high))


def _cases(candidate: Candidate, problem: Problem) -> tuple[dict[str, int], ...]:
    """Return the timed axes and the ends of the token axis among the problem's workloads that the candidate covers."""
    axis = problem.contract.token_axis
    covered = [w.axes for w in problem.workloads if candidate.covers(w.axes) and axis in w.axes]
    covered.sort(key=lambda axes: axes[axis])
    chosen = [problem.timed_axes, *covered[:1], *covered[-1:]]
    return tuple({tuple(sorted(axes.items())): axes for axes in chosen}.values())


def _write_folder(pack_dir: Path, entry: KernelEntry, candidate: Candidate, verdict: Verdict, problem: Problem) -> None:
    target = pack_dir / entry.folder
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    os.chmod(building, 0o755)  # mkdtemp's 0700 would hide the pack from a cage with a user of its own
    records = {
        "candidate": candidate,
        "verdict": verdict,
        "definition": problem.definition,
        "contract": problem.contract,
    }
    try:
        for file, record in records.items():
            _write_file(building / f"{file}.json", record.model_dump_json(indent=2) + "\n")
        _write_file(building / "cases.json", _Cases(cases=_cases(candidate, problem)).model_dump_json(indent=2) + "\n")
        for source in candidate.sources:
            _write_file(building / source.path, source.content)
        _write_file(building / "test_kernel.py", TEST.format(path=f"{entry.folder}/test_kernel.py"))
        _write_file(building / "LICENSE.spdx", f"SPDX-License-Identifier: {entry.licence}\n")
        shutil.rmtree(target, ignore_errors=True)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8", newline="")
    os.replace(beside, path)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0]
