"""Ledger: what a session did, on the disk before anything depends on it.

`session.db` (SQLite, WAL) beside `objects/`; the tables are in docs/architecture.md, "Ledger". One process writes, any
number read. Methods raise EnvironmentLacks when the disk is full and BrokenInput when the files are damaged.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from kernelwright.agent.database import SCHEMA_VERSION, connect, create_database, explained, take_lock
from kernelwright.agent.events import Event, SessionEnded, SessionStatus, parse_event, serialise_event
from kernelwright.agent.objects import ObjectStore, Record
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, WrongUse

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Step:
    """One row of `steps`; times in unix seconds, `result` an object digest."""

    name: str
    state: Literal["running", "done", "interrupted"]
    started_at: float
    ended_at: float | None
    result: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of `attempts`: a candidate before the judge. `candidate` and `verdict` are object digests."""

    id: int
    definition: str
    candidate: str
    proposer: str
    author: str
    phase: Literal["search", "confirm"]
    state: Literal["running", "judged", "interrupted"]
    outcome: str | None
    reason: str | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None
    started_at: float
    ended_at: float | None
    times_begun: int
    """1, and one more for every time it was begun again after an interruption."""


class Ledger:
    """A session folder. Made by `create` or `open`; a context manager."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.folder = folder
        self.objects = ObjectStore(folder / "objects")
        self._path = folder / "session.db"
        self._connection = connection
        self._lock = lock
        # Progress is reported from more than one thread; SQLite's connection and our nesting depth are shared.
        self._mutex = threading.RLock()
        self._depth = 0

    @classmethod
    def create(cls, folder: Path, arguments: dict[str, Any]) -> Ledger:
        """Start a session in `folder` (made if missing). Raises WrongUse when one is there, EnvironmentLacks."""
        path = folder / "session.db"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = take_lock(folder)
        except OSError as error:
            raise EnvironmentLacks(
                f"could not write to {folder}: {error.strerror}", "Choose another folder with --session."
            ) from error
        try:
            if path.exists():
                raise WrongUse(
                    f"{folder} holds a session already", "Continue it with --resume or choose another folder."
                )
            meta = {
                "schema_version": str(SCHEMA_VERSION),
                "created_at": repr(time.time()),
                "arguments": json.dumps(arguments, sort_keys=True),
                "status": "running",
            }
            create_database(path, meta)
            return cls(folder, connect(path, readonly=False), lock)
        except BaseException:
            os.close(lock)  # whatever went wrong, the next session must not find the folder locked
            raise

    @classmethod
    def open(cls, folder: Path, readonly: bool = False) -> Ledger:
        """Open the session in `folder`; a writer is alone. Raises WrongUse, BrokenInput, EnvironmentLacks."""
        if readonly or not (folder / "session.db").is_file():
            return cls(folder, connect(folder / "session.db", readonly=True), None)
        lock = take_lock(folder)
        try:
            return cls(folder, connect(folder / "session.db", readonly=False), lock)
        except BaseException:
            os.close(lock)  # as in `create`
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and let go of the folder; may be called twice."""
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block's rows appear together or not at all; blocks may nest."""
        with self._mutex, explained(self._path):
            if self._depth == 0:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                # Ctrl-C included: half of a transaction must not be committed by the next one.
                if self._depth == 1 and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            else:
                if self._depth == 1:
                    self._commit()
            finally:
                self._depth -= 1

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[int]:
        """Let a reader's block see one state of the tables; yields a number that changes when another wrote."""
        with self._mutex, explained(self._path):
            self._connection.execute("BEGIN")
            try:
                yield int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            finally:
                self._connection.execute("ROLLBACK")

    # session

    @property
    def status(self) -> SessionStatus:
        """How the session stands; `running` stays in the file when its process was killed."""
        status: SessionStatus = self._meta("status")  # type: ignore[assignment]
        return status

    @property
    def created_at(self) -> float:
        """Unix seconds."""
        return float(self._meta("created_at"))

    @property
    def arguments(self) -> dict[str, Any]:
        """What the session was started with."""
        arguments: dict[str, Any] = json.loads(self._meta("arguments"))
        return arguments

    def set_status(self, status: SessionStatus) -> None:
        """Record how the session stands."""
        with self.transaction():
            self._connection.execute("UPDATE meta SET value = ? WHERE key = 'status'", (status,))

    def end(self, status: SessionStatus, reason: str = "") -> None:
        """Record the end of the session: its status and the event."""
        with self.transaction():
            self.set_status(status)
            self.emit(SessionEnded(status=status, reason=reason))

    # objects

    def put(self, record: Record) -> str:
        """Store a model or a JSON object durably and return its digest."""
        return self.objects.put(record)

    def get(self, digest: str) -> dict[str, Any]:
        """Return the stored record; raises BrokenInput when it is missing or changed."""
        return self.objects.get(digest)

    def load(self, digest: str, model: type[Model]) -> Model:
        """Return the stored record as `model`; raises BrokenInput also when it is not one."""
        try:
            return model.model_validate(self.get(digest))
        except ValidationError as error:
            raise BrokenInput(
                f"the record {digest[:12]}… is not a {model.__name__}: {error}",
                "Open it with the kernelwright that wrote it.",
            ) from error

    # events

    def emit(self, event: Event) -> int:
        """Append `event`; return its sequence number (from 1, rising)."""
        with self.transaction():
            cursor = self._connection.execute(
                "INSERT INTO events(at, kind, data) VALUES(?, ?, ?)", serialise_event(event)
            )
        return int(cursor.lastrowid or 0)

    def events(self, after_seq: int = 0) -> list[tuple[int, Event]]:
        """Return (sequence number, event) of all events after `after_seq`, in order."""
        rows = self._rows("SELECT seq, at, kind, data FROM events WHERE seq > ? ORDER BY seq", after_seq)
        return [(seq, parse_event(at, kind, data)) for seq, at, kind, data in rows]

    # steps

    def begin_step(self, name: str) -> None:
        """Record that a step starts, or starts once more after an interruption."""
        with self.transaction():
            self._connection.execute(
                "INSERT INTO steps VALUES(?, 'running', ?, NULL, NULL) ON CONFLICT(name) DO UPDATE "
                "SET state = 'running', started_at = excluded.started_at, ended_at = NULL, result = NULL",
                (name, time.time()),
            )

    def finish_step(self, name: str, result: Record) -> str:
        """Record a step's result; return its digest. Raises ValueError when the step was not begun."""
        digest = self.put(result)
        with self.transaction():
            cursor = self._connection.execute(
                "UPDATE steps SET state = 'done', ended_at = ?, result = ? WHERE name = ? AND state = 'running'",
                (time.time(), digest, name),
            )
            if cursor.rowcount != 1:
                raise ValueError(f"step {name!r} is not running, so it cannot be finished")
        return digest

    def step_result(self, name: str) -> dict[str, Any] | None:
        """Return the result of a step that is done, else None."""
        rows = self._rows("SELECT result FROM steps WHERE name = ? AND state = 'done'", name)
        return self.get(rows[0][0]) if rows else None

    def steps(self) -> list[Step]:
        """Return all steps in the order in which they were first begun."""
        return [
            Step(*row)
            for row in self._rows("SELECT name, state, started_at, ended_at, result FROM steps ORDER BY rowid")
        ]

    # attempts

    def begin_attempt(
        self, definition: str, candidate: str, proposer: str, author: str, phase: Literal["search", "confirm"]
    ) -> int:
        """Record that a stored candidate goes before the judge; return the attempt's id.

        An interrupted attempt at the same thing is begun once more, with the same id. Raises ValueError when it was
        judged already or is running, and when the candidate was not stored first.
        """
        self._must_be_stored(candidate)
        with self.transaction():
            rows = self._connection.execute(
                "INSERT INTO attempts(definition, candidate, proposer, author, phase, state, started_at) "
                "VALUES(?, ?, ?, ?, ?, 'running', ?) ON CONFLICT(definition, candidate, phase) DO UPDATE "
                "SET state = 'running', started_at = excluded.started_at, times_begun = times_begun + 1 "
                "WHERE state = 'interrupted' RETURNING id",
                (definition, candidate, proposer, author, phase, time.time()),
            ).fetchall()
            if not rows:
                raise ValueError(f"{candidate[:12]} was judged before, or is running, on {definition} in {phase}")
        return int(rows[0][0])

    def finish_attempt(
        self,
        attempt: int,
        *,
        verdict: str | None,
        outcome: str,
        reason: str,
        ratio: float | None = None,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record the verdict (a stored object's digest, None if there is none) of a running attempt.

        Raises ValueError when the attempt is not running, so that no verdict is recorded twice.
        """
        if verdict is not None:
            self._must_be_stored(verdict)
        with self.transaction():
            cursor = self._connection.execute(
                "UPDATE attempts SET state = 'judged', ended_at = ?, verdict = ?, outcome = ?, reason = ?, "
                "ratio = ?, low = ?, high = ? WHERE id = ? AND state = 'running'",
                (time.time(), verdict, outcome, reason, ratio, low, high, attempt),
            )
            if cursor.rowcount != 1:
                raise ValueError(f"attempt {attempt} is not running, so it cannot be finished")

    def attempts(
        self,
        definition: str | None = None,
        candidate: str | None = None,
        phase: str | None = None,
        state: str | None = None,
    ) -> list[Attempt]:
        """Return the attempts that match every argument given, in the order in which they were first begun."""
        wanted = {"definition": definition, "candidate": candidate, "phase": phase, "state": state}
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in given) or "1"
        columns = ", ".join(Attempt.__slots__)
        rows = self._rows(f"SELECT {columns} FROM attempts WHERE {where} ORDER BY id", *given.values())
        return [Attempt(*row) for row in rows]

    def mark_interrupted(self) -> int:
        """Mark what was in flight (attempts and steps) `interrupted`; return how many attempts that were."""
        with self.transaction():
            self._connection.execute("UPDATE steps SET state = 'interrupted' WHERE state = 'running'")
            cursor = self._connection.execute("UPDATE attempts SET state = 'interrupted' WHERE state = 'running'")
        return cursor.rowcount

    # budget

    def spend(self, kind: str, amount: float) -> None:
        """Add to what was spent of `kind` (`wall_s`, `tokens`, `attempts`)."""
        with self.transaction():
            self._connection.execute(
                "INSERT INTO spent VALUES(?, ?) ON CONFLICT(kind) DO UPDATE SET amount = amount + excluded.amount",
                (kind, amount),
            )

    def spent(self) -> dict[str, float]:
        """Return what was spent by kind."""
        return dict(self._rows("SELECT kind, amount FROM spent ORDER BY kind"))

    # inside

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._mutex, explained(self._path):
            return self._connection.execute(sql, parameters).fetchall()

    def _meta(self, key: str) -> str:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        if not rows:
            raise BrokenInput(f"{self._path} lacks {key}", "Restore it from a copy.")
        return str(rows[0][0])

    def _must_be_stored(self, digest: str) -> None:
        if digest not in self.objects:
            raise ValueError(f"the object {digest[:12]} must be stored before a row names it")
