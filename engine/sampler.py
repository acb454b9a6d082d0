"""Sampler: logits to tokens. Greedy rows are one argmax together; the rest are drawn one by one, by their own seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.engine.sequence import Sequence, TokenLogprob


@dataclass(frozen=True, slots=True)
class Sampled:
    """`token_id` is None when the row's logits were not finite: a broken kernel must not speak."""

    token_id: int | None
    logprob: TokenLogprob | None = None


def sample(logits: Tensor, sequences: Rows[Sequence]) -> list[Sampled]:
    """Choose the next token of each sequence from its row of `logits` [sequences, vocab] float32."""
    best, greedy = logits.max(dim=-1)
    finite, tokens = torch.isfinite(best).tolist(), greedy.tolist()
    sampled = []
    for row, sequence in enumerate(sequences):
        if not finite[row]:
            sampled.append(Sampled(token_id=None))
            continue
        token = tokens[row] if _is_plain(sequence) else _choose(logits[row], sequence)
        wanted = sequence.params.logprobs
        sampled.append(Sampled(token, None if wanted is None else token_logprob(logits[row], token, wanted)))
    return sampled


def token_logprob(logits: Tensor, token_id: int, num_top: int) -> TokenLogprob:
    """Return the log-probability of `token_id` and of the `num_top` most likely tokens under `logits` [vocab]."""
    logprobs = logits - logits.logsumexp(dim=-1)
    values, indices = logprobs.topk(num_top)
    return TokenLogprob(float(logprobs[token_id]), tuple(zip(indices.tolist(), values.tolist(), strict=True)))


def seeded_generator(seed: int | None) -> torch.Generator:
    """Return a generator of a request's own, so that its draws do not depend on who else is in the batch."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def _is_plain(sequence: Sequence) -> bool:
    return sequence.params.temperature == 0 and not sequence.params.changes_logits and sequence.constraint is None


def _choose(logits: Tensor, sequence: Sequence) -> int:
    if sequence.params.changes_logits:
        logits = penalise(logits, sequence)
    if sequence.constraint is not None:
        logits = sequence.constraint.mask(logits, sequence.generated)
    return int(logits.argmax()) if sequence.params.temperature == 0 else _draw(logits, sequence)


def penalise(logits: Tensor, sequence: Sequence) -> Tensor:
    """Return `logits` [vocab] with the bias and the penalties that `sequence` asks for.

    Repetition divides a positive logit and multiplies a negative one (Keskar et al. 2019); frequency takes off for each
    time a token was generated, presence once.
    """
    params, changed = sequence.params, logits.clone()
    for token, bias in params.logit_bias:
        changed[token] += bias
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(sequence.token_ids)))
        values = changed[seen]
        factor = params.repetition_penalty
        changed[seen] = torch.where(values > 0, values / factor, values * factor)
    generated = sequence.token_ids[sequence.num_prompt :]
    if generated and (params.frequency_penalty or params.presence_penalty):
        counts = Counter(generated)
        spent = params.frequency_penalty * torch.tensor(list(counts.values())) + params.presence_penalty
        changed[torch.tensor(list(counts))] -= spent
    return changed


def _draw(logits: Tensor, sequence: Sequence) -> int:
    params = sequence.params
    if sequence.generator is None:
        sequence.generator = seeded_generator(params.seed)
    scaled, indices = logits / params.temperature, None
    if 0 < params.top_k < scaled.numel():
        scaled, indices = scaled.topk(params.top_k)
    elif params.top_p < 1.0:
        scaled, indices = scaled.sort(descending=True)
    probabilities = torch.softmax(scaled, dim=-1)
    if params.min_p > 0.0:
        probabilities[probabilities < params.min_p * probabilities.max()] = 0.0
        probabilities /= probabilities.sum()
    if params.top_p < 1.0:
        # keep the smallest set that reaches top_p: a token stays while the mass before it is short of it
        probabilities[probabilities.cumsum(dim=-1) - probabilities >= params.top_p] = 0.0
    drawn = int(torch.multinomial(probabilities, 1, generator=sequence.generator))
    return drawn if indices is None else int(indices[drawn])
