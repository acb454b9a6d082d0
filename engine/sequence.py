"""Sequence: one request on its way through the engine, and what it asks for and gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    import torch

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a request asks of the sampler. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off; `logprobs` is the
    number of alternatives reported per token (0: the chosen one alone), None for none. Raises WrongUse out of range.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        checks = {
            "max_tokens must be at least 1": self.max_tokens >= 1,
            "temperature must be a number from 0 to 100": 0.0 <= self.temperature <= 100.0,
            "top_k must be 0 (off) or more": self.top_k >= 0,
            "top_p must be above 0 and at most 1": 0.0 < self.top_p <= 1.0,
            "logprobs must be from 0 to 20": self.logprobs is None or 0 <= self.logprobs <= 20,
            "seed must fit in 64 bits": self.seed is None or -(2**63) <= self.seed < 2**63,
        }
        for text, holds in checks.items():
            if not holds:
                raise WrongUse(text, "Change the request")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probabilities under the model's own distribution, before temperature and truncation."""

    logprob: float
    top: tuple[tuple[int, float], ...]
    """(token id, log-probability), best first."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One token of one request; `finish_reason` is set on the last. `token_id` is None when it ended without one."""

    request_id: str
    token_id: int | None
    finish_reason: FinishReason | None = None
    logprob: TokenLogprob | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens of a request, the pages that hold their keys and values, and how many of them are computed."""

    request_id: str
    token_ids: list[int]
    """Prompt, then generated tokens."""
    num_prompt: int
    params: SamplingParams
    pages: list[int] = field(default_factory=list)
    num_computed: int = 0
    """Tokens whose keys and values are in the cache; 0 again after a preemption."""
    generator: torch.Generator | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens still to compute; 1 in steady decode, more in prefill."""
        return len(self.token_ids) - self.num_computed
