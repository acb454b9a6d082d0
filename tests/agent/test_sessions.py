"""Which session was last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelwright.agent.sessions import latest_session, sessions_home
from kernelwright.profiles.errors import WrongUse


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return sessions_home()


def touch(path: Path, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))


def test_the_ledger_written_last_decides(home: Path) -> None:
    touch(home / "old" / "session.db", 100)
    touch(home / "new" / "session.db", 200)
    assert latest_session() == home / "new"


def test_a_running_session_shows_on_its_write_ahead_log(home: Path) -> None:
    touch(home / "running" / "session.db", 100)
    touch(home / "running" / "session.db-wal", 300)
    touch(home / "finished" / "session.db", 200)
    assert latest_session() == home / "running"


def test_without_a_session_it_says_what_to_do(home: Path) -> None:
    with pytest.raises(WrongUse, match="optimize"):
        latest_session()
