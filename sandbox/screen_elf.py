"""Screen of a built shared object: imports, what runs at load, writable data, protections, raw instructions.

The object was linked by our own compiler from the candidate's source, so its structure is the linker's; what is decided
here is what the source made it contain. Format: System V ABI (ELF), LSB for the GNU segments.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.sandbox.elf_imports import ALLOWED, FLUSHING, NOTICED, REFUSED, ROUNDING, VENDOR
from kernelwright.sandbox.findings import Findings
from kernelwright.sandbox.instructions import MACHINES, scan_code

STATIC_BYTES = 4096
"""Writable static data above which a memo of results would fit."""
INIT_BYTES, FINI_BYTES = 40, 32
"""The C runtime's own `.init` and `.fini` are smaller; they hold no code of the candidate's."""
LIBRARIES = (
    "libc.so",
    "libm.so",
    "libgomp.so",
    "libstdc++.so",
    "libgcc_s.so",
    "ld-linux",
    "libtvm_ffi.so",
    "libmvec.so",
)
AT_LOAD = "it runs code of its own when it is loaded"
UNREADABLE = "its binary cannot be read"


def screen_elf(binary: bytes, policy: PrecisionPolicy, findings: Findings) -> None:
    """Add what `binary` shows to `findings`; bytes that are no shared object are refused. Raises nothing."""
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(BytesIO(binary))
        if elf.header.e_type != "ET_DYN" or elf.get_machine_arch() not in MACHINES:
            findings.refuse(UNREADABLE, f"{elf.header.e_type} for {elf.get_machine_arch()}")
            return
        for check in (_screen_imports, _screen_at_load, _screen_segments, _screen_data, _screen_code):
            check(elf, policy, findings)
    except Exception as error:  # a damaged file makes the reader fail in many ways, and all of them mean this
        findings.refuse(UNREADABLE, type(error).__name__)


def _screen_imports(elf: Any, policy: PrecisionPolicy, findings: Findings) -> None:
    symbols = elf.get_section_by_name(".dynsym")
    if symbols is None:
        findings.refuse(UNREADABLE, "no dynamic symbols")
        return
    names = sorted({s.name for s in symbols.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name})
    findings.fact("imports", " ".join(names))
    for name in names:
        judge_import(name, policy, findings)
    for tag in _tags(elf):
        if tag.entry.d_tag == "DT_NEEDED" and not tag.needed.startswith(LIBRARIES):
            findings.notice(f"needs the library {tag.needed[:80]}")
        if tag.entry.d_tag in ("DT_AUDIT", "DT_DEPAUDIT", "DT_RPATH", "DT_RUNPATH", "DT_AUXILIARY", "DT_FILTER"):
            findings.refuse("it looks up or loads code of others", tag.entry.d_tag)


def judge_import(name: str, policy: PrecisionPolicy, findings: Findings) -> None:
    """Add what importing `name` means; nothing for what is allowed."""
    reason = next((reason for reason, pattern in REFUSED if pattern.fullmatch(name)), "")
    if ROUNDING.fullmatch(name) or (FLUSHING.fullmatch(name) and not policy.allow_flush_to_zero):
        reason = "it changes how floating-point operations work"
    if reason:
        findings.refuse(reason, name)
    elif VENDOR.fullmatch(name):
        findings.label("vendor-wrap")
    elif noticed := next((text for text, pattern in NOTICED if pattern.fullmatch(name)), ""):
        findings.notice(f"{noticed}: {name[:80]}")
    elif not ALLOWED.fullmatch(name) and not FLUSHING.fullmatch(name):
        findings.notice(f"imports {name[:80]}")


def _screen_at_load(elf: Any, policy: PrecisionPolicy, findings: Findings) -> None:
    """Look at constructors. An ordinary build has one entry, `frame_dummy`, and one destructor.

    `_GLOBAL__sub_I_…` initialises static objects, which is ordinary C++ and only noticed.
    """
    starters = _entries(elf, ".init_array")
    enders = _entries(elf, ".fini_array")
    findings.fact("init_array", " ".join(starters))
    for expected, names in (("frame_dummy", starters), ("__do_global_dtors_aux", enders)):
        extra = list(names)
        if expected in extra:
            extra.remove(expected)
        for name in extra:
            if name == "set_fast_math":
                if not policy.allow_flush_to_zero:
                    findings.refuse("loading it flushes subnormals for the whole process", name)
            elif name.startswith("_GLOBAL__"):
                findings.notice("initialises static objects when it is loaded")
            else:
                findings.refuse(AT_LOAD, name or "unnamed constructor")
    if _functions(elf, ("STT_LOOS", "STT_GNU_IFUNC")):
        findings.notice("chooses a function when it is loaded (ifunc)")
    for section in elf.iter_sections():
        size = section["sh_size"]
        limit = {".init": INIT_BYTES, ".fini": FINI_BYTES, ".ctors": 0, ".dtors": 0, ".preinit_array": 0}
        if size > limit.get(section.name, size):
            findings.refuse(AT_LOAD, f"{section.name} has {size} bytes")


def _entries(elf: Any, name: str) -> list[str]:
    """Return the names of the functions an array of pointers names; '' for one without a name."""
    section = elf.get_section_by_name(name)
    if section is None:
        return []
    width = elf.elfclass // 8
    start, size = section["sh_addr"], section["sh_size"]
    data = section.data()
    targets = {at: int.from_bytes(data[at : at + width], "little") for at in range(0, size, width)}
    symbols = elf.get_section_by_name(".dynsym")
    for table in elf.iter_sections():
        if table["sh_type"] in ("SHT_RELA", "SHT_REL"):
            for relocation in table.iter_relocations():
                at = relocation["r_offset"] - start
                if at in targets:
                    base = symbols.get_symbol(relocation["r_info_sym"])["st_value"] if relocation["r_info_sym"] else 0
                    targets[at] = base + (relocation["r_addend"] if relocation.is_RELA() else targets[at])
    names = dict(_functions(elf))
    return [names.get(address, "") for address in targets.values()]


def _functions(elf: Any, kinds: tuple[str, ...] = ("STT_FUNC",)) -> list[tuple[int, str]]:
    """Return (address, name) of every function, sorted by address."""
    found = {}
    for table in (".dynsym", ".symtab"):
        section = elf.get_section_by_name(table)
        for symbol in section.iter_symbols() if section is not None else ():
            if symbol["st_info"]["type"] in kinds and symbol["st_shndx"] != "SHN_UNDEF":
                found[symbol["st_value"]] = symbol.name
    return sorted(found.items())


def _screen_segments(elf: Any, policy: PrecisionPolicy, findings: Findings) -> None:
    stack = [s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_STACK"]
    if not stack or any(s["p_flags"] & 1 for s in stack):
        findings.refuse("it asks for an executable stack")
    if any(s["p_type"] == "PT_LOAD" and s["p_flags"] & 3 == 3 for s in elf.iter_segments()):
        findings.refuse("it has memory that is both writable and executable")
    for tag in _tags(elf):
        flags = tag.entry.d_val if tag.entry.d_tag == "DT_FLAGS" else 0
        if tag.entry.d_tag == "DT_TEXTREL" or flags & 4:  # DF_TEXTREL
            findings.refuse("it has its code changed when it is loaded")


def _screen_data(elf: Any, policy: PrecisionPolicy, findings: Findings) -> None:
    """Count writable static bytes that stay writable; thread-local ones are ordinary scratch."""
    relro = [s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_RELRO"]
    total = 0
    for section in elf.iter_sections():
        flags, address = section["sh_flags"], section["sh_addr"]
        sealed = any(s["p_vaddr"] <= address < s["p_vaddr"] + s["p_memsz"] for s in relro)
        if flags & 3 == 3 and not flags & 0x400 and not sealed and not section.name.startswith(".got"):
            total += section["sh_size"]
    findings.fact("writable_static_bytes", total)
    if total > STATIC_BYTES:
        findings.notice(f"has {total} bytes of writable static data")


def _screen_code(elf: Any, policy: PrecisionPolicy, findings: Findings) -> None:
    starts = [address for address, _ in _functions(elf)]
    counted = 0
    for section in elf.iter_sections():
        if section["sh_flags"] & 4 and section["sh_type"] == "SHT_PROGBITS":
            counted += scan_code(
                section.data(), section["sh_addr"], elf.get_machine_arch(), starts, policy.allow_flush_to_zero, findings
            )
    findings.fact("arithmetic_instructions", counted)
    if counted:
        findings.label("custom")
    elif "vendor-wrap" not in findings.labels:
        findings.notice("has no floating-point arithmetic of its own")


def _tags(elf: Any) -> list[Any]:
    section = elf.get_section_by_name(".dynamic")
    return list(section.iter_tags()) if section is not None else []
