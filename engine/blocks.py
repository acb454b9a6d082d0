"""BlockManager: which pages of the KV cache belong to whom."""

from __future__ import annotations

from kernelwright.engine.config import PAGE_SIZE
from kernelwright.engine.sequence import Sequence


def pages_for(num_tokens: int) -> int:
    """Return the number of pages that hold `num_tokens` tokens."""
    return -(-num_tokens // PAGE_SIZE)


class BlockManager:
    """A free list of pages. A page has one owner at a time; a freed page is handed out next, while it is warm."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Give `sequence` pages for its first `num_tokens` tokens; return False, changing nothing, if short."""
        missing = pages_for(num_tokens) - len(sequence.pages)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            sequence.pages.append(self._free.pop())
        return True

    def release(self, sequence: Sequence) -> None:
        """Take all pages back from `sequence`; its computed tokens are gone."""
        self._free.extend(reversed(sequence.pages))
        sequence.pages.clear()
        sequence.num_computed = 0
