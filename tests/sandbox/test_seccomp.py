"""The filter is a well-formed program for both machines; what it refuses is tested live in test_cage."""

from __future__ import annotations

import struct

import pytest

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.seccomp import AUDIT_ARCH, DENIED, compile_filter

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def interpret(program: bytes, arch: int, number: int, arg0: int = 0) -> int:
    """Run the classic BPF program as the kernel would and return its verdict."""
    memory = {0: number, 4: arch, 16: arg0}
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


def test_another_architecture_or_the_x32_table_kills() -> None:
    program = compile_filter("x86_64")
    assert interpret(program, 0x40000003, 0) == KILL
    assert interpret(program, AUDIT_ARCH["x86_64"], 0x40000000 + 101) == KILL


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(EnvironmentLacks, match="riscv64"):
        compile_filter("riscv64")
