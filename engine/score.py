"""Score forced tokens: the logits of a given text, through prefill or the decode path, for the gate to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.engine.blocks import BlockManager
from kernelwright.engine.scheduler import Batch
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.sequence import Sequence as Request

if TYPE_CHECKING:
    from torch import Tensor

Row = tuple[int, int, "Tensor"]
"""(sequence, position of the token these follow, logits [vocab] or hidden states [layers · H], float32)."""
Run = Callable[[Batch, bool], "Tensor"]
"""(batch, whether a row is wanted for every token) → [rows, vocab or layers · H] float32."""


@dataclass(frozen=True, slots=True)
class ForcedSequence:
    """A prompt and the tokens that follow it, whatever the model would have said."""

    prompt: tuple[int, ...]
    forced: tuple[int, ...] = ()


def score_prefill(sequences: Sequence[ForcedSequence], run: Run, blocks: BlockManager, budget: int) -> Iterator[Row]:
    """Yield the logits after each prompt token; one sequence at a time, `budget` tokens a step at most."""
    for index, sequence in enumerate(sequences):
        request = _request(sequence)
        try:
            blocks.grow(request, request.num_tokens)
            while request.num_pending:
                first = request.num_computed
                count = min(request.num_pending, budget)
                logits = run(Batch("prefill", (request,), (count,)), True)
                for offset in range(count):
                    yield index, first + offset, logits[offset]
        finally:
            blocks.release(request)


def score_decode(sequences: Sequence[ForcedSequence], run: Run, blocks: BlockManager, budget: int) -> Iterator[Row]:
    """Yield the logits after each forced token; all sequences that still have one take a step together."""
    requests = [_request(sequence) for sequence in sequences]
    try:
        for request, sequence in zip(requests, sequences, strict=True):
            blocks.grow(request, request.num_tokens + len(sequence.forced))
            while request.num_pending:
                run(Batch("prefill", (request,), (min(request.num_pending, budget),)), False)
        for turn in range(max((len(sequence.forced) for sequence in sequences), default=0)):
            active = [i for i, sequence in enumerate(sequences) if turn < len(sequence.forced)]
            for i in active:
                requests[i].token_ids.append(sequences[i].forced[turn])
            batch = tuple(requests[i] for i in active)
            logits = run(Batch("decode", batch, (1,) * len(active)), False)
            for row, i in enumerate(active):
                yield i, len(sequences[i].prompt) + turn, logits[row]
    finally:
        for request in requests:
            blocks.release(request)


def _request(sequence: ForcedSequence) -> Request:
    return Request("score", list(sequence.prompt), len(sequence.prompt), SamplingParams())
