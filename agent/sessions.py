"""Where sessions live, and which one was last."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kernelwright.profiles.errors import WrongUse


def sessions_home() -> Path:
    """Return the user's state folder for sessions ($XDG_STATE_HOME/kernelwright/sessions)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "kernelwright" / "sessions"


def new_session_folder() -> Path:
    """Return a folder name that does not exist yet; it is created by the ledger."""
    return sessions_home() / time.strftime("%Y%m%d-%H%M%S")


def latest_session() -> Path:
    """Return the session touched last. Raises WrongUse when there is none."""
    found = [p.parent for p in sessions_home().glob("*/session.db")]
    if not found:
        raise WrongUse(
            f"no session in {sessions_home()}", "Run `kernelwright optimize` first, or name a session folder."
        )
    return max(found, key=_touched_at)


def _touched_at(folder: Path) -> float:
    """Return when the ledger was written last, Unix time; while a session runs that shows on its write-ahead log."""
    files = (folder / "session.db", folder / "session.db-wal")
    return max(file.stat().st_mtime for file in files if file.exists())
