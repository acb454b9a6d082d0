"""Content digests: how every stored noun names its parent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import BaseModel


def digest_bytes(content: bytes) -> str:
    """Return the SHA-256 of `content` as 64 lower-case hex digits."""
    return hashlib.sha256(content).hexdigest()


def digest_file(path: Path) -> str:
    """Return the SHA-256 of the file at `path`, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(model: BaseModel) -> str:
    """Return `model` as JSON with sorted keys and no blanks, so that equal records have equal text."""
    return json.dumps(model.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def digest_of(model: BaseModel) -> str:
    """Return the SHA-256 of the canonical JSON of `model`."""
    return digest_bytes(canonical_json(model).encode())
