"""How malloc keeps its pages, the same in the engine and in the judge's cages.

Left to itself glibc decides by what a process has freed before: from its first large block on it is two to three times
as fast. A server gets there by itself after a prefill; beside a judge it would be luck. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 32 << 20, 1 << 30
VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
}
"""For processes to be started."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_pages() -> bool:
    """Set the same in this process; return whether this libc could."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    settings = ((_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES), (_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))
    return all(libc.mallopt(name, value) == 1 for name, value in settings)
