"""A cell: each launch is a process of its own, and nothing of one meets the next."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cell import Cell, Fork, RunnerFailed
from tests.sandbox.posed import require_cage

pytestmark = pytest.mark.cage


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    require_cage()
    with Cell(cage=open_cage("bubblewrap"), threads=1) as opened:
        yield opened


def launch(cell: Cell, bell: int) -> Fork:
    return cell.fork({"bell_fd": bell})


@pytest.fixture
def bell() -> Iterator[int]:
    fd = os.eventfd(0)
    yield fd
    os.close(fd)


def test_each_launch_is_a_new_process_that_is_gone_when_killed(cell: Cell, bell: int) -> None:
    first = launch(cell, bell)
    assert first.num_processes() == 1
    first.kill()
    second = launch(cell, bell)
    assert second.pid != first.pid
    assert not Path(f"/proc/{first.pid}").exists()
    second.kill()
    second.kill()


def test_a_launch_that_crashes_does_not_end_the_cell(cell: Cell, bell: int) -> None:
    first = launch(cell, bell)
    os.kill(first.pid, signal.SIGSEGV)
    time.sleep(0.1)
    first.kill()
    second = launch(cell, bell)
    assert second.num_processes() == 1
    second.kill()


def test_a_launch_beside_a_living_one_is_refused(cell: Cell, bell: int) -> None:
    first = launch(cell, bell)
    with pytest.raises(RuntimeError, match="one launch at a time"):
        launch(cell, bell)
    first.kill()


def test_stopping_a_runner_stops_the_whole_cage(cell: Cell, bell: int) -> None:
    runner = launch(cell, bell)
    runner.stop()
    assert [_state(pid) for pid in (runner.pid, runner._parent)] == ["T", "T"]
    runner.resume()
    assert _state(runner.pid) != "T"
    assert _state(runner._parent) == "T", "it would wake up on the runner's processor, under the clock"
    runner.stop()
    runner.kill()
    launch(cell, bell).kill()


def test_two_cells_lay_out_their_memory_alike(cell: Cell, bell: int) -> None:
    with Cell(cage=open_cage("bubblewrap"), threads=1) as other:
        found = []
        for each in (cell, other):
            runner = launch(each, bell)
            lines = [line.split() for line in Path(f"/proc/{runner.pid}/maps").read_text().splitlines()]
            found.append([(words[0], words[-1]) for words in lines if words[-1].startswith(("[heap", "[stack", "/"))])
            runner.kill()
    mine, others = found
    assert len(mine) > 100
    assert mine == others


def test_a_runner_keeps_to_the_processors_it_is_given(cell: Cell, bell: int) -> None:
    runner = launch(cell, bell)
    allowed = os.sched_getaffinity(runner.pid)
    one = min(allowed)
    runner.keep_to({one})
    assert os.sched_getaffinity(runner.pid) == {one}
    assert os.sched_getaffinity(runner._parent) == allowed
    runner.keep_to(allowed)
    assert os.sched_getaffinity(runner.pid) == allowed
    runner.kill()
    runner.keep_to({one})  # nobody is left to keep


def test_a_thread_that_has_ended_leaves_no_other_where_it_was(
    cell: Cell, bell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = launch(cell, bell)
    one = {min(os.sched_getaffinity(runner.pid))}
    monkeypatch.setattr("kernelwright.sandbox.cell.tasks_of", lambda pid: [2**22 - 1, pid])
    runner.keep_to(one)
    assert os.sched_getaffinity(runner.pid) == one
    runner.kill()


def test_a_runner_may_not_open_the_memory_of_the_process_that_forks(cell: Cell, bell: int) -> None:
    runner = launch(cell, bell)
    time.sleep(0.2)
    owner = {pid: Path(f"/proc/{pid}/mem").stat().st_uid for pid in (runner.pid, runner._parent)}
    assert owner[runner._parent] == 0, "root's files in /proc: the mark of a process that is not dumpable"
    assert os.geteuid() != 0 or owner[runner.pid] != 0
    runner.kill()


def test_a_cell_whose_process_has_died_says_so(bell: int) -> None:
    require_cage()
    with Cell(cage=open_cage("bubblewrap"), threads=1) as own:
        own.await_ready()
        for pid in own._process.inside():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RunnerFailed):
            launch(own, bell)


def _state(pid: int) -> str:
    time.sleep(0.05)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
