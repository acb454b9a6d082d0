"""The sampler draws what the request asked for, reproducibly, and refuses to speak from broken logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelwright.engine.sampler import penalise, sample, token_logprob
from kernelwright.engine.sequence import SamplingParams, Sequence
from kernelwright.profiles.errors import WrongUse


def request(**params: Any) -> Sequence:
    return Sequence("s", [1], 1, SamplingParams(**params))


def draw(logits: torch.Tensor, count: int, **params: Any) -> list[int | None]:
    sequence = request(**params)
    return [sample(logits.unsqueeze(0), [sequence])[0].token_id for _ in range(count)]


def test_greedy_rows_take_the_best_each() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])
    assert [s.token_id for s in sample(logits, [request(), request()])] == [1, 0]


def test_a_seed_repeats_and_does_not_depend_on_the_neighbours() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    alone = draw(logits[1], 20, temperature=1.0, seed=5)
    rows = [request(temperature=1.0, seed=1), request(temperature=1.0, seed=5), request()]
    together = [sample(logits, rows)[1].token_id for _ in range(20)]
    assert alone == together
    assert alone != draw(logits[1], 20, temperature=1.0, seed=6)
    assert draw(logits[1], 20, temperature=1.0) != draw(logits[1], 20, temperature=1.0), "no seed, no repetition"


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = torch.tensor(draw(probabilities.log(), 4000, temperature=1.0, seed=3))
    found = torch.bincount(drawn, minlength=4) / 4000
    # four standard deviations of a share of one half
    assert (found - probabilities).abs().max() < 4 * math.sqrt(0.25 / 4000)
    sharper = torch.bincount(torch.tensor(draw(probabilities.log(), 2000, temperature=0.5, seed=3)), minlength=4) / 2000
    assert sharper[0] > 0.6, "a lower temperature sharpens"


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 1}, {3}),
        ({"top_p": 0.4}, {3}),
        ({"top_p": 0.7}, {1, 3}),
        ({"top_p": 0.85}, {1, 3, 0}),
        ({"top_k": 3, "top_p": 0.5}, {3}),
        ({"top_k": 3, "top_p": 0.6}, {3, 1}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"min_p": 0.25}, {3, 1, 0}),
        ({"min_p": 0.61}, {3}),
        ({"min_p": 0.25, "top_k": 2}, {3, 1}),
        ({"logit_bias": ((2, 100.0),)}, {2}),
        ({"logit_bias": ((3, -100.0), (1, -100.0))}, {0, 2}),
    ],
)
def test_truncation_keeps_the_right_tokens(params: dict[str, Any], allowed: set[int]) -> None:
    logits = torch.tensor([0.15, 0.3, 0.05, 0.5]).log()
    assert set(draw(logits, 400, temperature=1.0, seed=0, **params)) == allowed


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"frequency_penalty": 0.5}, [3.0, -1.0, 2.0 - 0.5, 1.0 - 2 * 0.5]),
        ({"presence_penalty": 0.5}, [3.0, -1.0, 2.0 - 0.5, 1.0 - 0.5]),
        ({"frequency_penalty": 1.0, "presence_penalty": -0.25}, [3.0, -1.0, 1.25, -0.75]),
        ({"repetition_penalty": 2.0}, [1.5, -2.0, 1.0, 0.5]),
        ({"logit_bias": ((1, 4.0), (0, -1.0))}, [2.0, 3.0, 2.0, 1.0]),
        ({"logit_bias": ((3, 1.0),), "repetition_penalty": 2.0, "presence_penalty": 1.0}, [1.5, -2.0, 0.0, 0.0]),
    ],
)
def test_penalties_follow_their_formulas(params: dict[str, Any], expected: list[float]) -> None:
    """The prompt is tokens 0 and 1; 3, 2 and 3 were generated."""
    sequence = Sequence("s", [0, 1, 3, 2, 3], 2, SamplingParams(**params))
    logits = torch.tensor([3.0, -1.0, 2.0, 1.0])
    assert penalise(logits, sequence).tolist() == pytest.approx(expected)
    assert logits.tolist() == [3.0, -1.0, 2.0, 1.0], "others read them, too"
    assert sample(logits[None], [sequence])[0].token_id == expected.index(max(expected))


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = torch.randn(40, generator=torch.Generator().manual_seed(1))
    found = sample(logits.unsqueeze(0), [request(temperature=0.1, seed=1, logprobs=3)])[0]
    exact = torch.log_softmax(logits.double(), dim=-1)
    assert found.logprob is not None and found.token_id is not None
    assert found.logprob.logprob == pytest.approx(float(exact[found.token_id]), abs=1e-5)
    assert [i for i, _ in found.logprob.top] == exact.topk(3).indices.tolist()
    assert token_logprob(logits, 0, 0).top == ()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_give_no_token(bad: float) -> None:
    logits = torch.zeros(2, 5)
    logits[0, 3] = bad
    found = sample(logits, [request(), request(temperature=1.0, seed=0)])
    assert found[0].token_id is None and found[1].token_id is not None


@pytest.mark.parametrize(
    "params",
    [
        {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0},
        {"top_p": 1.1}, {"logprobs": 21}, {"seed": 2**63}, {"min_p": 1.1}, {"min_p": float("nan")},
        {"presence_penalty": 2.1}, {"frequency_penalty": -2.1}, {"repetition_penalty": 0.0},
        {"logit_bias": ((1, 101.0),)}, {"logit_bias": ((1, float("nan")),)},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(WrongUse):
        SamplingParams(**params)
