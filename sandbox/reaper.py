"""The first process of a docker or process cage: starts the command, adopts its orphans, ends when either side does.

Trusted, and run as a plain script (`python -I -S reaper.py …`), so that it needs no package of ours inside.

    reaper.py run PLAN         process cage: PLAN is JSON {argv, env, supervisor}, the last one's process id; the
                               command inherits every open descriptor
    reaper.py receive SOCKET   docker cage: connects to the unix socket, receives a plan {argv, env, rlimits, fds,
                               filter, fixed_addresses} and the descriptors, which get the numbers `fds` in the command;
                               `filter` is the seccomp program in hex, on top of the daemon's, which skips calls it
                               cannot name; `fixed_addresses` as in drop.py

Ends with the command's exit code, or 128 + the signal that ended it. Before that everything the command started is
killed: an orphan becomes our child (we are process 1 of a namespace, or its subreaper), so a daemon that has left its
session and its parent is still found. When the supervisor is gone, everything is killed, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER = 4, 22, 36
_SECCOMP_MODE_FILTER = 2
_ADDR_NO_RANDOMIZE = 0x0040000
_MAX_FDS = 250


def main() -> None:
    how, argument = sys.argv[1:]
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _end(128 + signal.SIGTERM))
    if how == "run":
        plan, control = json.loads(argument), None
    else:
        plan, control = _receive(argument)
    command = _start(plan, control)
    _serve(command, control.fileno() if control else _open_supervisor(plan["supervisor"]))


def _receive(path: str) -> tuple[dict[str, Any], socket.socket]:
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    head, fds, _, _ = socket.recv_fds(control, 8, _MAX_FDS)
    length, body = int.from_bytes(head, "big"), b""
    while len(body) < length:
        part = control.recv(length - len(body))
        if not part:
            os._exit(1)
        body += part
    plan = json.loads(body)
    above = max([*plan["fds"], *fds, control.fileno(), 64]) + 1
    held = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    kept = fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, above)
    control.close()
    return {**plan, "held": held}, socket.socket(fileno=kept)


def _start(plan: dict[str, Any], control: socket.socket | None) -> int:
    """Fork, give the child its descriptors and limits, and make it the command; return its pid."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _become(plan)
        except OSError as error:
            os.write(2, f"kernelwright: cannot start {plan['argv'][0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    os.close(tell)
    os.read(told, 1)  # ends when the command has replaced the child, or the child has ended
    os.close(told)
    kept = control.fileno() if control else -1
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (int(name) for name in os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in (kept, nothing):
            try:
                os.close(fd)
            except OSError:
                continue  # the descriptor that listed them
    for fd in range(3):
        os.dup2(nothing, fd)
    if control:
        control.sendall(b"s")
    return pid


def _become(plan: dict[str, Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.setsid()
    for held, number in zip(plan.get("held", ()), plan.get("fds", ()), strict=True):
        os.dup2(held, number, inheritable=True)
    for name, value in plan.get("rlimits", {}).items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    os.umask(0o022)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    if plan.get("fixed_addresses"):
        ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
    if "filter" in plan:
        _filter(bytes.fromhex(plan["filter"]))
    os.execvpe(plan["argv"][0], plan["argv"], plan["env"])


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))  # struct sock_fprog, <linux/filter.h>


def _filter(program: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    whole = _Program(len(program) // 8, program)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the seccomp filter is refused")


def _open_supervisor(pid: int) -> int:
    """Return a descriptor that becomes readable when the supervisor ends."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        _end(1)
    if os.getppid() != pid:  # it had ended before, and the number is another's now
        _end(1)
    return watched


def _serve(command: int, supervisor: int) -> NoReturn:
    """Reap until the command ends or the supervisor does; then end everything."""
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    for fd in (woken, supervisor):
        poll.register(fd, select.POLLIN)
    while True:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == command:
                    code = os.waitstatus_to_exitcode(found[1])
                    _end(code if code >= 0 else 128 - code)
        except ChildProcessError:
            _end(1)
        ready = {fd for fd, _ in poll.poll()}
        if supervisor in ready:
            _end(1)
        if woken in ready:
            os.read(woken, 4096)


def _end(code: int) -> NoReturn:
    """Kill every child, and every orphan that becomes one, until none is left; then exit."""
    deadline = time.monotonic() + 5
    while os.getpid() != 1 and time.monotonic() < deadline:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.001)
    os._exit(code)


if __name__ == "__main__":
    main()
