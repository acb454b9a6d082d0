"""The level of a cage, read in /proc from outside; and what a lesser cage is called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import CagedProcess, open_cage
from kernelwright.sandbox.isolation import measure

SLEEP = ["/bin/sleep", "60"]


@pytest.fixture
def caged() -> Iterator[tuple[CagedProcess, int]]:
    with open_cage("bubblewrap").spawn(SLEEP) as process:
        pid = process.inner_pid()
        assert pid is not None
        yield process, pid


@pytest.mark.cage
def test_a_bubblewrap_cage_is_l3(caged: tuple[CagedProcess, int]) -> None:
    level, facts = measure(caged[1])
    assert level == "L3", facts


@pytest.mark.cage
def test_the_host_sees_another_user_without_capabilities(caged: tuple[CagedProcess, int]) -> None:
    status = Path(f"/proc/{caged[1]}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    if os.geteuid() == 0:
        assert set(fields["Uid"].split()).isdisjoint({"0"}), "a user namespace alone leaves host UID 0"
        assert set(fields["Gid"].split()).isdisjoint({"0"})
        assert fields["Groups"].split() in ([], [fields["Gid"].split()[0]])
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["Seccomp"].strip() == "2"
    assert fields["NoNewPrivs"].strip() == "1"


@pytest.mark.cage
@pytest.mark.parametrize("namespace", ["user", "pid", "mnt", "ipc", "net", "uts"])
def test_every_namespace_is_its_own(caged: tuple[CagedProcess, int], namespace: str) -> None:
    assert os.readlink(f"/proc/{caged[1]}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")


def test_a_plain_process_is_l1() -> None:
    with open_cage("process").spawn(SLEEP) as process:
        pid = process.inner_pid() or process.pid
        assert measure(pid)[0] == "L1"


def test_our_own_process_is_l0() -> None:
    assert measure(os.getpid())[0] == "L0"


@pytest.mark.cage
def test_without_the_filter_the_same_namespaces_are_only_l2() -> None:
    argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--die-with-parent", *SLEEP]
    process = subprocess.Popen(argv)
    try:
        inner = CagedProcess(process).inner_pid()
        assert inner is not None
        assert measure(inner)[0] == "L2"
    finally:
        process.kill()
        process.wait()


def test_an_ended_process_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    with pytest.raises(ProcessLookupError):
        measure(int(done.stdout))
