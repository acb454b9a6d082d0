"""Random paged caches: contexts, block tables and pages, shared by the attention ops' `generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.ops.draws import draw

if TYPE_CHECKING:
    import torch

PAGE = 16
STALE = 1000.0
"""Factor on cache entries past the end of every context: whoever reads them is far off."""


def draw_contexts(batch: int, blocks: int, generator: torch.Generator, least: int = 1) -> torch.Tensor:
    """Return context lengths [batch] int32 in `least`..16*`blocks`; the first one ends in the last block.

    Mixes 1 token, whole pages and whole pages plus or minus one with uniform lengths.
    """
    import torch

    longest = blocks * PAGE

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    lengths = [pick(max(least, longest - PAGE + 1), longest)]
    for _ in range(batch - 1):
        page = pick(1, blocks) * PAGE
        special = (least, page, page - 1, page + 1, pick(1, longest), pick(1, longest))[pick(0, 5)]
        lengths.append(min(max(special, least), longest))
    return torch.tensor(lengths, dtype=torch.int32)


def draw_block_table(contexts: torch.Tensor, blocks: int, pages: int, generator: torch.Generator) -> torch.Tensor:
    """Return block_table [batch, blocks] int32: distinct random pages, padded with 0.

    Raises ValueError when `pages` cannot hold the contexts.
    """
    import torch

    counts = [-(-int(length) // PAGE) for length in contexts]
    if sum(counts) > pages:
        raise ValueError(f"contexts need {sum(counts)} pages but there are {pages}; use at least B*MB pages")
    shuffled = torch.randperm(pages, generator=generator).to(torch.int32)
    table = torch.zeros((len(counts), blocks), dtype=torch.int32)
    start = 0
    for row, count in enumerate(counts):
        table[row, :count] = shuffled[start : start + count]
        start += count
    return table


def slots_of(contexts: torch.Tensor, table: torch.Tensor, sequence: int, first: int) -> torch.Tensor:
    """Return the cache slots int64 of tokens `first`.. of a sequence: page * 16 + offset."""
    import torch

    tokens = torch.arange(first, int(contexts[sequence]))
    return table[sequence].long()[tokens // PAGE] * PAGE + tokens % PAGE


def draw_cache(
    contexts: torch.Tensor, table: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator, distribution: str
) -> torch.Tensor:
    """Return a cache `shape` = [pages, 16, heads, dim] float32 filled with `distribution` where contexts live."""
    import torch

    cache = draw(shape, generator, distribution)
    flat = cache.view(shape[0] * shape[1], *shape[2:])
    stale = torch.ones(flat.shape[0], dtype=torch.bool)
    for sequence in range(len(contexts)):
        stale[slots_of(contexts, table, sequence, 0)] = False
    flat[stale] = STALE * torch.randn(shape[2:], generator=generator)
    return cache
