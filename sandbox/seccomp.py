"""The seccomp filter of a cage, as the bytes of a classic BPF program.

Source: seccomp(2), <linux/filter.h>; numbers from the kernel's syscall tables. Default allow: Python and torch need a
wide surface, so what reaches other processes, the kernel's configuration, the network or the scheduler is refused.
Each refusal is by name.
"""

from __future__ import annotations

import errno
import json
import platform
import struct

from kernelwright.profiles.errors import EnvironmentLacks

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARG0, _OFFSET_ARG1 = 0, 4, 16, 24
# CLONE_NEWTIME 0x80, NEWNS 0x20000, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACE = 0x80 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_AF_UNIX = 1
ADDR_NO_RANDOMIZE = 0x0040000
"""personality(2): what a cage's first process may ask for before its own filter stands."""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = {"x86_64": 435, "aarch64": 435}
SOCKET = {"x86_64": 41, "aarch64": 198}
IOCTL = {"x86_64": 16, "aarch64": 29}
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""Put words into a terminal's input."""
DENIED: dict[str, dict[str, int]] = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438,
        "process_madvise": 440, "perf_event_open": 298, "bpf": 321, "userfaultfd": 323,
        "add_key": 248, "request_key": 249, "keyctl": 250,
        "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308,
        "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
        "mount_setattr": 442, "name_to_handle_at": 303, "open_by_handle_at": 304, "fanotify_init": 300,
        "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
        "sched_setaffinity": 203, "sched_setparam": 142, "sched_setscheduler": 144, "sched_setattr": 314,
        "setpriority": 141, "personality": 135, "syslog": 103, "acct": 163, "swapon": 167, "swapoff": 168,
        "reboot": 169, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305,
        "quotactl": 179, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "vhangup": 153, "migrate_pages": 256,
        "move_pages": 279, "lookup_dcookie": 212, "vmsplice": 278, "fanotify_mark": 301, "ioprio_set": 251,
        "sethostname": 170, "setdomainname": 171, "quotactl_fd": 443, "uselib": 134, "execveat": 322,
        "memfd_secret": 447, "process_mrelease": 448, "open_tree_attr": 467,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "pidfd_getfd": 438,
        "process_madvise": 440, "perf_event_open": 241, "bpf": 280, "userfaultfd": 282,
        "add_key": 217, "request_key": 218, "keyctl": 219,
        "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268,
        "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
        "mount_setattr": 442, "name_to_handle_at": 264, "open_by_handle_at": 265, "fanotify_init": 262,
        "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106,
        "sched_setaffinity": 122, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setattr": 274,
        "setpriority": 140, "personality": 92, "syslog": 116, "acct": 89, "swapon": 224, "swapoff": 225,
        "reboot": 142, "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266,
        "quotactl": 60, "vhangup": 58, "migrate_pages": 238, "move_pages": 239, "lookup_dcookie": 18,
        "vmsplice": 75, "fanotify_mark": 263, "ioprio_set": 30, "sethostname": 161, "setdomainname": 162,
        "quotactl_fd": 443, "execveat": 281, "memfd_secret": 447, "process_mrelease": 448, "open_tree_attr": 467,
    },
}  # fmt: skip


def compile_filter(machine: str | None = None) -> bytes:
    """Return the program for `machine` (default: this one), an array of struct sock_filter.

    Another architecture's calls kill the process; denied calls fail with EPERM; clone3 fails with ENOSYS, so that libc
    falls back to clone, whose flags a filter can see; sockets other than AF_UNIX fail with EACCES.
    Raises EnvironmentLacks where we know no syscall table.
    """
    machine = machine or platform.machine()
    if machine not in DENIED:
        raise EnvironmentLacks(
            f"no system-call filter is known for {machine}",
            f"run on one of: {', '.join(DENIED)}, or use the process cage",
        )
    program = [
        _op(_LOAD, _OFFSET_ARCH),
        _op(_JUMP_EQ, AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":  # the x32 table shares the architecture word
        program += [_op(_JUMP_GE, 0x40000000, 0, 1), _op(_RETURN, _KILL)]
    for number in sorted(set(DENIED[machine].values())):
        program += [_op(_JUMP_EQ, number, 0, 1), _op(_RETURN, _ERRNO | errno.EPERM)]
    program += [_op(_JUMP_EQ, CLONE3[machine], 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    program += [
        _op(_JUMP_EQ, CLONE[machine], 0, 4),
        _op(_LOAD, _OFFSET_ARG0),
        _op(_JUMP_SET, _NEW_NAMESPACE, 0, 1),
        _op(_RETURN, _ERRNO | errno.EPERM),
        _op(_RETURN, _ALLOW),
    ]
    program += [
        _op(_JUMP_EQ, SOCKET[machine], 0, 3),
        _op(_LOAD, _OFFSET_ARG0),
        _op(_JUMP_EQ, _AF_UNIX, 1, 0),
        _op(_RETURN, _ERRNO | errno.EACCES),
    ]
    program += [
        _op(_JUMP_EQ, IOCTL[machine], 0, 4),
        _op(_LOAD, _OFFSET_ARG1),
        _op(_JUMP_EQ, TIOCSTI, 1, 0),
        _op(_JUMP_EQ, TIOCLINUX, 0, 1),
        _op(_RETURN, _ERRNO | errno.EPERM),
    ]
    program += [_op(_RETURN, _ALLOW)]
    return b"".join(program)


def docker_profile(machine: str | None = None) -> str:
    """Return the same filter as Docker's JSON (docs.docker.com, "Seccomp security profiles for Docker").

    Another architecture's calls, the x32 table's included, are refused by libseccomp itself, which kills.
    """
    machine = machine or platform.machine()
    compile_filter(machine)
    architecture = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]

    def deny(names: list[str], code: int, *tests: dict[str, object]) -> dict[str, object]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": list(tests)}

    def equal(index: int, value: int) -> dict[str, object]:  # the upper half is the caller's noise
        return {"index": index, "value": 0xFFFFFFFF, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}

    def unlike(index: int, value: int) -> dict[str, object]:
        return {"index": index, "value": value, "op": "SCMP_CMP_NE"}

    bits = [1 << n for n in range(32) if _NEW_NAMESPACE >> n & 1]
    rules = [deny(sorted(DENIED[machine].keys() - {"personality"}), errno.EPERM), deny(["clone3"], errno.ENOSYS)]
    rules += [deny(["personality"], errno.EPERM, unlike(0, ADDR_NO_RANDOMIZE))]  # our own filter then denies that, too
    rules += [
        deny(["clone"], errno.EPERM, {"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"})
        for bit in bits
    ]
    rules += [deny(["socket"], errno.EACCES, unlike(0, _AF_UNIX))]
    rules += [deny(["ioctl"], errno.EPERM, equal(1, value)) for value in (TIOCSTI, TIOCLINUX)]
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW", "architectures": [architecture], "syscalls": rules,
    }  # fmt: skip
    return json.dumps(profile)


def _op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
