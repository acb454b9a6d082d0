"""Memory that was freed once is not asked of the system again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernelwright.kernels.allocator import VARIABLES, keep_pages

COUNT = """
import resource, sys
if sys.argv[1] == "kept":
    from kernelwright.kernels.allocator import keep_pages
    keep_pages()
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
faults = []
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = libc.malloc(8 << 20)
    ctypes.memset(place, 1, 8 << 20)
    libc.free(place)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[1])
"""


def count_faults(how: str, **variables: str) -> int:
    """Return the page faults of a second block of 8 MiB, in a process of its own."""
    command = [sys.executable, "-c", COUNT, how]
    return int(subprocess.run(command, capture_output=True, check=True, env={**os.environ, **variables}).stdout)


@pytest.mark.skipif(not keep_pages(), reason="this libc has no mallopt")
def test_a_second_block_costs_no_page_faults() -> None:
    assert count_faults("left") > 1000, "left to itself malloc gives the first block back"
    assert count_faults("kept") < 100
    assert count_faults("left", **VARIABLES) < 100
