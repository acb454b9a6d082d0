"""The ledger's file: its tables, how it is opened, and what its errors mean to a person."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, WrongUse

SCHEMA_VERSION = 1

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE steps(name TEXT PRIMARY KEY, state TEXT, started_at REAL, ended_at REAL, result TEXT);
CREATE TABLE attempts(
    id INTEGER PRIMARY KEY, definition TEXT, candidate TEXT, proposer TEXT, author TEXT, phase TEXT,
    state TEXT, outcome TEXT, reason TEXT, ratio REAL, low REAL, high REAL, verdict TEXT,
    started_at REAL, ended_at REAL, times_begun INTEGER NOT NULL DEFAULT 1,
    UNIQUE(definition, candidate, phase));
CREATE TABLE events(seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, kind TEXT, data TEXT);
CREATE TABLE spent(kind TEXT PRIMARY KEY, amount REAL);
"""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors inside the block into ours: disk full, not a database, damaged."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # a broken rule of our own tables is a bug, not damage
    except sqlite3.OperationalError as error:
        raise EnvironmentLacks(
            f"could not use {path}: {error}",
            "Free space on that disk (or allow writing there), then continue with --resume.",
        ) from error
    except sqlite3.DatabaseError as error:
        raise BrokenInput(f"{path} is not a readable session ledger: {error}", "Restore it from a copy.") from error


def create_database(path: Path, meta: dict[str, str]) -> None:
    """Make a new ledger file at `path`, complete or not at all."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    try:
        with explained(path), contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            connection.executescript(f"BEGIN;{TABLES}")
            connection.executemany("INSERT INTO meta VALUES(?, ?)", list(meta.items()))
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL")
        os.replace(aside, path)
    finally:
        for leftover in (aside, Path(f"{aside}-wal"), Path(f"{aside}-shm"), Path(f"{aside}-journal")):
            leftover.unlink(missing_ok=True)


def connect(path: Path, readonly: bool) -> sqlite3.Connection:
    """Open the ledger file; every commit of a writer is on the disk when it returns. Raises BrokenInput, WrongUse."""
    if not path.is_file():
        what = f"{path.parent} is not a session folder: it holds no {path.name}"
        if not path.parent.is_dir():
            what = f"there is no folder {path.parent}"
        raise WrongUse(what, "Name the folder that `kernelwright optimize` printed, or start a session with it.")
    with explained(path):
        connection = _connect_readonly(path) if readonly else _connect_writer(path)
    try:
        _check_schema(connection, path)
    except BaseException:
        connection.close()  # whatever went wrong, the file must not stay open behind the error
        raise
    return connection


def _connect_writer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    connection.execute("PRAGMA journal_mode=WAL")
    # FULL: in WAL mode each commit is synced, so a verdict that was recorded survives a power cut, not only kill -9.
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _connect_readonly(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        connection.execute("SELECT count(*) FROM meta").fetchone()
    except sqlite3.OperationalError:
        # On a read-only file system SQLite cannot make its shared-memory file; without a log beside it the
        # database is whole and nobody can be writing, so it may be read as it lies.
        connection.close()
        if Path(f"{path}-wal").exists():
            raise
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    with explained(path):
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = {"meta", "steps", "attempts", "events", "spent"} - tables
        if missing:
            raise BrokenInput(
                f"{path} is not a session ledger: it lacks the table {', '.join(sorted(missing))}",
                "Name the folder that `kernelwright optimize` printed.",
            )
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        version = row[0] if row else "none"
        if version != str(SCHEMA_VERSION):
            raise BrokenInput(
                f"{path} has ledger schema {version}; this kernelwright reads schema {SCHEMA_VERSION}",
                "Open it with the kernelwright that wrote it.",
            )
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise BrokenInput(f"{path} is damaged: {damage}", "Restore it from a copy.")


def take_lock(folder: Path) -> int:
    """Become the folder's only writer; return the descriptor that holds the lock. Raises WrongUse when taken."""
    handle = os.open(folder / "session.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(10):
        # Tried a few times: `is_live` of a screen holds a shared lock for an instant.
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.03)
            continue
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle
    pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
    os.close(handle)
    raise WrongUse(
        f"another session is running here, pid {pid}",
        f"Wait for it, stop it (kill {pid}), or use another folder. `kernelwright tui {folder}` follows it.",
    )


def is_live(folder: Path) -> bool:
    """Return whether a process is writing to the session in `folder` now."""
    try:
        handle = os.open(folder / "session.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
