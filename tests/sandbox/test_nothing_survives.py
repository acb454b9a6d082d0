"""Hostile programs in real cages: each ends with its cage, in time, and the host is none the worse."""

from __future__ import annotations

import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import Cage, CagedProcess, Limits, open_cage
from kernelwright.sandbox.log import KEEP_BYTES, Log

pytestmark = pytest.mark.alone

SMALL = Limits(memory_bytes=192 << 20, processes=24, cpu_seconds=60, scratch_bytes=8 << 20)
END_S = 12.0
"""Far above what an end takes, far below for ever."""

DAEMONS = """
    import os, signal, time
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                while True:
                    time.sleep(300)
            os._exit(0)
    {then}
"""
FORK_BOMB = """
    import os, signal
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
MEMORY = """
    import mmap, os, sys, time
    for _ in range(6):
        if os.fork() == 0:
            break
    held = []
    while True:
        block = mmap.mmap(-1, 8 << 20)
        for page in range(0, 8 << 20, 4096):
            block[page] = 1
        held.append(block)
"""
FLOOD = """
    import os
    line = b"x" * 65536
    while True:
        os.write(2, line)
        os.write(1, line)
"""
DISK = """
    import os, sys
    total = 0
    for folder in ("/tmp", "/dev/shm", "/dev", "/", "/run", "/opt", "/etc", "/var/tmp", "/home"):
        try:
            for number in range(100):
                with open(f"{folder}/full{number}", "wb") as file:
                    for _ in range(1 << 10):
                        total += file.write(bytes(1 << 20))
                        file.flush()
                        assert total < 1 << 30
        except OSError:
            continue
    print(total)
"""


@pytest.fixture(
    params=[
        pytest.param("bubblewrap", marks=pytest.mark.cage),
        pytest.param("docker", marks=pytest.mark.docker),
        "process",
    ]
)
def cage(request: pytest.FixtureRequest) -> Cage:
    if request.param == "docker":
        request.getfixturevalue("daemon")
    return open_cage(request.param)


@pytest.fixture
def token() -> Iterator[str]:
    """A word in the command line of all that a test starts; what still has it at the end is named."""
    word = f"kernelwright-{secrets.token_hex(8)}"
    yield word
    assert find_running(word) == []


def find_running(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def start(cage: Cage, code: str, token: str, limits: Limits = SMALL, **streams: int) -> CagedProcess:
    return cage.spawn([sys.executable, "-P", "-S", "-c", textwrap.dedent(code), token], limits=limits, **streams)


def wait_for_processes(process: CagedProcess, count: int) -> None:
    deadline = time.monotonic() + 20
    while process.num_processes() < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.num_processes() >= count, "what should survive was never started"


def end(process: CagedProcess) -> None:
    started = time.monotonic()
    process.kill()
    assert time.monotonic() - started < END_S


def test_daemons_that_ignore_every_signal_end_with_their_cage(cage: Cage, token: str) -> None:
    process = start(cage, DAEMONS.format(then="time.sleep(300)"), token)
    wait_for_processes(process, 4)
    end(process)


def test_daemons_end_when_the_command_that_left_them_ends(cage: Cage, token: str) -> None:
    with start(cage, DAEMONS.format(then="time.sleep(4)"), token) as process:
        wait_for_processes(process, 4)
        process.wait(END_S)
        deadline = time.monotonic() + END_S
        while find_running(token) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert find_running(token) == []


def test_a_fork_bomb_is_bounded_and_ends(cage: Cage, token: str) -> None:
    process = start(cage, FORK_BOMB, token)
    wait_for_processes(process, 8)
    time.sleep(0.5)
    assert len(find_running(token)) <= SMALL.processes + 8
    end(process)


def test_memory_that_no_rlimit_counts_is_bounded(cage: Cage, token: str) -> None:
    process = start(cage, MEMORY, token)
    if "memory" not in process.limits_by:
        process.kill()
        pytest.skip(f"no control group limits memory here: {process.limits_by}")
    held = 0
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        held = max(held, sum(shared_bytes(pid) for pid in find_running(token)))
        time.sleep(0.05)
    end(process)
    assert 0 < held <= SMALL.memory_bytes * 1.1


def shared_bytes(pid: int) -> int:
    """Return the shared memory of `pid` that is resident; none of these programs maps what another has made."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssShmem"))


def test_a_flood_of_words_costs_neither_disk_nor_memory_and_its_end_is_kept(cage: Cage, token: str) -> None:
    with Log() as log:
        process = start(cage, FLOOD, token, stdout=log.writer, stderr=log.writer)
        log.started()
        time.sleep(2)
        assert process.cpu_seconds() > 0 and set(log.text(100)) == {"x"}
        assert all(not is_on_disk(pid) for pid in process.inside())
        end(process)
        assert len(log.text(1 << 30)) == KEEP_BYTES


def is_on_disk(pid: int) -> bool:
    return any(not Path(f"/proc/{pid}/fd/{fd}").readlink().name.startswith("pipe:") for fd in (1, 2))


def test_all_of_the_disk_a_cage_can_fill_is_its_scratch(cage: Cage, token: str) -> None:
    if cage.name == "process":
        pytest.skip("the process cage has the caller's files: that is why it is L1")
    with start(cage, DISK, token, stdout=subprocess.PIPE) as process:
        process.wait(60)
        assert process.stdout is not None
        with process.stdout as stdout:
            written = int(stdout.read())
    assert SMALL.scratch_bytes <= written <= SMALL.scratch_bytes + (64 << 20) + (2 << 20), "scratch and /dev/shm"


def test_a_process_cage_ends_with_a_supervisor_that_is_killed(token: str) -> None:
    code = f"""
        import sys, time
        from kernelwright.sandbox.cage import open_cage
        daemons = {textwrap.dedent(DAEMONS.format(then="time.sleep(300)"))!r}
        process = open_cage("process").spawn([sys.executable, "-S", "-c", daemons, {token!r}])
        while process.num_processes() < 4:
            time.sleep(0.02)
        print(process.limits_by, flush=True)
        time.sleep(300)
    """
    supervisor = subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    with supervisor.stdout as stdout:
        assert stdout.readline()
    assert find_running(token)
    supervisor.kill()
    supervisor.wait()
    deadline = time.monotonic() + END_S
    while find_running(token) and time.monotonic() < deadline:
        time.sleep(0.02)
