"""The store returns what was put, refuses what was changed, and leaves nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernelwright.agent.events import ProblemPosed
from kernelwright.agent.objects import ObjectStore
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput


def test_put_and_get(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "objects")
    event = ProblemPosed(at=1.0, definition="d")
    digest = store.put(event)
    assert digest == digest_of(event)
    assert store.get(digest) == {"at": 1.0, "definition": "d"}
    assert store.path_of(digest) == tmp_path / "objects" / digest[:2] / f"{digest[2:]}.json"
    assert digest in store


def test_a_dict_and_the_model_it_came_from_are_one_object(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    event = ProblemPosed(at=1.0, definition="d")
    assert store.put({"definition": "d", "at": 1.0}) == store.put(event)
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_a_changed_object_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    digest = store.put({"ratio": 1.1})
    store.path_of(digest).write_text('{"ratio":9.1}')
    with pytest.raises(BrokenInput, match="was changed"):
        store.get(digest)


def test_a_missing_object_and_a_name_that_is_no_digest_are_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(BrokenInput, match="cannot be read"):
        store.get("0" * 64)
    with pytest.raises(BrokenInput, match="not a content digest"):
        store.get("../../etc/passwd")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    # RLIMIT_FSIZE makes the kernel refuse the write the way a full disk does; it holds for a whole process.
    program = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from kernelwright.agent.objects import ObjectStore
        from kernelwright.profiles.errors import EnvironmentLacks
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            ObjectStore(Path(sys.argv[1])).put({"log": "x" * 100_000})
        except EnvironmentLacks as error:
            print(error.message)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "could not write" in done.stdout
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
