"""All pages come back; those that hold the same beginning are shared, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.engine.blocks import BlockManager, pages_for
from kernelwright.engine.sequence import SamplingParams, Sequence


def sequence(num_tokens: int = 1) -> Sequence:
    return Sequence("s", [0] * num_tokens, num_tokens, SamplingParams())


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert pages_for(tokens) == pages


def test_growth_that_does_not_fit_changes_nothing() -> None:
    blocks, first, second = BlockManager(4), sequence(), sequence()
    assert blocks.grow(first, 40) and len(first.pages) == 3
    assert not blocks.grow(second, 17)
    assert second.pages == [] and blocks.num_free == 1
    assert blocks.grow(first, 48) and len(first.pages) == 3, "the last page had room"


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 90), st.booleans()), max_size=60))
def test_no_page_is_shared_or_lost(steps: list[tuple[int, int, bool]]) -> None:
    blocks, owners = BlockManager(12), [sequence() for _ in range(5)]
    for owner, tokens, release in steps:
        if release:
            blocks.release(owners[owner])
        else:
            blocks.grow(owners[owner], tokens)
        held = [page for one in owners for page in one.pages]
        assert len(held) == len(set(held))
        assert len(held) + blocks.num_free == 12
    for one in owners:
        blocks.release(one)
    assert blocks.num_free == 12


def prompt(*tokens: int) -> Sequence:
    return Sequence("s", list(tokens), len(tokens), SamplingParams())


def compute(blocks: BlockManager, sequence: Sequence) -> None:
    """Do with a new sequence what scheduler and engine do: adopt, grow, compute all of it, note."""
    blocks.adopt(sequence)
    assert blocks.grow(sequence, sequence.num_tokens)
    blocks.count(sequence)
    sequence.num_computed = sequence.num_tokens
    blocks.note(sequence)


def test_a_beginning_is_found_page_by_page_and_the_last_token_is_left() -> None:
    blocks = BlockManager(12)
    first = prompt(*range(40))
    compute(blocks, first)
    same, longer, other = prompt(*range(32)), prompt(*range(60)), prompt(99, *range(1, 40))
    for sequence, found in ((same, 16), (longer, 32), (other, 0)):
        blocks.adopt(sequence)
        assert sequence.num_computed == found and sequence.pages == first.pages[: found // 16]
    assert blocks.num_known == 2


def test_a_page_depends_on_all_before_it() -> None:
    blocks = BlockManager(12)
    compute(blocks, prompt(*[1] * 16, *[2] * 16, 0))
    swapped = prompt(*[2] * 16, *[1] * 16, 0)
    blocks.adopt(swapped)
    assert swapped.pages == []


def test_what_nobody_owns_stays_until_its_room_is_needed_the_end_of_the_oldest_first() -> None:
    blocks = BlockManager(5)
    old, new = prompt(*range(33)), prompt(*range(100, 117))
    for sequence in (old, new):
        compute(blocks, sequence)
        blocks.release(sequence)
    assert (blocks.num_free, blocks.num_known) == (5, 3)
    big = prompt(*[7] * 48)
    compute(blocks, big)
    again_old, again_new = prompt(*range(33)), prompt(*range(100, 117))
    blocks.adopt(again_old)
    blocks.adopt(again_new)
    assert (again_old.num_computed, again_new.num_computed) == (16, 16)


def test_two_that_compute_the_same_at_once_keep_one_page_of_it() -> None:
    blocks = BlockManager(8)
    twins = [prompt(*range(20)), prompt(*range(20))]
    for twin in twins:
        assert blocks.grow(twin, 20)
        twin.num_computed = 20
        blocks.note(twin)
    assert blocks.num_known == 1
    for twin in twins:
        blocks.release(twin)
    assert blocks.num_free == 8


def test_forgotten_pages_are_found_by_nobody_and_all_come_back() -> None:
    blocks = BlockManager(8)
    running, ended = prompt(*range(20)), prompt(*range(50, 70))
    compute(blocks, running)
    compute(blocks, ended)
    blocks.release(ended)
    assert blocks.forget() == 2 and blocks.num_known == 0
    running.token_ids += list(range(20, 40))
    assert blocks.grow(running, 40)
    running.num_computed = 40
    blocks.note(running)  # goes on from what the old kernels computed
    fresh = prompt(*range(40))
    blocks.adopt(fresh)
    assert fresh.pages == []
    blocks.release(running)
    assert blocks.num_free == 8


def test_switched_off_nothing_is_found() -> None:
    blocks = BlockManager(8, prefix_cache=False)
    compute(blocks, prompt(*range(40)))
    again = prompt(*range(40))
    blocks.adopt(again)
    assert again.pages == [] and blocks.num_known == 0


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), min_size=1, max_size=4), st.sampled_from("crf")),
        max_size=40,
    )
)
def test_shared_pages_hold_what_their_owners_hold(steps: list[tuple[int, list[int], str]]) -> None:
    """Against a plain model: what each page holds is known to the test, and read back through every owner."""
    blocks, held, content = BlockManager(10), dict[int, Sequence](), dict[int, tuple[int, ...]]()
    for who, kinds, what in steps:
        if what == "f":
            blocks.forget()
        elif who in held:
            blocks.release(held.pop(who))
        else:
            sequence = prompt(*[kind for kind in kinds for _ in range(16)], 5)
            blocks.adopt(sequence)
            found = sequence.num_computed
            if not blocks.grow(sequence, sequence.num_tokens):
                blocks.release(sequence)
                continue
            held[who] = sequence
            for index, page in enumerate(sequence.pages):
                tokens = tuple(sequence.token_ids[: 16 * (index + 1)])
                assert index * 16 >= found or content[page] == tokens, "a page that was found holds something else"
                content[page] = tokens
            sequence.num_computed = sequence.num_tokens
            blocks.note(sequence)
        owned = {page for sequence in held.values() for page in sequence.pages}
        assert len(owned) + blocks.num_free == 10
        for sequence in held.values():
            for index, page in enumerate(sequence.pages):
                assert content[page] == tuple(sequence.token_ids[: 16 * (index + 1)]), "somebody wrote to a shared page"
    for sequence in held.values():
        blocks.release(sequence)
    assert blocks.num_free == 10
