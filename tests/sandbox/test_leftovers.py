"""What a killed supervisor leaves on the host is removed by the next one; what a living one has is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cgroup import create_group
from kernelwright.sandbox.leftovers import STAGE, is_gone, owner_tag, sweep_leftovers

SUPERVISOR = """
    import os, sys, time
    from kernelwright.sandbox.cage import open_cage
    from kernelwright.sandbox.cgroup import own_folders
    process = open_cage("bubblewrap").spawn(["/bin/sleep", "300"])
    print(process.inner_pid(), flush=True)
    tag = f"kernelwright-{os.getpid()}-"
    print(*(path for folder in own_folders() for path in folder.glob(tag + "*")), sep="|", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def walkable() -> Iterator[Path]:
    """A folder that every user can walk to, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def killed(walkable: Path) -> Iterator[tuple[int, list[Path], Path]]:
    """The pid of a supervisor that was killed in the middle, its control groups, and its folder for stages."""
    env = {**os.environ, "TMPDIR": str(walkable)}
    command = [sys.executable, "-P", "-c", textwrap.dedent(SUPERVISOR)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert process.stdout is not None
    with process.stdout as stdout:
        inner = int(stdout.readline())
        groups = [Path(path) for path in stdout.readline().strip().split("|") if path]
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{inner}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield process.pid, groups, walkable


@pytest.mark.cage
def test_groups_and_stages_of_a_killed_supervisor_are_swept(
    killed: tuple[int, list[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, groups, folder = killed
    stages = list(folder.glob(f"{STAGE}{pid}-*"))
    if os.geteuid() == 0:
        assert stages, "without the sweep it would stay"
    assert all(group.exists() for group in groups)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    removed = sweep_leftovers()
    assert {str(path) for path in (*groups, *stages)} <= set(removed)
    assert not any(path.exists() for path in (*groups, *stages))


@pytest.mark.cage
def test_the_next_run_sweeps_when_it_opens_a_cage(killed: tuple[int, list[Path], Path]) -> None:
    pid, groups, folder = killed
    code = "from kernelwright.sandbox.cage import open_cage; open_cage('process')"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env={**os.environ, "TMPDIR": str(folder)})
    assert not any(group.exists() for group in groups)
    assert list(folder.glob(f"{STAGE}{pid}-*")) == []


def test_what_still_runs_in_a_dead_owners_group_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    group = create_group(64 << 20, 8)
    if group is None:
        pytest.skip("no control group can be made here")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    tag = owner_tag(gone.pid)
    gone.wait()
    group.remove()
    monkeypatch.setattr("kernelwright.sandbox.cgroup.owner_tag", lambda: tag)
    group = create_group(64 << 20, 8)
    assert group is not None
    code = (
        "import sys, time\nfor procs in sys.argv[1:]: open(procs, 'w').write('0')\nprint(flush=True); time.sleep(300)"
    )
    survivor = subprocess.Popen([sys.executable, "-c", code, *group.procs], stdout=subprocess.PIPE)
    assert survivor.stdout is not None
    with survivor.stdout as stdout:
        stdout.readline()
    sweep_leftovers()
    assert survivor.wait(10) == -9
    assert not any(folder.exists() for folder in group.folders.values())


@pytest.mark.cage
def test_a_temporary_folder_of_our_own_does_not_break_a_cage(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code = "from kernelwright.sandbox.cage import open_cage; open_cage('bubblewrap').check()"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})


@pytest.mark.cage
def test_what_a_living_supervisor_has_is_left_alone() -> None:
    with open_cage("bubblewrap").spawn(["/bin/sleep", "60"]) as process:
        sweep_leftovers()
        assert process.alive and process.inner_pid() is not None


def test_an_owner_is_gone_only_when_that_is_certain() -> None:
    assert not is_gone(owner_tag())
    pid, start, namespace = owner_tag().split("-")
    assert is_gone(f"{pid}-{int(start) + 1}-{namespace}"), "the number is another process's now"
    assert not is_gone(f"{pid}-{int(start) + 1}-{int(namespace) + 1}"), "another pid namespace cannot be judged"
    assert not is_gone("") and not is_gone("1234-abcdef01") and not is_gone("x-y-z")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    tag = owner_tag(gone.pid)
    gone.wait()
    assert is_gone(tag) and is_gone(f"{tag}-1f2e3d4c")


@given(st.text() | st.lists(st.text(alphabet="0123456789²٣x"), max_size=5).map("-".join))
def test_a_name_that_is_no_owners_is_never_swept(name: str) -> None:
    assert not is_gone(name)
