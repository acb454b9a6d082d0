"""Machine instructions that a kernel has no use for, found by disassembly of its code.

A linear sweep, begun anew at every function. What follows bytes that cannot be decoded is only noticed, as the sweep
may be out of step there. Sources: Intel SDM volume 2, Arm ARM (A64) for the names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from kernelwright.sandbox.findings import Findings

MACHINES = ("x64", "AArch64")
_SYSTEM = "it calls the kernel by an instruction of its own"
_FLUSHES = "it changes how floating-point operations work"
REFUSED: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "x64": (
        (_SYSTEM, re.compile(r"syscall.*|sysenter.*|int 0x.*|int [0-9]+")),
        (_FLUSHES, re.compile(r"v?ldmxcsr.*|f?xrstors?(64)? .*|fldenv.*")),
        ("it changes the protection of memory", re.compile(r"wrpkru.*")),
    ),
    "AArch64": (
        (_SYSTEM, re.compile(r"(svc|hvc|smc) .*")),
        (_FLUSHES, re.compile(r"msr fpcr.*")),
    ),
}
NOTICED: dict[str, re.Pattern[str]] = {
    "x64": re.compile(r"rdtscp?.*|rdpmc.*|rdrand.*|rdseed.*|clflush.*|xbegin.*|rdfsbase.*|rdgsbase.*"),
    "AArch64": re.compile(r"mrs \w+, (cntv?ct|cntpct|pmccntr).*"),
}
ARITHMETIC: dict[str, re.Pattern[str]] = {
    "x64": re.compile(
        r"v?(add|sub|mul|div|sqrt|dp|hadd|max|min)(sub)?[ps][sd]|vfn?m(add|sub)\w*|v?pmadd\w+|v?pdp\w+|vdpbf16ps|v?pmull?[dw]|f(add|mul|sub|div)p?"
    ),
    "AArch64": re.compile(r"f(n?m?(add|sub|ul|la|ls|div|sqrt|max|min))\w*|[su]dot|[su]?ml[as]l?|mul|bf\w+"),
}
FTZ_REGISTER = re.compile(r"v?ldmxcsr.*|msr fpcr.*")


def scan_code(
    code: bytes, address: int, machine: str, starts: Sequence[int], flush_allowed: bool, findings: Findings
) -> int:
    """Add what the instructions of `code`, loaded at `address`, show; return how many do floating-point arithmetic.

    `starts`: addresses of functions, where the sweep begins anew.
    """
    edges = sorted({address, address + len(code), *(s for s in starts if address < s < address + len(code))})
    counted = 0
    for begin, end in itertools.pairwise(edges):
        part = code[begin - address : end - address]
        counted += _scan_function(part, begin, machine, flush_allowed, findings)
    return counted


def _scan_function(code: bytes, address: int, machine: str, flush_allowed: bool, findings: Findings) -> int:
    import capstone

    mode = (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    reader: Any = capstone.Cs(  # type: ignore[no-untyped-call]
        *(mode if machine == "x64" else (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM))
    )
    reader.skipdata = True
    in_step, counted = True, 0
    for at, _, mnemonic, operands in reader.disasm_lite(code, address):
        if mnemonic == ".byte":
            in_step = False
            findings.notice("has bytes among its code that cannot be decoded")
            continue
        text = f"{mnemonic} {operands}".strip()
        counted += bool(ARITHMETIC[machine].fullmatch(mnemonic))
        reason = next((reason for reason, pattern in REFUSED[machine] if pattern.fullmatch(text)), "")
        if reason and not (flush_allowed and FTZ_REGISTER.fullmatch(text)):
            if in_step:
                findings.refuse(reason, f"{text} at {at:#x}")
            else:
                findings.notice(f"may hold the instruction {mnemonic}")
        elif NOTICED[machine].fullmatch(text):
            findings.notice(f"reads a counter or a random source: {mnemonic}")
    return counted
