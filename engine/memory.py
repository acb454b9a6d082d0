"""Where the engine's memory is: the mapped file, what kernels packed, what incumbents dequantised, the KV cache.

All but one figure are of what is there: the system's own count of resident pages, and the sizes of tensors that
somebody still holds. `dequantized_all_bytes` is arithmetic: what the incumbents would hold if each had been called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from kernelwright.engine.dispatch import Dispatch


class Memory(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Bytes."""

    resident_bytes: int
    """Of the engine process, all together."""
    mapped_bytes: int
    """Of the weights file, mapped: raw weights are read there."""
    mapped_resident_bytes: int
    """Of those in memory now; the system can take them back."""
    packed_bytes: int
    """Made or kept by the packs' kernels."""
    dequantized_bytes: int
    """Made or kept by incumbents, for the slots they have served."""
    dequantized_all_bytes: int
    """What the incumbents of all slots would hold, regions left out; computed from their shapes."""
    kv_cache_bytes: int
    """Reserved; a page is resident once it is written to."""


def measure_memory(dispatch: Dispatch, model_path: Path) -> Memory:
    """Return where the memory of this process is now."""
    mapped, mapped_resident = mapped_file(model_path)
    held = dispatch.held_bytes()
    return Memory(
        resident_bytes=resident_bytes(),
        mapped_bytes=mapped,
        mapped_resident_bytes=mapped_resident,
        packed_bytes=sum(size for (*_, digest), size in held.items() if digest),
        dequantized_bytes=sum(size for (*_, digest), size in held.items() if not digest),
        dequantized_all_bytes=dispatch.incumbent_bytes(),
        kv_cache_bytes=sum(cache.nbytes for caches in dispatch.caches for cache in caches),
    )


def describe(memory: dict[str, int]) -> str:
    """Return one line for people, in MB, from the fields of Memory."""
    mb = {name.removesuffix("_bytes"): f"{value / 1e6:,.0f} MB" for name, value in memory.items()}
    return (
        f"memory: {mb['resident']} resident; weights: {mb['mapped']} mapped ({mb['mapped_resident']} of it resident), "
        f"{mb['packed']} packed for kernels, {mb['dequantized']} dequantised for incumbents (all of them would hold "
        f"{mb['dequantized_all']}); KV cache: {mb['kv_cache']} reserved"
    )


def resident_bytes() -> int:
    """Return the resident memory of this process, bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mapped_file(path: Path) -> tuple[int, int]:
    """Return (bytes mapped, bytes of them resident) of a file in this process. Format: proc_pid_smaps(5)."""
    wanted, size, resident, inside = str(path.resolve()), 0, 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            word = line.split(maxsplit=5)
            if "-" in word[0] and not word[0].endswith(":"):
                inside = len(word) == 6 and word[5].rstrip("\n") == wanted
            elif inside and word[0] == "Size:":
                size += 1024 * int(word[1])
            elif inside and word[0] == "Rss:":
                resident += 1024 * int(word[1])
    return size, resident
