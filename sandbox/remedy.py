"""What keeps bubblewrap from making namespaces on this machine, as /proc shows it, and what to do about it."""

from __future__ import annotations

import contextlib
from pathlib import Path

CONTAINER_FLAGS = (
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined "
    "--cap-add SYS_ADMIN"
)
APPARMOR_PROFILE = (
    "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,"
    "\\n}\\n' | sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r /etc/apparmor.d/bwrap"
)


def explain_refusal(root: Path = Path("/")) -> tuple[str, str]:
    """Return (cause, remedy) for user namespaces that are refused; `root` is where /proc and /.dockerenv are found.

    The cause is one that can be read on this machine, or says that none could.
    """
    if _read(root, "user/max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000"
    if _read(root, "kernel/unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _read(root, "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces (Ubuntu 23.10 and later)",
            f"let bwrap alone have them: {APPARMOR_PROFILE}; or everybody: "
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if is_container(root):
        return "this is a container, and its runtime refuses namespaces", f"start it with {CONTAINER_FLAGS}"
    return "no setting that is known to refuse them is set", "see `dmesg`; or use `--cage docker`"


def is_container(root: Path = Path("/")) -> bool:
    """Return whether a container runtime has left its mark in the root folder."""
    return (root / ".dockerenv").exists() or (root / "run/.containerenv").exists()


def _read(root: Path, name: str) -> str:
    with contextlib.suppress(OSError):
        return (root / "proc/sys" / name).read_text().strip()
    return ""
