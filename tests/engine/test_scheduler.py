"""Every request is computed whole, in any order of arrival and with any number of pages that can hold it alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.engine.blocks import BlockManager
from kernelwright.engine.scheduler import Batch, Scheduler
from kernelwright.engine.sequence import SamplingParams, Sequence


def request(name: str, prompt: int) -> Sequence:
    return Sequence(name, list(range(prompt)), prompt, SamplingParams())


def compute(batch: Batch) -> list[Sequence]:
    """Do what the engine does with a batch; return the sequences that got a token."""
    for sequence, count in zip(batch.sequences, batch.counts, strict=True):
        assert len(sequence.pages) * 16 >= sequence.num_computed + count, "computed without pages"
        sequence.num_computed += count
    done = [sequence for sequence in batch.sequences if sequence.num_pending == 0]
    for sequence in done:
        sequence.token_ids.append(7)
    return done


def test_prefill_goes_first_and_prompts_share_a_step() -> None:
    scheduler = Scheduler(BlockManager(64), max_num_seqs=3, token_budget=50)
    for index in range(4):
        scheduler.add(request(str(index), 20))
    first = scheduler.schedule()
    assert first is not None and (first.phase, first.counts) == ("prefill", (20, 20, 10))
    compute(first)
    rest = scheduler.schedule()
    assert rest is not None and (rest.phase, rest.counts) == ("prefill", (10,)), "the fourth waits for a place"
    compute(rest)
    decode = scheduler.schedule()
    assert decode is not None and (decode.phase, decode.counts) == ("decode", (1, 1, 1))
    scheduler.remove(decode.sequences[1])
    joined = scheduler.schedule()
    assert joined is not None and joined.phase == "prefill" and joined.sequences[0].request_id == "3"


def test_a_prompt_over_the_budget_goes_in_chunks() -> None:
    scheduler = Scheduler(BlockManager(64), max_num_seqs=4, token_budget=16)
    scheduler.add(request("long", 40))
    counts = []
    while (batch := scheduler.schedule()) and batch.phase == "prefill":
        counts.append(batch.counts)
        compute(batch)
    assert counts == [(16,), (16,), (8,)]


def test_the_youngest_gives_way_and_is_computed_again() -> None:
    blocks = BlockManager(5)
    scheduler = Scheduler(blocks, max_num_seqs=4, token_budget=64)
    old, young = request("old", 30), request("young", 20)
    scheduler.add(old)
    scheduler.add(young)
    compute(scheduler.schedule())  # type: ignore[arg-type]
    while scheduler.num_preemptions == 0:
        batch = scheduler.schedule()
        assert batch is not None
        compute(batch)
    assert scheduler.running == [old] and list(scheduler.waiting) == [young]
    assert young.num_computed == 0 and young.pages == []
    scheduler.remove(old)
    again = scheduler.schedule()
    assert again is not None and again.phase == "prefill"
    assert again.counts == (young.num_tokens,), "prompt and generated tokens are computed again"


def test_nothing_to_do_is_none_and_an_aborted_request_leaves_no_trace() -> None:
    blocks = BlockManager(4)
    scheduler = Scheduler(blocks, max_num_seqs=2, token_budget=64)
    waiting = request("a", 10)
    scheduler.add(waiting)
    scheduler.remove(waiting)
    assert scheduler.schedule() is None and blocks.num_free == 4


@given(
    shapes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=8),
    pages=st.integers(8, 20),
    seqs=st.integers(1, 5),
    budget=st.integers(1, 100),
)
def test_all_requests_end_and_all_pages_come_back(
    shapes: list[tuple[int, int]], pages: int, seqs: int, budget: int
) -> None:
    blocks = BlockManager(pages)
    scheduler = Scheduler(blocks, seqs, budget)
    wanted = {}
    for index, (prompt, new) in enumerate(shapes):
        scheduler.add(request(str(index), prompt))
        wanted[str(index)] = new
    for _ in range(20_000):
        batch = scheduler.schedule()
        if batch is None:
            break
        assert batch.num_tokens <= max(budget, seqs) and len(batch.sequences) <= seqs
        for sequence in compute(batch):
            if sequence.num_generated == wanted[sequence.request_id]:
                del wanted[sequence.request_id]
                scheduler.remove(sequence)
    assert not wanted and blocks.num_free == pages
