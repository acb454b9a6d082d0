"""BlockManager: which pages of the KV cache belong to whom, and what is in those that belong to nobody."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from kernelwright.engine.config import PAGE_SIZE
from kernelwright.engine.sequence import Sequence


def pages_for(num_tokens: int) -> int:
    """Return the number of pages that hold `num_tokens` tokens."""
    return -(-num_tokens // PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class PageCount:
    """Every page is one of the three; counted one by one, so that a leak shows."""

    free: int
    """Empty."""
    cached: int
    """Known, owned by nobody."""
    owned: int
    references: int
    """Owners of all pages together; a shared page has several."""


class BlockManager:
    """Pages, and a prefix cache of those that are full.

    A full page is known by its own tokens and all before them. Sequences that begin alike share such pages, which
    nobody writes to again. What nobody owns any more stays until its room is needed: the longest unused goes first, and
    of one sequence the last page. Empty pages are handed out first, the last freed of them while it is warm.
    """

    def __init__(self, num_pages: int, prefix_cache: bool = True) -> None:
        self.num_pages = num_pages
        self.num_queried = 0
        """Tokens of admitted sequences, and how many of them were found."""
        self.num_found = 0
        self._prefix_cache = prefix_cache
        self._epoch = 0
        self._empty = list(range(num_pages - 1, -1, -1))
        self._owners = [0] * num_pages
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Known pages without an owner, the longest unused first."""

    @property
    def num_free(self) -> int:
        """Pages that can be had: empty ones, and known ones that nobody owns."""
        return len(self._empty) + len(self._idle)

    @property
    def num_known(self) -> int:
        """Pages whose content can be found again, owned or not."""
        return len(self._page_of)

    def count_pages(self) -> PageCount:
        """Return what the pages are, each looked at."""
        owned = sum(owners > 0 for owners in self._owners)
        return PageCount(len(set(self._empty)), len(self._idle), owned, sum(self._owners))

    def unowned(self) -> list[int]:
        """Return the pages that nobody owns."""
        return [page for page, owners in enumerate(self._owners) if not owners]

    def adopt(self, sequence: Sequence) -> None:
        """Give a sequence without pages those that hold its beginning; what they hold counts as computed.

        At least its last token is left to compute: its logits are not in the cache.
        """
        if not self._prefix_cache:
            return
        for index in range((sequence.num_tokens - 1) // PAGE_SIZE):
            page = self._page_of.get(self._key(sequence, index))
            if page is None:
                break
            self._owners[page] += 1
            self._idle.pop(page, None)
            sequence.pages.append(page)
        sequence.num_computed = sequence.num_noted = len(sequence.pages) * PAGE_SIZE

    def count(self, sequence: Sequence) -> None:
        """Count a sequence that is admitted: its tokens, and those that were found."""
        self.num_queried += sequence.num_tokens
        self.num_found += sequence.num_computed

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Give `sequence` pages for its first `num_tokens` tokens; return False, changing nothing, if short."""
        missing = pages_for(num_tokens) - len(sequence.pages)
        if missing > self.num_free:
            return False
        for _ in range(missing):
            page = self._empty.pop() if self._empty else self._evict()
            self._owners[page] = 1
            sequence.pages.append(page)
        return True

    def note(self, sequence: Sequence) -> None:
        """Remember the pages of `sequence` that have become full: all their tokens are computed."""
        if not self._prefix_cache:
            return
        while sequence.num_noted + PAGE_SIZE <= sequence.num_computed:
            index = sequence.num_noted // PAGE_SIZE
            key, page = self._key(sequence, index), sequence.pages[index]
            if key not in self._page_of:  # else two sequences computed the same at once: one page of it is enough
                self._page_of[key], self._key_of[page] = page, key
            sequence.num_noted += PAGE_SIZE

    def release(self, sequence: Sequence) -> None:
        """Take all pages back from `sequence`; its computed tokens are gone, or can be found again."""
        for page in reversed(sequence.pages):
            self._owners[page] -= 1
            if self._owners[page]:
                continue
            if page in self._key_of:
                self._idle[page] = None
            else:
                self._empty.append(page)
        sequence.pages.clear()
        sequence.num_computed = sequence.num_noted = 0

    def forget(self) -> int:
        """Forget what is in the pages, as other kernels may compute it otherwise; return how many were known."""
        known = len(self._page_of)
        self._empty.extend(reversed(self._idle))
        self._idle.clear()
        self._page_of.clear()
        self._key_of.clear()
        self._epoch += 1  # what runs now goes on from pages of before: nobody else may
        return known

    def _evict(self) -> int:
        page, _ = self._idle.popitem(last=False)
        del self._page_of[self._key_of.pop(page)]
        return page

    def _key(self, sequence: Sequence, index: int) -> bytes:
        """Return the name of the content of full page `index`: a digest of its tokens and of all before them."""
        keys = sequence.page_keys
        while len(keys) <= index:
            start = len(keys) * PAGE_SIZE
            tokens = np.array(sequence.token_ids[start : start + PAGE_SIZE], np.uint32).tobytes()
            before = keys[-1] if keys else self._epoch.to_bytes(8, "little") + bytes([sequence.plain])
            keys.append(blake2b(before + tokens, digest_size=16).digest())
        return keys[index]
