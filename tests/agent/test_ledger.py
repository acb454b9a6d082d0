"""The ledger keeps what it was told, through kill -9, a full disk and a second writer."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kernelwright.agent.database import is_live
from kernelwright.agent.events import ProblemPosed, ProgressMade, SessionEnded, SessionStarted
from kernelwright.agent.ledger import Ledger
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, WrongUse


def begin(ledger: Ledger, name: str = "one", phase: str = "search") -> int:
    return ledger.begin_attempt("d", ledger.put({"source": name}), "templates", "q4_1_linear", phase)  # type: ignore[arg-type]


def judge(ledger: Ledger, attempt: int) -> str:
    verdict = ledger.put({"verdict": attempt})
    ledger.finish_attempt(attempt, verdict=verdict, outcome="faster", reason="faster", ratio=2.0, low=1.9, high=2.1)
    return verdict


def start_child(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip


def test_a_session_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "s", {"minutes": 12, "model": "m.gguf"}) as ledger:
        ledger.emit(SessionStarted())
        ledger.begin_step("profile")
        ledger.finish_step("profile", {"busy_ns": 10})
        ledger.begin_step("rank")
        verdict = judge(ledger, begin(ledger))
        ledger.spend("wall_s", 1.5)
        ledger.spend("wall_s", 2.0)
        ledger.end("done", "nothing left to try")
    with Ledger.open(tmp_path / "s", readonly=True) as ledger:
        assert ledger.arguments == {"minutes": 12, "model": "m.gguf"}
        assert ledger.status == "done"
        assert abs(ledger.created_at - time.time()) < 60
        assert [type(event) for _, event in ledger.events()] == [SessionStarted, SessionEnded]
        assert [(step.name, step.state) for step in ledger.steps()] == [("profile", "done"), ("rank", "running")]
        assert ledger.step_result("profile") == {"busy_ns": 10}
        assert ledger.step_result("rank") is None and ledger.step_result("gate") is None
        (attempt,) = ledger.attempts(definition="d", state="judged")
        assert (attempt.outcome, attempt.ratio, attempt.verdict) == ("faster", 2.0, verdict)
        assert ledger.get(attempt.candidate) == {"source": "one"}
        assert ledger.spent() == {"wall_s": 3.5}


def test_events_can_be_followed(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as writer, Ledger.open(tmp_path, readonly=True) as reader:
        last = writer.emit(ProblemPosed(definition="a"))
        assert [seq for seq, _ in reader.events()] == [last]
        writer.emit(ProblemPosed(definition="b"))
        ((seq, event),) = reader.events(after_seq=last)
        assert seq > last and event == reader.events()[1][1]


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    Ledger.create(tmp_path, {}).close()
    with Ledger.open(tmp_path, readonly=True) as reader, pytest.raises(EnvironmentLacks, match="readonly"):
        reader.emit(SessionStarted())


def test_rows_of_a_transaction_appear_together_or_not_at_all(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        with pytest.raises(RuntimeError), ledger.transaction():
            ledger.emit(SessionStarted())
            begin(ledger)
            raise RuntimeError("stopped half-way")
        assert ledger.events() == [] and ledger.attempts() == []
        with ledger.transaction():
            ledger.emit(SessionStarted())
        assert len(ledger.events()) == 1


def test_a_step_that_was_not_begun_cannot_be_finished(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger, pytest.raises(ValueError, match="not running"):
        ledger.finish_step("gate", {})


def test_no_attempt_is_judged_twice(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        attempt = begin(ledger)
        with pytest.raises(ValueError, match="is running"):
            begin(ledger)
        judge(ledger, attempt)
        with pytest.raises(ValueError, match="not running"):
            judge(ledger, attempt)
        with pytest.raises(ValueError, match="judged before"):
            begin(ledger)
        assert begin(ledger, phase="confirm") != attempt


def test_a_row_cannot_name_an_object_that_is_not_stored(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        with pytest.raises(ValueError, match="stored"):
            ledger.begin_attempt("d", "0" * 64, "templates", "f", "search")
        with pytest.raises(ValueError, match="stored"):
            ledger.finish_attempt(begin(ledger), verdict="1" * 64, outcome="slower", reason="")


def test_what_was_in_flight_is_marked_and_run_once_more(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        judged, flying = begin(ledger, "one"), begin(ledger, "two")
        judge(ledger, judged)
        ledger.begin_step("profile")
    with Ledger.open(tmp_path) as ledger:
        assert ledger.mark_interrupted() == 1
        assert [a.state for a in ledger.attempts()] == ["judged", "interrupted"]
        assert ledger.steps()[0].state == "interrupted"
        assert begin(ledger, "two") == flying
        judge(ledger, flying)
        assert [(a.state, a.times_begun) for a in ledger.attempts()] == [("judged", 1), ("judged", 2)]
        assert ledger.mark_interrupted() == 0
        ledger.begin_step("profile")
        ledger.finish_step("profile", {"busy_ns": 1})
        assert ledger.step_result("profile") == {"busy_ns": 1}


def test_a_second_writer_is_told_who_is_there(tmp_path: Path) -> None:
    assert not is_live(tmp_path)
    with Ledger.create(tmp_path, {}):
        assert is_live(tmp_path)
        with pytest.raises(WrongUse, match=f"another session is running here, pid {os.getpid()}"):
            Ledger.open(tmp_path)
        Ledger.open(tmp_path, readonly=True).close()
    assert not is_live(tmp_path)
    Ledger.open(tmp_path).close()


WRITER = """
    import sys
    from pathlib import Path
    from kernelwright.agent.ledger import Ledger
    with Ledger.open(Path(sys.argv[1])) as ledger:
        ledger.mark_interrupted()
        n = len(ledger.attempts(state="judged"))
        while True:
            candidate = ledger.put({"source": n})
            attempt = ledger.begin_attempt("d", candidate, "templates", "f", "search")
            verdict = ledger.put({"verdict": n})
            with ledger.transaction():
                ledger.finish_attempt(attempt, verdict=verdict, outcome="slower", reason="r", ratio=0.5)
                ledger.spend("attempts", 1)
            print(n, flush=True)
            n += 1
