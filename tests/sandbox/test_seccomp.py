"""The filter is a well-formed program for both machines; what it refuses is tested live in test_cage."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.seccomp import (
    ADDR_NO_RANDOMIZE,
    AUDIT_ARCH,
    DENIED,
    TIOCLINUX,
    TIOCSTI,
    compile_filter,
    docker_profile,
)  # fmt: skip

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def interpret(program: bytes, arch: int, number: int, arg0: int = 0, arg1: int = 0) -> int:
    """Run the classic BPF program as the kernel would and return its verdict."""
    memory = {0: number, 4: arch, 16: arg0, 24: arg1}
    steps = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, true, false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = memory[value]
        else:
            hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += true if hit else false


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_every_named_call_is_refused(machine: str) -> None:
    program = compile_filter(machine)
    for name, number in DENIED[machine].items():
        assert interpret(program, AUDIT_ARCH[machine], number) == ERRNO | 1, name


@pytest.mark.parametrize(("machine", "read", "clone", "socket"), [("x86_64", 0, 56, 41), ("aarch64", 63, 220, 198)])
def test_ordinary_calls_pass_and_arguments_are_looked_at(machine: str, read: int, clone: int, socket: int) -> None:
    program, arch = compile_filter(machine), AUDIT_ARCH[machine]
    assert interpret(program, arch, read) == ALLOW
    assert interpret(program, arch, clone, 0x003D0F00) == ALLOW, "a thread"
    assert interpret(program, arch, clone, 0x10000000) == ERRNO | 1, "a user namespace"
    assert interpret(program, arch, socket, 1) == ALLOW, "AF_UNIX"
    assert interpret(program, arch, socket, 2) == ERRNO | 13, "AF_INET"
    assert interpret(program, arch, socket, 16) == ERRNO | 13, "AF_NETLINK"


@pytest.mark.parametrize(("machine", "ioctl"), [("x86_64", 16), ("aarch64", 29)])
def test_no_words_are_put_into_a_terminal(machine: str, ioctl: int) -> None:
    program, arch = compile_filter(machine), AUDIT_ARCH[machine]
    for request in (TIOCSTI, TIOCLINUX):
        assert interpret(program, arch, ioctl, 0, request) == ERRNO | 1
    assert interpret(program, arch, ioctl, 0, 0x5401) == ALLOW, "TCGETS"


def decide(profile: dict[str, Any], name: str, *args: int) -> tuple[str, int]:
    """Return action and error number of Docker's JSON for one call, by the comparisons that libseccomp defines."""

    def holds(test: dict[str, Any]) -> bool:
        given = args[test["index"]]
        if test["op"] == "SCMP_CMP_MASKED_EQ":
            return bool(given & test["value"] == test["valueTwo"])
        assert test["op"] == "SCMP_CMP_NE"
        return bool(given != test["value"])

    for rule in profile["syscalls"]:
        if name in rule["names"] and all(holds(test) for test in rule["args"]):
            return rule["action"], rule["errnoRet"]
    return profile["defaultAction"], 0


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_dockers_json_decides_as_the_program_does(machine: str) -> None:
    profile, program, arch = json.loads(docker_profile(machine)), compile_filter(machine), AUDIT_ARCH[machine]
    special = {"x86_64": {"clone": 56, "clone3": 435, "socket": 41, "ioctl": 16, "read": 0}}
    special["aarch64"] = {"clone": 220, "clone3": 435, "socket": 198, "ioctl": 29, "read": 63}
    arguments = [(0, 0), (1, 0), (2, 0), (16, 0), (0x003D0F00, 0), (0, TIOCSTI), (0, TIOCLINUX), (0, 0x5401)]
    arguments += [(1 << bit, 0) for bit in range(32)]
    for name, number in {**DENIED[machine], **special[machine]}.items():
        for first, second in arguments:
            action, error = decide(profile, name, first, second)
            expected = interpret(program, arch, number, first, second)
            if (name, first) == ("personality", ADDR_NO_RANDOMIZE):  # for the first process, before the program stands
                assert action == "SCMP_ACT_ALLOW" and expected != ALLOW
                continue
            assert expected == (ALLOW if action == "SCMP_ACT_ALLOW" else ERRNO | error), (name, first, second)


def test_another_architecture_or_the_x32_table_kills() -> None:
    program = compile_filter("x86_64")
    assert interpret(program, 0x40000003, 0) == KILL
    assert interpret(program, AUDIT_ARCH["x86_64"], 0x40000000 + 101) == KILL


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(EnvironmentLacks, match="riscv64"):
        compile_filter("riscv64")
