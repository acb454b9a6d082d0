"""Pages have one owner at a time and all come back."""

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
