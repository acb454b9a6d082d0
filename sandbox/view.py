"""View: what a cage shows of the host, for every kind of cage alike, and the user id untrusted code gets.

Shown, all read-only: the system's folders, the interpreter's own, the kernelwright packages asked for.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import stat
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import SOURCE_ROOT, Bind

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
OPTIONAL = ("/etc/ld.so.cache", "/etc/alternatives")
_UIDS = range(60100, 64900)


def system_links() -> dict[str, str]:
    """Return the system's folders that are symbolic links here, and where each points."""
    return {folder: os.readlink(folder) for folder in SYSTEM if os.path.islink(folder)}


def system_folders() -> list[str]:
    """Return the system's folders that are folders of their own."""
    return [folder for folder in SYSTEM if os.path.isdir(folder) and not os.path.islink(folder)]


def software_binds(packages: Sequence[str]) -> list[Bind]:
    """Return what shows the interpreter with its libraries, and the kernelwright `packages` below `SOURCE_ROOT`."""
    roots = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))}
    roots |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    wanted = sorted(r for r in roots if not r.startswith("/usr/") and r != "/usr")
    kept = [r for r in wanted if not any(r != o and Path(r).is_relative_to(o) for o in wanted)]
    home = Path(__file__).resolve().parent.parent
    own = [Bind(home / p, SOURCE_ROOT / "kernelwright" / p) for p in packages]
    return [*(Bind(Path(r), Path(r)) for r in kept), *own]


def parents_first(binds: Sequence[Bind]) -> list[Bind]:
    """Return `binds` in an order in which none hides one before it."""
    return sorted(binds, key=lambda b: len(b.destination.parts))


def check_readable(path: Path, uid: int | None) -> None:
    """Raise EnvironmentLacks unless `path` exists and, where the cage has a `uid` of its own, others may read it."""
    if not path.exists():
        raise EnvironmentLacks(f"{path} does not exist", "check the path given to the cage")
    need = 0o005 if path.is_dir() else 0o004
    if uid is not None and stat.S_IMODE(path.stat().st_mode) & need != need:
        raise EnvironmentLacks(
            f"{path} is not readable by other users, so a cage with a user of its own cannot use it",
            f"make it readable: chmod -R o+rX {path}",
        )


def free_uid() -> int:
    """Return a user id that has no account and runs no process, so that nothing of it can be reached."""
    used = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError):
                used.add(os.stat(f"/proc/{entry}").st_uid)
    mapped = _mapped_uids()
    for _ in range(1000):
        uid = _UIDS.start + secrets.randbelow(len(_UIDS))
        if uid in used or not any(uid in r for r in mapped):
            continue
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise EnvironmentLacks(
        f"no free user id in {_UIDS.start}..{_UIDS.stop - 1} to run untrusted code under",
        "run as an ordinary user, or map that range into this container",
    )


def _mapped_uids() -> list[range]:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return [range(int(inside), int(inside) + int(count)) for inside, _, count in (line.split() for line in lines)]