"""


def test_kill_9_loses_and_repeats_no_verdict(tmp_path: Path) -> None:
    Ledger.create(tmp_path, {}).close()
    moments, told = random.Random(7), -1
    for _ in range(6):
        child = start_child(WRITER, str(tmp_path))
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first, child.communicate()[1]
        time.sleep(moments.uniform(0.0, 0.15))
        child.send_signal(signal.SIGKILL)
        lines = child.communicate()[0].splitlines(keepends=True)
        # A line without its end was cut by the kill; every whole one was printed after its commit.
        told = max([told, *(int(line) for line in [first, *lines] if line.endswith("\n"))])
        with Ledger.open(tmp_path) as ledger:
            judged = ledger.attempts(state="judged")
            assert [ledger.get(a.candidate)["source"] for a in judged] == list(range(len(judged)))
            assert [ledger.get(a.verdict or "")["verdict"] for a in judged] == list(range(len(judged)))
            assert len(judged) > told, "a verdict that was told is not in the ledger"
            assert ledger.spent()["attempts"] == len(judged)
            assert len(ledger.attempts(state="running")) <= 1
            ledger.mark_interrupted()
            assert len(ledger.attempts(state="interrupted")) <= 1
            assert not ledger.attempts(state="running")
    assert told > 5


def test_without_a_transaction_the_kill_could_part_the_rows(tmp_path: Path) -> None:
    """The control switched off: rows written one by one do come apart, which is what `transaction` is for."""
    with Ledger.create(tmp_path, {}) as ledger:
        attempt = begin(ledger)
        with pytest.raises(RuntimeError):
            judge(ledger, attempt)
            raise RuntimeError("killed between the two rows")
        assert ledger.attempts(state="judged") and not ledger.spent()


@pytest.mark.parametrize("make", ["missing", "empty", "folder of something else"])
def test_what_is_no_session_folder_is_said_to_be_none(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "s"
    if make != "missing":
        folder.mkdir()
    if make == "folder of something else":
        (folder / "notes.txt").write_text("hello")
    for readonly in (True, False):
        with pytest.raises(WrongUse, match=r"there is no folder|not a session folder"):
            Ledger.open(folder, readonly=readonly)
    assert not (folder / "session.lock").exists()


def test_a_session_is_not_overwritten(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        ledger.emit(SessionStarted())
    with pytest.raises(WrongUse, match="holds a session already"):
        Ledger.create(tmp_path, {})
    with Ledger.open(tmp_path) as ledger:
        assert len(ledger.events()) == 1


@pytest.mark.parametrize("damage", ["text", "head", "middle"])
def test_a_damaged_ledger_is_refused(tmp_path: Path, damage: str) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        for n in range(400):
            ledger.emit(ProgressMade(phase="profile", done=n, total=400, text="x" * 100))
    path = tmp_path / "session.db"
    content = bytearray(path.read_bytes())
    if damage == "text":
        content = bytearray(b"this is not a database, it is a text\n" * 50)
    start = 0 if damage == "head" else len(content) // 2
    if damage != "text":
        content[start : start + 3000] = os.urandom(3000)
    path.write_bytes(content)
    for readonly in (True, False):
        with pytest.raises(BrokenInput):
            Ledger.open(tmp_path, readonly=readonly)


def test_another_schema_and_another_database_are_refused(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "newer", {}).close()
    with sqlite3.connect(tmp_path / "newer" / "session.db") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    connection.close()
    with pytest.raises(BrokenInput, match="schema 99"):
        Ledger.open(tmp_path / "newer", readonly=True)
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "session.db") as connection:
        connection.execute("CREATE TABLE meta(key, value)")
    connection.close()
    with pytest.raises(BrokenInput, match="lacks the table"):
        Ledger.open(tmp_path / "other", readonly=True)


def test_a_copy_of_a_killed_session_can_be_read(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "s", {}).close()
    child = start_child(WRITER, str(tmp_path / "s"))
    assert child.stdout is not None and child.stdout.readline()
    child.kill()
    child.communicate()
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with Ledger.open(tmp_path / "copy", readonly=True) as ledger:
        assert ledger.attempts(state="judged")


FILLER = """
    import resource, sys
    from pathlib import Path
    from kernelwright.agent.ledger import Ledger
    from kernelwright.agent.events import ProgressMade
    from kernelwright.profiles.errors import EnvironmentLacks
    where, limit = Path(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    n = 0
    try:
        with Ledger.create(where, {}) as ledger:
            while True:
                ledger.emit(ProgressMade(phase="p", done=n, total=0, text="x" * 2000))
                n += 1
    except EnvironmentLacks as error:
        print(n, error)
"""


@pytest.mark.parametrize("limit", [4096, 300_000])
def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path, limit: int) -> None:
    # RLIMIT_FSIZE makes the kernel refuse writes past `limit` bytes, as a full disk does.
    child = start_child(FILLER, str(tmp_path / "s"), str(limit))
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "could not" in out and "Free space" in out
    if limit == 4096:
        assert not (tmp_path / "s" / "session.db").exists()
    else:
        with Ledger.open(tmp_path / "s") as ledger:
            assert len(ledger.events()) == int(out.split()[0]) > 0
