"""Scheduler: continuous batching. A step is prefill (chunks of one or more prompts) or decode (one token each)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kernelwright.engine.blocks import BlockManager, pages_for
from kernelwright.engine.sequence import Sequence
from kernelwright.profiles.profile import Phase


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: for each sequence the number of tokens to compute, counted from its `num_computed`."""

    phase: Phase
    sequences: tuple[Sequence, ...]
    counts: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return sum(self.counts)


class Scheduler:
    """Prefill goes first, so that new requests join the decode batch soon. When pages run out, the youngest running
    sequence gives its pages back and is computed again later (preemption by recomputation).
    """

    def __init__(self, blocks: BlockManager, max_num_seqs: int, token_budget: int) -> None:
        self.blocks = blocks
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In order of admission; those with more than one token to compute are still in prefill."""
        self.num_preemptions = 0
        self._last_was_plain = False
        self._max_num_seqs = max_num_seqs
        self._token_budget = token_budget

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. The caller has checked that it can fit the cache alone."""
        self.waiting.append(sequence)

    def schedule(self) -> Batch | None:
        """Return the next step, its pages allocated; None when there is nothing to do."""
        return self._schedule_prefill() or self._schedule_decode()

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its pages."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.blocks.release(sequence)

    def restart(self, sequence: Sequence) -> None:
        """Have a sequence computed anew from its first token, before those that wait."""
        if sequence in self.running:
            self._preempt(sequence)

    def restart_all(self) -> int:
        """Have all running sequences computed anew, in the order they have; return how many they were.

        For a change of kernels: what the old ones computed is found by none of them again.
        """
        restarted = len(self.running)
        for sequence in reversed(self.running.copy()):
            self._preempt(sequence)
        for sequence in self.waiting:
            sequence.page_keys.clear()
        return restarted

    def _schedule_prefill(self) -> Batch | None:
        budget = self._token_budget
        chosen: list[Sequence] = []
        counts: list[int] = []
        unfinished = [sequence for sequence in self.running if sequence.num_pending > 1]
        while budget > 0:
            sequence = _pop_alike(unfinished, chosen) or self._admit(chosen)
            if sequence is None:
                break
            chosen.append(sequence)
            counts.append(min(sequence.num_pending, budget))
            budget -= counts[-1]
        return Batch("prefill", tuple(chosen), tuple(counts)) if chosen else None

    def _admit(self, company: list[Sequence]) -> Sequence | None:
        """Move the next waiting sequence to the running ones with pages for all its tokens, if there is room.

        It must be of the kind of its company: a step is for plain sequences or for the others.
        """
        if not self.waiting or len(self.running) >= self._max_num_seqs:
            return None
        sequence = self.waiting[0]
        if company and sequence.plain != company[0].plain:
            return None
        self.blocks.adopt(sequence)
        # leave each running sequence a page to grow into, or the newcomer would be preempted at once
        missing = pages_for(sequence.num_tokens) - len(sequence.pages)
        short = self.blocks.num_free < missing + len(self.running)
        if (self.running and short) or not self.blocks.grow(sequence, sequence.num_tokens):
            self.blocks.release(sequence)
            return None
        self.blocks.count(sequence)
        if not sequence.num_generated:
            sequence.num_cached = sequence.num_computed
        self.running.append(self.waiting.popleft())
        return sequence

    def _schedule_decode(self) -> Batch | None:
        ready: list[Sequence] = []
        for sequence in list(self.running):
            while sequence in self.running and not self.blocks.grow(sequence, sequence.num_tokens):
                self._preempt(self.running[-1])
            if sequence in self.running:
                ready.append(sequence)
        if not ready:
            return None
        if len({sequence.plain for sequence in ready}) > 1:  # the two kinds take turns
            self._last_was_plain = not self._last_was_plain
            ready = [sequence for sequence in ready if sequence.plain == self._last_was_plain]
        return Batch("decode", tuple(ready), (1,) * len(ready))

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.blocks.release(sequence)
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1


def _pop_alike(unfinished: list[Sequence], company: list[Sequence]) -> Sequence | None:
    """Take the first of `unfinished` that is of the kind of its company."""
    for sequence in unfinished:
        if not company or sequence.plain == company[0].plain:
            unfinished.remove(sequence)
            return sequence
    return None
