"""What gets into a cage, what does not, and that nothing gets out of it alive."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kernelwright.profiles.errors import EnvironmentLacks, WrongUse
from kernelwright.sandbox.bubblewrap import Bubblewrap
from kernelwright.sandbox.cage import Bind, Limits, descendants, open_cage, waited_seconds_of

FORKING = """
    import os, time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                time.sleep(300)
            os._exit(0)
    time.sleep(300)
"""


def run_inside(
    code: str, *, fds: Sequence[int] = (), env: Mapping[str, str] | None = None, rw: Sequence[Bind] = (),
    limits: Limits | None = None,
) -> str:  # fmt: skip
    """Run Python `code` in the cage and return what it printed."""
    argv = [sys.executable, "-P", "-S", "-c", textwrap.dedent(code)]
    cage = open_cage("bubblewrap")
    with cage.spawn(
        argv, fds=fds, env=env, rw_binds=rw, limits=limits or Limits(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        process.wait(60)
        assert process.stdout is not None
        return process.stdout.read().decode()


@pytest.mark.cage
def test_nothing_survives_the_end_of_a_cage() -> None:
    process = open_cage("bubblewrap").spawn([sys.executable, "-S", "-c", textwrap.dedent(FORKING)])
    deadline = time.monotonic() + 20
    while process.num_processes() < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    inside = descendants(process.pid)
    assert process.num_processes() >= 4, "the daemons did not start"
    process.kill()
    time.sleep(0.2)
    alive = [pid for pid in inside if Path(f"/proc/{pid}").exists()]
    assert alive == []


@pytest.mark.cage
def test_the_runner_dies_with_its_supervisor() -> None:
    code = """
        import time
        from kernelwright.sandbox.cage import open_cage
        process = open_cage("bubblewrap").spawn(["/bin/sleep", "300"])
        print(process.inner_pid(), flush=True)
        time.sleep(300)
    """
    supervisor = subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    inner = int(supervisor.stdout.readline())
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{inner}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{inner}").exists()


@pytest.mark.cage
def test_the_host_is_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    said = run_inside(f"""
        import os
        print(os.path.exists({str(secret)!r}), os.path.exists("/home"), os.path.exists("/etc/passwd"))
    """)
    assert said.split() == ["False", "False", "False"]


@pytest.mark.cage
@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_INET)",
        "os.sched_setaffinity(0, {0})",
        "check(libc.unshare(0x10000000))",
        "check(libc.ptrace(0, 0, 0, 0))",
        "open('/usr/new', 'w')",
        "open('/opt/kernelwright/kernelwright/sandbox/runner.py', 'a')",
        "check(libc.syscall(425, 1, 0))",
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "os.setuid(0)",
        "open('/new', 'w')",
        "open('/dev/new', 'w')",
        "check(libc.syscall(322, 3, b'', 0, 0, 0x1000))",
        "check(libc.syscall(447, 0))",
        "check(libc.syscall(448, 0, 0))",
        "check(libc.ioctl(0, 0x5412, b'x'))",
        "os.kill(1, 9) or os.kill(-1, 0) or check(-1)",
    ],
)
def test_a_cage_refuses(attempt: str) -> None:
    said = run_inside(f"""
        import ctypes, os, socket
        libc = ctypes.CDLL(None, use_errno=True)
        def check(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), "refused")
        try:
            {attempt}
            print("allowed")
        except OSError as error:
            print("refused")
    """)
    assert said.split() == ["refused"]


@pytest.mark.cage
def test_a_cage_allows_unix_sockets_threads_and_scratch() -> None:
    said = run_inside("""
        import socket, threading
        a, b = socket.socketpair()
        thread = threading.Thread(target=lambda: a.send(b"hi"))
        thread.start(); thread.join()
        open("/tmp/scratch", "w").write("x")
        print(b.recv(2).decode())
    """)
    assert said.split() == ["hi"]


@pytest.mark.cage
def test_only_the_environment_and_descriptors_given_get_in() -> None:
    os.environ["KERNELWRIGHT_TEST_SECRET"] = "x"
    read, write = os.pipe()
    other = os.open("/dev/null", os.O_RDONLY)
    try:
        said = run_inside(
            f"import os; print('KERNELWRIGHT_TEST_SECRET' in os.environ, os.environ['GIVEN']); os.write({write}, b'ok')"
            "; print([fd for fd in range(3, 200) if os.path.exists(f'/proc/self/fd/{fd}')])",
            fds=[write], env={"GIVEN": "yes"},
        )  # fmt: skip
        assert said.splitlines() == ["False yes", f"[{write}]"]
        assert os.read(read, 2) == b"ok"
    finally:
        del os.environ["KERNELWRIGHT_TEST_SECRET"]
        for fd in (read, write, other):
            os.close(fd)


@pytest.mark.cage
def test_a_writable_folder_lets_a_socket_out(tmp_path: Path) -> None:
    said = run_inside("""
        import socket
        server = socket.socket(socket.AF_UNIX); server.bind("/shared/s"); print("bound")
    """, rw=[Bind(tmp_path, Path("/shared"))])  # fmt: skip
    assert said.split() == ["bound"]
    assert (tmp_path / "s").is_socket()


@pytest.mark.cage
def test_memory_is_limited() -> None:
    said = run_inside("""
        try:
            block = bytearray(1 << 30); print("allowed")
        except MemoryError:
            print("refused")
    """, limits=Limits(memory_bytes=256 << 20))  # fmt: skip
    assert "allowed" not in said


@pytest.mark.cage
def test_processes_are_limited() -> None:
    said = run_inside("""
        import os, time
        try:
            for _ in range(100):
                if os.fork() == 0:
                    time.sleep(20)
            print("allowed")
        except OSError:
            print("refused", flush=True)
            os._exit(0)
    """, limits=Limits(processes=16))  # fmt: skip
    assert said.split() == ["refused"]


@pytest.mark.cage
def test_who_waits_for_a_processor_is_seen_from_outside() -> None:
    before = os.sched_getaffinity(0)
    cage, argv = open_cage("bubblewrap"), [sys.executable, "-P", "-S", "-c", "while True: pass"]
    os.sched_setaffinity(0, {min(before)})  # the cages inherit it
    try:
        with cage.spawn(argv) as first, cage.spawn(argv) as second:
            time.sleep(1.0)
            pids = [*first.inside(), *second.inside()]
            earlier = sum(map(waited_seconds_of, pids))
            time.sleep(1.0)
            waited = sum(map(waited_seconds_of, pids)) - earlier
    finally:
        os.sched_setaffinity(0, before)
    assert waited > 0.7, "two that want one processor wait for it by turns"


def test_an_unknown_cage_is_named() -> None:
    with pytest.raises(WrongUse, match="bubblewrap"):
        open_cage("glass")


def test_a_missing_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks, match="apt-get install bubblewrap"):
        Bubblewrap()
