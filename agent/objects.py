"""Content-addressed store of records: `objects/aa/bb….json`, named by the SHA-256 of the canonical JSON.

A record is on the disk (written aside, synced, renamed) before `put` returns its digest, so a ledger row that names a
digest never points at nothing, whenever the process dies.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kernelwright.profiles.digest import canonical_json, digest_bytes
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks

Record = BaseModel | dict[str, Any]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ObjectStore:
    """Records below `root`, e.g. `<session>/objects`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, digest: str) -> Path:
        """Return where the record `digest` lives; raises BrokenInput when it is not a SHA-256 in lower-case hex."""
        if not _DIGEST.fullmatch(digest):
            raise BrokenInput(f"not a content digest: {digest!r}", "A digest is 64 lower-case hexadecimal digits.")
        return self.root / digest[:2] / f"{digest[2:]}.json"

    def __contains__(self, digest: str) -> bool:
        return self.path_of(digest).is_file()

    def put(self, record: Record) -> str:
        """Store `record` and return its digest. Raises EnvironmentLacks when it cannot be written (nothing stays)."""
        content = _canonical(record).encode()
        digest = digest_bytes(content)
        path = self.path_of(digest)
        if not path.is_file():
            try:
                _write_durably(path, content)
            except OSError as error:
                raise EnvironmentLacks(
                    f"could not write {path}: {error.strerror}",
                    "Free space on that disk (or allow writing there), then continue with --resume.",
                ) from error
        return digest

    def get(self, digest: str) -> dict[str, Any]:
        """Return the record `digest`; raises BrokenInput when it is missing or its content has another digest."""
        path = self.path_of(digest)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BrokenInput(
                f"the session names the record {digest[:12]}…, but {path} cannot be read: {error.strerror}",
                "Restore the session folder from a copy.",
            ) from error
        if digest_bytes(content) != digest:
            raise BrokenInput(
                f"{path} was changed after it was written: its content no longer has the digest in its name",
                "Restore the session folder from a copy; nothing that rests on this record can be trusted.",
            )
        record: dict[str, Any] = json.loads(content)
        return record


def _canonical(record: Record) -> str:
    if isinstance(record, BaseModel):
        return canonical_json(record)
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def _write_durably(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        # Ctrl-C included: a half-written file must not stay, and the error must still reach the caller.
        Path(aside).unlink(missing_ok=True)
        raise
    for folder in (path.parent, path.parent.parent):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
