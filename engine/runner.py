"""ModelRunner: turns a Batch into index tensors, runs the forward pass by the plan of its bucket, returns logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from kernelwright.engine.blocks import pages_for
from kernelwright.engine.config import PAGE_SIZE, ModelConfig
from kernelwright.engine.decoder import DecoderWeights, StepInputs, forward
from kernelwright.engine.dispatch import Dispatch
from kernelwright.engine.scheduler import Batch
from kernelwright.engine.shadow import Checks, Shadow

if TYPE_CHECKING:
    from torch import Tensor

What = Literal["logits", "hidden"]


def make_caches(config: ModelConfig, num_pages: int) -> list[tuple[Tensor, Tensor]]:
    """Return per layer the (k, v) caches, [num_pages, 16, HKV, D] float32 each, all zero."""
    shape = (num_pages, PAGE_SIZE, config.num_kv_heads, config.head_dim)
    # numpy's zeros are untouched zero pages of the system: a page costs memory once a token is written to it
    return [
        (torch.from_numpy(np.zeros(shape, np.float32)), torch.from_numpy(np.zeros(shape, np.float32)))
        for _ in range(config.num_layers)
    ]


class ModelRunner:
    def __init__(self, weights: DecoderWeights, dispatch: Dispatch, shadow: Shadow) -> None:
        self._shadow = shadow
        self._weights = weights
        self._dispatch = dispatch
        self._eps = weights.config.eps

    @torch.inference_mode()
    def run(self, batch: Batch, all_rows: bool = False, checks: Checks = "none", what: What = "logits") -> Tensor:
        """Compute the batch's tokens and mark them computed; return logits [rows, vocab] float32.

        One row for each sequence that has no token left to compute, in the batch's order; with `all_rows`, one for each
        token of the step. `checks`: which calls of kernels are compared with the reference, see shadow.py. `what`
        hidden gives [rows, layers · H] instead: the residual stream behind every layer.
        """
        step = make_inputs(batch, all_rows)
        tokens = batch.num_tokens
        rows = tokens if step.rows is None else step.rows.numel()
        blocks = step.attention[0].shape[1]
        plain = batch.sequences[0].plain
        plan = self._dispatch.plan(batch.phase, tokens, rows, len(batch.sequences), blocks, plain)
        layers, head_calls = self._shadow.over(plan, batch.phase, checks)
        states: list[Tensor] | None = [] if what == "hidden" else None
        x, residual = forward(layers, step, self._weights.embed(step.token_ids), self._eps, states)
        plan.runs += 1
        for sequence, count in zip(batch.sequences, batch.counts, strict=True):
            sequence.num_computed += count
        if states is not None:
            behind = torch.cat(states, dim=1)
            return behind if step.rows is None else behind.index_select(0, step.rows)
        if not head_calls:
            return torch.empty((0, self._weights.config.vocab))
        if step.rows is not None:
            x, residual = x.index_select(0, step.rows), residual.index_select(0, step.rows)
        final_norm, head = head_calls
        normed, _ = final_norm(x, residual, self._eps)
        (logits,) = head(normed)
        return logits


def make_inputs(batch: Batch, all_rows: bool = False) -> StepInputs:
    """Return the index tensors of a step; layouts are those of docs/architecture.md, section "Slots"."""
    ends = [s.num_computed + count for s, count in zip(batch.sequences, batch.counts, strict=True)]
    table = np.zeros((len(ends), pages_for(max(ends))), np.int32)
    tokens: list[int] = []
    positions = np.empty(batch.num_tokens, np.int64)
    slots = np.empty(batch.num_tokens, np.int64)
    starts = np.zeros(len(ends) + 1, np.int32)
    rows = []
    for index, (sequence, end) in enumerate(zip(batch.sequences, ends, strict=True)):
        first, start = sequence.num_computed, int(starts[index])
        stop = starts[index + 1] = start + end - first
        used = pages_for(end)
        table[index, :used] = sequence.pages[:used]
        tokens += sequence.token_ids[first:end]
        positions[start:stop] = span = np.arange(first, end)
        slots[start:stop] = table[index, span // PAGE_SIZE].astype(np.int64) * PAGE_SIZE + span % PAGE_SIZE
        if end == sequence.num_tokens:
            rows.append(int(stop) - 1)
    attention: tuple[Tensor, ...] = (torch.from_numpy(table), torch.tensor(ends, dtype=torch.int32))
    if batch.phase == "prefill":
        attention = (*attention, torch.from_numpy(starts))
    # in decode every row is a last row: nothing to select
    everything = all_rows or len(rows) == batch.num_tokens
    return StepInputs(
        token_ids=torch.tensor(tokens, dtype=torch.int64),
        positions=torch.from_numpy(positions),
        slot_mapping=torch.from_numpy(slots),
        attention=attention,
        rows=None if everything else torch.tensor(rows, dtype=torch.int64),
    )
