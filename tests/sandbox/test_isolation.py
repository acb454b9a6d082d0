"""The level of a cage, read in /proc from outside; and what a lesser cage is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import CagedProcess, open_cage
from kernelwright.sandbox.isolation import find_lacking, measure
from tests.sandbox.ordinary import BECOME, USER, copy_readable, require_ordinary_user, run_as_ordinary_user
from tests.sandbox.posed import draw_sets, load_evil, pose

pytestmark = pytest.mark.alone

SLEEP = ["/bin/sleep", "60"]
ROOTLESS = """
    import json, os, subprocess, sys
    sys.path.insert(0, {root!r})
    from kernelwright.sandbox.cage import Limits, open_cage
    from kernelwright.sandbox.isolation import measure
    cage = open_cage("bubblewrap")
    limits = Limits(processes=16, memory_bytes=128 << 20, scratch_bytes=1 << 20)
    with cage.spawn(["/bin/sleep", "60"], limits=limits) as process:
        level, facts = measure(process.inner_pid())
    bomb = (
        "import os, time; children = 0\\ntry:\\n  while os.fork(): children += 1\\n  time.sleep(9)"
        "\\nexcept OSError: print(children)"
    )
    def run(*argv):
        with cage.spawn(argv, limits=limits, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            process.wait(30)
            return process.stdout.read().decode()
    print(json.dumps({{
        "level": level, "facts": facts, "uid": os.getuid(), "forked": run(sys.executable, "-S", "-c", bomb),
        "seen": run("/bin/ls", "/proc"), "kill": run("/bin/sh", "-c", "kill -0 {outside} && echo reached"),
        "file": run("/bin/sh", "-c", "cat {root}/secret"), "limits_by": process.limits_by,
    }}))
"""


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


@pytest.fixture
def readable() -> Iterator[Path]:
    with copy_readable() as root:
        (root / "secret").write_text("seen")
        yield root


@pytest.mark.cage
def test_an_ordinary_users_cage_is_l3_and_sees_no_process_of_that_user(readable: Path) -> None:
    require_ordinary_user()
    neighbour = subprocess.Popen([*BECOME, *SLEEP])  # a process of the very user, to be found if anything can
    try:
        code = textwrap.dedent(ROOTLESS.format(root=str(readable), outside=neighbour.pid))
        done = run_as_ordinary_user(code)
    finally:
        neighbour.kill()
        neighbour.wait()
    if "bubblewrap cannot" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"ordinary users get no namespaces here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["uid"] == USER
    assert found["level"] == "L3", found["facts"]
    assert found["facts"]["host_uid"] == str(USER) and found["facts"]["reach"] == "sees no process of ours"
    assert [word for word in found["seen"].split() if word.isdigit()] in (["1", "2"], ["1", "2", "3"])
    assert "reached" not in found["kill"] and "seen" not in found["file"]
    assert "No such file" in found["file"]
    assert 5 < int(found["forked"]) <= 20, "the processes of the cage are counted by themselves"


@pytest.mark.cage
def test_a_cage_that_sees_our_processes_is_not_l3_for_the_same_user(readable: Path) -> None:
    """The control: the same cage with the host's procfs in it is told apart, by what is in it."""
    require_ordinary_user()
    code = f"""
        import subprocess, sys
        sys.path.insert(0, {str(readable)!r})
        from kernelwright.sandbox.cage import CagedProcess
        from kernelwright.sandbox.isolation import measure
        argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--die-with-parent", "/bin/sleep", "60"]
        with CagedProcess(subprocess.Popen(argv)) as process:
            level, facts = measure(process.inner_pid())
            print(level, facts["proc"], facts["reach"])
    """
    done = run_as_ordinary_user(textwrap.dedent(code))
    level, proc, reach = done.stdout.split() or pytest.fail(done.stderr)
    assert (level, reach) == ("L2", "ours") and proc in ("shared", "unknown")


FACTS = {
    "ns_pid": "own", "ns_mnt": "own", "ns_ipc": "own", "ns_net": "own", "ns_user": "shared", "powers_from": "nowhere",
    "seccomp": "2", "no_new_privs": "1", "cap_eff": "0", "limits": "data=1", "host_uid": "60100", "proc": "own",
    "reach": "another user",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "level"),
    [
        ({"ns_pid": "shared"}, "L2"),
        ({"ns_net": "shared"}, "L2"),
        ({"powers_from": "ours"}, "L2"),
        ({"seccomp": "0"}, "L3"),
        ({"no_new_privs": "0"}, "L3"),
        ({"cap_eff": "00000000a80425fb"}, "L3"),
        ({"limits": ""}, "L3"),
        ({"host_uid": "0"}, "L3"),
        ({"reach": "ours"}, "L3"),
    ],
)
def test_each_thing_that_is_lacking_takes_its_level(changed: dict[str, str], level: str) -> None:
    assert find_lacking(FACTS) == {}
    assert list(find_lacking({**FACTS, **changed})) == [level]


def test_a_shared_user_namespace_counts_unless_every_capability_set_is_empty() -> None:
    """The bounding set, too: with it and no_new_privs unset, an exec could bring capabilities back."""
    if os.geteuid() != 0:
        pytest.skip("dropping the bounding set needs root")
    base = ["unshare", "--pid", "--mount", "--ipc", "--net", "--fork", "--kill-child", "--mount-proc", "setpriv"]
    user = ["--reuid=60002", "--regid=60002", "--clear-groups", "--inh-caps=-all"]
    found = {}
    for name, more in {"bounded": ["--bounding-set=-all", "--no-new-privs"], "open": ["--no-new-privs"]}.items():
        process = subprocess.Popen([*base, *user, *more, *SLEEP])
        try:
            pid = CagedProcess(process, layers=1).inner_pid()
            assert pid is not None
            while "sleep" not in Path(f"/proc/{pid}/comm").read_text():
                pass
            found[name] = measure(pid)
        finally:
            process.kill()
            process.wait()
    assert (found["bounded"][0], found["bounded"][1]["powers_from"]) == ("L2", "nowhere"), found
    assert (found["open"][0], found["open"][1]["powers_from"]) == ("L1", "ours"), found


def test_a_verdict_of_the_process_cage_is_l1_and_allows_no_patch(tmp_path: Path) -> None:
    from kernelwright.sandbox.verify import Bench

    problem = pose()
    with Bench(
        problem, problem_dir=tmp_path, weights=draw_sets(problem), cage="process", threads=1,
        cache_dir=tmp_path / "builds", call_timeout_s=10.0, floor=0.02,
    ) as bench:  # fmt: skip
        verdict = bench.search(load_evil("honest.cpp", problem))
    assert (verdict.isolation, verdict.accepted) == ("L1", False), verdict
    assert verdict.outcome == "faster" and "shares our pid namespace" in verdict.isolation_facts["lacking"]
