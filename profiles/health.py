"""What was wrong with a trace, and what of it was mended, dropped or left unknown."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel


class Health(BaseModel, frozen=True, extra="forbid"):
    repaired: Mapping[str, int] = {}
    """Events read after a repair, by kind of fault."""
    dropped: Mapping[str, int] = {}
    """Events that could not be read, by kind of fault."""
    cut: bool = False
    """The file ends before its end: what was written later is missing. Host events come first, so kernels may be."""
    unknown_categories: Mapping[str, int] = {}
    unread_blocks: tuple[str, ...] = ()
    """Top-level blocks that were not read: they may hold an environment and its secrets."""
    redacted: int = 0
    """Names in which a credential, a user or a host was replaced."""
    kernels_with_zero_ts: int = 0
    """Kernels that start at 0 without a length: the profiler had no time for them. In no count, in no sum."""
    kernels_with_negative_dur: int = 0
    """Kernels that end before they start. In no count, in no sum."""
    kernel_ns_raw: int | None = None
    """Sum of durations as the file has them, where durations run past the next kernels of their stream."""
    kernel_ns_clipped: int | None = None
    """The same with such kernels ended where the next one of their stream starts."""
    notes: tuple[str, ...] = ()
    """Anything else a reader of the numbers must know, in sentences."""
