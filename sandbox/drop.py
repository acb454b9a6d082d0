"""The last trusted step before a cage: join the cgroup, stage the mounts, set rlimits, give up the user, exec.

Run as a plain script (`python -I -S drop.py PLAN`), so that it starts in milliseconds and shares no thread with
anybody. PLAN is JSON: `argv`, `env`, `rlimits` {name: value}, `cgroup_procs` [file], and as root also `uid`, `stage`
(folder) and `binds` [[source, name]]: each source is shown under `stage` in a private mount namespace, because the new
user may not be able to walk to it (an interpreter below a root-only home, say). `fixed_addresses`: whether what starts
here keeps an address space that is not randomised (personality(2)).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

_CLONE_NEWNS = 0x00020000
_ADDR_NO_RANDOMIZE = 0x0040000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


def main() -> None:
    plan: dict[str, Any] = json.loads(sys.argv[1])
    for procs in plan["cgroup_procs"]:
        with open(procs, "w") as file:
            file.write("0")
    if plan.get("binds"):
        _stage(plan["stage"], plan["binds"])
    for name, value in plan["rlimits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    if plan.get("uid") is not None:
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    if plan.get("fixed_addresses"):
        _fix_addresses()
    os.umask(0o022)
    os.execve(plan["argv"][0], plan["argv"], plan["env"])


def _fix_addresses() -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.personality(libc.personality(0xFFFFFFFF) | _ADDR_NO_RANDOMIZE)


def _stage(stage: str, binds: list[list[str]]) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            sys.exit(f"kernelwright: {what}: {os.strerror(ctypes.get_errno())}")

    check(libc.unshare(_CLONE_NEWNS), "cannot make a mount namespace")
    check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "cannot make the mounts private")
    check(libc.mount(b"tmpfs", stage.encode(), b"tmpfs", 0, b"mode=755"), "cannot mount the staging folder")
    for source, name in binds:
        target = os.path.join(stage, name)
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        check(libc.mount(source.encode(), target.encode(), None, _MS_BIND | _MS_REC, None), f"cannot show {source}")


if __name__ == "__main__":
    main()
