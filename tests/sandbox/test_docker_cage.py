"""The docker cage, against a real daemon: what gets in, what is refused, the level it measures, and a real verdict."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.builder import build_caged
from kernelwright.sandbox.cage import Bind, Limits, open_cage
from kernelwright.sandbox.container import connect
from kernelwright.sandbox.docker_cage import DockerCage
from kernelwright.sandbox.isolation import measure
from tests.sandbox.ordinary import USER, copy_readable, require_ordinary_user, run_as_ordinary_user
from tests.sandbox.posed import draw_sets, load_evil, pose

pytestmark = pytest.mark.alone

SLEEP = ["/bin/sleep", "60"]


@pytest.fixture(scope="module")
def cage(daemon: str) -> DockerCage:
    found = open_cage("docker")
    assert isinstance(found, DockerCage)
    return found


def run_inside(cage: DockerCage, code: str, fds: Sequence[int] = (), **more: Any) -> str:
    """Run Python `code` in the cage and return what it printed."""
    argv = [sys.executable, "-P", "-S", "-c", textwrap.dedent(code)]
    with cage.spawn(argv, fds=fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more) as process:
        process.wait(60)
        assert process.stdout is not None
        with process.stdout as stdout:
            return stdout.read().decode()


@pytest.mark.docker
def test_a_container_without_a_user_namespace_is_l3(cage: DockerCage) -> None:
    with cage.spawn(SLEEP) as process:
        pid = process.inner_pid()
        assert pid is not None
        level, facts = measure(pid)
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        spaces = {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "pid", "mnt", "ipc", "net")}
        assert set(status["Uid"].split()).isdisjoint({"0"}) and set(status["Gid"].split()).isdisjoint({"0"})
        assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")
        assert int(status.get("Seccomp_filters", "2")) == 2, "the daemon's, and our own program on top"
        shared = [name for name, link in spaces.items() if link == os.readlink(f"/proc/self/ns/{name}")]
        assert shared == ["user"]
        assert (level, facts["powers_from"], facts["lacking"]) == ("L3", "nowhere", "")
        assert "memory, pids" in process.limits_by and process.cpu_seconds() >= 0


@pytest.mark.docker
def test_the_cage_of_a_user_who_may_use_docker_is_l3(daemon: str) -> None:
    """With the user's own id, so that it can be measured and stopped; it sees no process of that user's."""
    require_ordinary_user()
    packages = Path(str(importlib.util.find_spec("docker").origin)).parents[1]  # type: ignore[union-attr]
    address = Path(daemon.removeprefix("unix://"))
    with copy_readable() as root:
        code = f"""
            import sys
            sys.path[:0] = [{str(root)!r}, {str(packages)!r}]
            from kernelwright.sandbox.cage import open_cage
            from kernelwright.sandbox.isolation import measure
            with open_cage("docker").spawn(["/bin/sleep", "60"]) as process:
                level, facts = measure(process.inner_pid())
                process.stop()
                process.resume()
            print(level, facts["host_uid"], facts["powers_from"], facts["reach"], process.alive, sep="|")
        """
        os.chown(address, USER, 0)
        try:
            done = run_as_ordinary_user(textwrap.dedent(code), {"DOCKER_HOST": daemon})
        finally:
            os.chown(address, 0, 0)
    if "is not installed" in done.stderr:
        pytest.skip(f"the docker package is not readable by other users: {done.stderr[-200:]}")
    assert done.stdout.strip() == f"L3|{USER}|nowhere|sees no process of ours|False", done.stderr


@pytest.mark.docker
def test_descriptors_keep_their_numbers_and_nothing_else_gets_in(cage: DockerCage) -> None:
    pair = socket.socketpair()
    other = os.open("/dev/null", os.O_RDONLY)
    with pair[0], pair[1]:
        wanted = pair[1].fileno()
        said = run_inside(
            cage,
            f"import os, socket; socket.socket(fileno={wanted}).send(b'ok'); print(os.environ['HOME'], os.environ['A'])"
            "; print([fd for fd in range(3, 200) if os.path.exists(f'/proc/self/fd/{fd}')])",
            fds=[wanted], env={"A": "1"},
        )  # fmt: skip
        assert said.splitlines() == ["/tmp 1", "[]"]  # its own socket was closed again
        assert pair[0].recv(2) == b"ok"
    os.close(other)


@pytest.mark.docker
@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_INET)",
        "os.sched_setaffinity(0, {0})",
        "check(libc.unshare(0x10000000))",
        "check(libc.unshare(0x00020000))",
        "check(libc.ptrace(0, 0, 0, 0))",
        "open('/usr/new', 'w')",
        "open('/new', 'w')",
        "open('/opt/kernelwright/kernelwright/sandbox/runner.py', 'a')",
        "open('/run/kernelwright/new', 'w')",
        "check(libc.syscall(425, 1, 0))",
        "check(libc.syscall(435, 0, 0))",
        "check(libc.syscall(56, 0x10000011, 0, 0, 0, 0))",
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "check(libc.personality(0x40000))",
        "os.setuid(0)",
        "os.kill(1, 9) or os.kill(-1, 0) or check(-1)",
        "open('/proc/1/mem', 'rb')",
        "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0))",
    ],
)
def test_a_container_refuses(cage: DockerCage, attempt: str) -> None:
    said = run_inside(cage, f"""
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
    """)  # fmt: skip
    assert said.split() == ["refused"]


@pytest.mark.docker
@pytest.mark.parametrize(("fixed", "word"), [(True, "00040000"), (False, "00000000")])
def test_fixed_addresses_are_for_who_asks(cage: DockerCage, fixed: bool, word: str) -> None:
    limits = Limits(fixed_addresses=fixed)
    with cage.spawn(["/bin/cat", "/proc/self/personality"], limits=limits, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read().decode().strip() == word


@pytest.mark.docker
def test_scratch_is_bounded_and_programs_in_it_run(cage: DockerCage) -> None:
    said = run_inside(cage, """
        import os, subprocess
        open("/tmp/run", "w").write("#!/bin/sh\\necho ran\\n"); os.chmod("/tmp/run", 0o700)
        print(subprocess.run(["/tmp/run"], capture_output=True, text=True).stdout.strip(), flush=True)
        try:
            open("/tmp/big", "wb").write(bytes(8 << 20)); print("allowed")
        except OSError:
            print("full")
    """, limits=Limits(scratch_bytes=4 << 20))  # fmt: skip
    assert said.split() == ["ran", "full"]


@pytest.mark.docker
def test_a_writable_folder_belongs_to_the_command(cage: DockerCage, tmp_path: Path) -> None:
    said = run_inside(cage, """
        import socket
        server = socket.socket(socket.AF_UNIX); server.bind("/shared/s"); print("bound")
    """, rw_binds=[Bind(tmp_path, Path("/shared"))])  # fmt: skip
    assert said.split() == ["bound"] and (tmp_path / "s").is_socket()


@pytest.mark.docker
def test_the_exit_code_comes_out_and_no_container_is_left(cage: DockerCage) -> None:
    with cage.spawn(["/bin/sh", "-c", "exit 7"]) as process:
        assert process.wait(30) == 7
    with cage.spawn(["/no/such/program"], stderr=subprocess.PIPE) as process:
        assert process.wait(30) == 127
        assert process.stderr is not None
        with process.stderr as stderr:
            assert b"cannot start /no/such/program" in stderr.read()
    client = connect()
    assert client.containers.list(all=True) == []
    client.close()


@pytest.mark.docker
def test_stopping_stops_the_command(cage: DockerCage) -> None:
    with cage.spawn(["/bin/sh", "-c", "while :; do :; done"]) as process:
        (pid,) = process.inside()
        process.stop()
        assert wait_for_state(pid, "T")
        process.resume()
        assert wait_for_state(pid, "R")
        process.stop()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert not Path(f"/proc/{pid}").exists()


def wait_for_state(pid: int, wanted: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == wanted:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.docker
def test_the_container_dies_with_its_supervisor_and_the_next_one_removes_it(cage: DockerCage) -> None:
    code = """
        import time
        from kernelwright.sandbox.cage import open_cage
        process = open_cage("docker").spawn(["/bin/sleep", "300"])
        print(process.inner_pid(), flush=True)
        time.sleep(300)
    """
    supervisor = subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    with supervisor.stdout as stdout:
        inner = int(stdout.readline())
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{inner}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{inner}").exists()
    client = connect()
    assert len(client.containers.list(all=True)) == 1, "the dead container is left behind"
    DockerCage()
    assert client.containers.list(all=True) == []
    client.close()


@pytest.mark.docker
def test_a_living_supervisors_container_is_not_swept(cage: DockerCage) -> None:
    with cage.spawn(SLEEP) as process:
        DockerCage()
        assert process.alive and process.inner_pid() is not None


@pytest.mark.docker
def test_a_kernel_is_built_in_a_container(cage: DockerCage, tmp_path: Path) -> None:
    built = build_caged(load_evil("honest.cpp", pose()), tmp_path / "cache", cage)
    assert built.status == "PASSED", built.log


@pytest.mark.docker
def test_a_verdict_of_the_docker_cage_is_l3(daemon: str, tmp_path: Path) -> None:
    from kernelwright.sandbox.verify import Bench

    problem = pose()
    with Bench(
        problem, problem_dir=tmp_path, weights=draw_sets(problem), cage="docker", threads=1,
        cache_dir=tmp_path / "builds", call_timeout_s=10.0, floor=0.02,
    ) as bench:  # fmt: skip
        verdict = bench.search(load_evil("honest.cpp", problem))
        assert (verdict.isolation, verdict.outcome) == ("L3", "faster"), verdict
        assert verdict.isolation_facts["limits_by"].startswith("docker's cgroup")
        assert bench.search(load_evil("wrong.py", problem)).outcome == "incorrect"


@pytest.mark.docker
def test_an_engine_of_the_gate_answers_from_a_container(cage: DockerCage, tmp_path: Path, tiny_model: Path) -> None:
    from kernelwright.engine.gate_server import Arm, EngineOptions, start_engines

    (tmp_path / "pack").mkdir()
    (tmp_path / "cache").mkdir()
    arm = Arm(cage, tiny_model, tmp_path / "pack", tmp_path / "cache", threads=1)
    with start_engines(arm, EngineOptions(patched=False)) as (engine,):
        assert engine.isolation == "L3" and engine.resident_bytes() > 10**7
        with engine.client() as client:
            assert client.is_healthy()


def test_no_daemon_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(EnvironmentLacks, match="no Docker daemon answers") as caught:
        open_cage("docker")
    assert "dockerd" in caught.value.remedy


def test_no_docker_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(EnvironmentLacks, match="not installed") as caught:
        open_cage("docker")
    assert "pip install docker" in caught.value.remedy


@pytest.mark.docker
def test_a_remote_daemon_is_refused(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon behind TCP may be anywhere: a relay to the real one stands for it."""
    import threading

    def relay(server: socket.socket) -> None:
        while True:
            try:
                left, _ = server.accept()
            except OSError:
                return
            right = socket.socket(socket.AF_UNIX)
            right.connect(daemon.removeprefix("unix://"))
            for source, target in ((left, right), (right, left)):
                threading.Thread(target=copy, args=(source, target), daemon=True).start()

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while part := source.recv(65536):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=relay, args=(server,), daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(EnvironmentLacks, match="remote"):
            open_cage("docker")
        server.shutdown(socket.SHUT_RDWR)
