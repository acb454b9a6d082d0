"""Evidence bundle: the records behind a patch as plain files with their digests.

SHA256SUMS lists every other file; its own SHA-256 is the bundle's digest: `sha256sum -c SHA256SUMS` in a clone checks
what a commit message names. No captured tensor goes in: what users typed stays in the session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from kernelwright.profiles.digest import digest_bytes
from kernelwright.profiles.errors import BrokenInput

SUMS = "SHA256SUMS"


def write_bundle(folder: Path, records: Mapping[str, BaseModel | str]) -> str:
    """Write `records` (relative path → model, as JSON, or text) as a bundle at `folder` and return its digest.

    An older bundle at `folder` is replaced by one rename. Raises ValueError on a path that leaves the folder.
    """
    building = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    for name, record in records.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or name == SUMS:
            raise ValueError(f"not a place in a bundle: {name!r}")
        text = record if isinstance(record, str) else record.model_dump_json(indent=2) + "\n"
        path = building / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    (building / SUMS).write_text(_sums(building))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(building, folder)
    return bundle_digest(folder)


def bundle_digest(folder: Path) -> str:
    """Return the digest of the bundle at `folder` after checking every file against it.

    Raises BrokenInput when a file is missing, was added or was changed.
    """
    remedy = "Write the bundle again, or take it from the commit it came with"
    try:
        listed = (folder / SUMS).read_text()
    except OSError as error:
        raise BrokenInput(f"{folder} is no evidence bundle: it has no {SUMS}", remedy) from error
    found = _sums(folder)
    if listed != found:
        differing = {line.partition("  ")[2] for line in set(listed.splitlines()) ^ set(found.splitlines())}
        raise BrokenInput(f"the evidence at {folder} was changed: {', '.join(sorted(differing))}", remedy)
    return digest_bytes(listed.encode())


def _sums(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)
    return "".join(f"{digest_bytes(path.read_bytes())}  {path.relative_to(folder).as_posix()}\n" for path in files)
