"""Random lives of requests, step by step: at every moment each page is empty, known, or owned by those who hold it."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernelwright.engine.blocks import BlockManager
from kernelwright.engine.scheduler import Scheduler
from kernelwright.engine.sequence import SamplingParams, Sequence


class Requests(RuleBasedStateMachine):
    """Scheduler and BlockManager as the engine uses them; what is in a page is known to the test."""

    @initialize(pages=st.integers(4, 12), seqs=st.integers(1, 4), budget=st.integers(5, 60), prefix_cache=st.booleans())
    def begin(self, pages: int, seqs: int, budget: int, prefix_cache: bool) -> None:
        self.blocks = BlockManager(pages, prefix_cache)
        self.scheduler = Scheduler(self.blocks, seqs, budget)
        self.alive: list[Sequence] = []
        self.names = 0
        self.era = 0
        """Counts changes of kernels."""
        self.content: dict[int, list[object]] = {}
        """Page → for each of its tokens (all tokens so far, era, plain)."""

    @rule(kind=st.integers(0, 1), length=st.sampled_from((1, 15, 16, 17, 33, 40, 47, 60)))
    def add(self, kind: int, length: int) -> None:
        if length >= self.blocks.num_pages * 16:
            return
        self.names += 1
        sequence = Sequence(str(self.names), [kind] * length, length, SamplingParams())
        self.alive.append(sequence)
        self.scheduler.add(sequence)
        self.step([kind] * 8)  # or most of the lives would be spent waiting

    @rule(draw=st.lists(st.integers(0, 1), min_size=8, max_size=8))
    def step(self, draw: list[int]) -> None:
        batch = self.scheduler.schedule()
        if batch is None:
            return
        assert len({s.plain for s in batch.sequences}) == 1, "one plan, one kind"
        for sequence, count in zip(batch.sequences, batch.counts, strict=True):
            for at in range(sequence.num_computed, sequence.num_computed + count):
                held = self.content.setdefault(sequence.pages[at // 16], [None] * 16)
                held[at % 16] = (tuple(sequence.token_ids[: at + 1]), self.era, sequence.plain)
            sequence.num_computed += count
            self.blocks.note(sequence)
        for number, sequence in enumerate(batch.sequences):
            if sequence.num_pending:
                continue
            sequence.token_ids.append(draw[number % 8])
            if sequence.num_tokens >= self.blocks.num_pages * 16:
                self._end(sequence)

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 99))
    def abort(self, which: int) -> None:
        self._end(self.alive[which % len(self.alive)])

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 99))
    def preempt(self, which: int) -> None:
        self.scheduler.restart(self.alive[which % len(self.alive)])

    @precondition(lambda self: any(not s.plain for s in self.alive))
    @rule(which=st.integers(0, 99), keep=st.integers(0, 30))
    def retry(self, which: int, keep: int) -> None:
        able = [s for s in self.alive if not s.plain]
        sequence = able[which % len(able)]
        self.scheduler.restart(sequence)
        sequence.cut(min(keep, sequence.num_generated))
        sequence.plain = True

    @rule(change=st.sampled_from(("kernels", "cache", *[""] * 4)))
    def upset(self, change: str) -> None:
        if change == "kernels":
            self.era += 1
            self.scheduler.restart_all()
        if change:
            self.blocks.forget()

    def _end(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self.alive.remove(sequence)

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        if not hasattr(self, "blocks"):
            return
        count, blocks = self.blocks.count_pages(), self.blocks
        assert count.free + count.cached + count.owned == blocks.num_pages
        assert count.free + count.cached == blocks.num_free
        held = Counter(page for sequence in self.alive for page in sequence.pages)
        assert count.references == held.total() and count.owned == len(held)
        assert all(blocks._owners[page] == held[page] for page in range(blocks.num_pages))
        assert not set(blocks._empty) & (set(held) | set(blocks._idle)) and not set(blocks._idle) & set(held)
        assert {page: key for key, page in blocks._page_of.items()} == blocks._key_of
        assert set(blocks._idle) <= set(blocks._key_of)

    @invariant()
    def what_a_sequence_holds_is_its_own_by_its_own_kernels(self) -> None:
        for sequence in getattr(self, "alive", ()):
            assert sequence in self.scheduler.running or not sequence.pages
            for at in range(sequence.num_computed):
                expected = (tuple(sequence.token_ids[: at + 1]), self.era, sequence.plain)
                assert self.content[sequence.pages[at // 16]][at % 16] == expected

    def teardown(self) -> None:
        for sequence in list(getattr(self, "alive", ())):
            self._end(sequence)
        if hasattr(self, "blocks"):
            self.blocks.forget()
            assert self.blocks.count_pages().free == self.blocks.num_pages


Requests.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestRequests = Requests.TestCase
