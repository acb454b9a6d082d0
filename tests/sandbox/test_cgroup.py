"""Control groups in the hierarchies that this machine has: what they limit and count, and the end of all members."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import Limits, open_cage
from kernelwright.sandbox.cgroup import ControlGroup, Hierarchy, _make_v2, create_group, group_of, read_hierarchies

MEMORY, PROCESSES = 64 << 20, 16
SPIN = "while True: pass"
JOIN = "import os, sys, time\nfor procs in sys.argv[1:]: open(procs, 'w').write('0')\nprint('in', flush=True)\n"


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    made = create_group(MEMORY, PROCESSES)
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    made.kill()
    made.remove()
    assert not any(folder.exists() for folder in made.folders.values())


@pytest.fixture
def unified() -> Iterator[ControlGroup]:
    """A group in the v2 hierarchy alone, where there is one."""
    hierarchy = next((h for h in read_hierarchies() if h.unified), None)
    if hierarchy is None:
        pytest.skip("no cgroup v2 is mounted here")
    made = _make_v2(hierarchy, f"kernelwright-test-{os.getpid()}", MEMORY, PROCESSES)
    if made is None:
        pytest.skip("the cgroup v2 hierarchy is not ours to write")
    group = ControlGroup({"unified": made[0]}, tuple(made[1]))
    yield group
    group.kill()
    group.remove()


def run_in(group: ControlGroup, then: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-S", "-c", JOIN + then, *group.procs], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stdout:
        assert stdout.readline() == b"in\n"
    return process


def test_what_a_group_says_it_limits_is_limited(group: ControlGroup) -> None:
    files = {"memory": ("memory.limit_in_bytes", "memory.max", MEMORY), "pids": ("pids.max", "pids.max", PROCESSES)}
    for name in group.limited:
        first, second, value = files[name]
        v1 = name in group.folders
        folder = group.folders[name if v1 else "unified"]
        assert int((folder / (first if v1 else second)).read_text()) == value
    if not group.limited:
        assert "rlimits limit" in group.kind


def test_a_members_time_is_counted_and_all_members_end(group: ControlGroup) -> None:
    process = run_in(group, "for _ in range(3): os.fork()\n" + SPIN)
    deadline = time.monotonic() + 20
    while len(group.pids()) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(group.pids()) == 8
    time.sleep(0.2)
    assert (group.cpu_seconds() or 0) > 0
    group.kill()
    process.wait(10)
    assert group.pids() == set()


def test_v2_ends_all_members_at_once_and_counts_their_time(unified: ControlGroup) -> None:
    folder = unified.folders["unified"]
    if not (folder / "cgroup.kill").exists():
        pytest.skip("this kernel has no cgroup.kill")
    process = run_in(unified, SPIN)
    time.sleep(0.2)
    assert unified.pids() == {process.pid}
    assert (unified.cpu_seconds() or 0) > 0
    unified.kill()
    assert process.wait(10) == -9
    assert unified.pids() == set()


def test_v2_without_controllers_says_that_rlimits_limit(unified: ControlGroup) -> None:
    has = (unified.folders["unified"] / "cgroup.controllers").read_text().split()
    if {"memory", "pids"} <= set(has):
        assert set(unified.limited) == {"memory", "pids"} and unified.kind == "cgroup v2 (memory, pids)"
    else:
        assert unified.limited == () and unified.kind == "cgroup v2 (no controllers: rlimits limit)"


def test_a_hierarchy_that_is_not_ours_to_write_gives_no_group(tmp_path: Path) -> None:
    nothing = Hierarchy(frozenset(), tmp_path / "none" / "deep", tmp_path / "none")
    assert _make_v2(nothing, "kernelwright-x", MEMORY, PROCESSES) is None
    assert not (tmp_path / "none").exists()


def test_our_own_groups_are_found_where_the_kernel_says_we_are() -> None:
    for hierarchy in read_hierarchies():
        members = (hierarchy.folder / "cgroup.procs").read_text().split()
        assert str(os.getpid()) in members, hierarchy


@pytest.mark.cage
def test_a_caged_process_is_in_a_group_whose_limits_are_read_from_outside() -> None:
    assert group_of(os.getpid()) is None, "our own group is not a cage's"
    limits = Limits(memory_bytes=MEMORY, processes=PROCESSES)
    with open_cage("bubblewrap").spawn(["/bin/sleep", "60"], limits=limits) as process:
        pid = process.inner_pid()
        assert pid is not None
        found = group_of(pid)
        if process.limits_by == "rlimits":
            assert found is None
            return
        assert found is not None and found.kind == process.limits_by
        if "memory" in found.folders:
            assert int((found.folders["memory"] / "memory.limit_in_bytes").read_text()) == MEMORY
    assert not any(folder.exists() for folder in found.folders.values())
