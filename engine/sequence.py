"""Sequence: one request on its way through the engine, and what it asks for and gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    import torch

    from kernelwright.engine.constraint import Constraint

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a request asks of the sampler. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off; `logprobs` is the
    number of alternatives reported per token (0: the chosen one alone), None for none. Raises WrongUse out of range.

    `min_p` keeps tokens at least so probable as that share of the most probable one. Presence and frequency penalties
    are of the tokens generated so far, the repetition penalty of those of the prompt, too; `logit_bias` holds (token,
    what is added to its logit). They are applied before temperature, in this order: bias, repetition, frequency,
    presence, as vLLM does.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
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
            "min_p must be from 0 to 1": 0.0 <= self.min_p <= 1.0,
            "presence_penalty must be from -2 to 2": -2.0 <= self.presence_penalty <= 2.0,
            "frequency_penalty must be from -2 to 2": -2.0 <= self.frequency_penalty <= 2.0,
            "repetition_penalty must be above 0 and at most 100": 0.0 < self.repetition_penalty <= 100.0,
            "logit_bias must be from -100 to 100": all(-100.0 <= bias <= 100.0 for _, bias in self.logit_bias),
            "logprobs must be from 0 to 20": self.logprobs is None or 0 <= self.logprobs <= 20,
            "seed must fit in 64 bits": self.seed is None or -(2**63) <= self.seed < 2**63,
        }
        for text, holds in checks.items():
            if not holds:
                raise WrongUse(text, "Change the request")

    @property
    def changes_logits(self) -> bool:
        """Whether logits are changed before a token is chosen, be it greedily."""
        penalised = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return bool(penalised or self.logit_bias)


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
    num_cached: int = 0
    """Tokens of the prompt that were found computed."""


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
    """Tokens whose keys and values are in its pages; after a preemption those that are found again."""
    num_noted: int = 0
    """Computed tokens in full pages that the cache knows."""
    num_cached: int = 0
    """Tokens of the prompt that were found computed when it was admitted first."""
    page_keys: list[bytes] = field(default_factory=list)
    """Names of the contents of its full pages, as far as they were asked for."""
    generator: torch.Generator | None = None
    constraint: Constraint | None = None
    """What it may say, where it may not say anything."""
    plain: bool = False
    """Whether the incumbents alone compute it. It shares no page with those that kernels of a pack compute."""

    def cut(self, num_generated: int) -> None:
        """Drop the generated tokens after the first `num_generated`; what was computed must be released before."""
        del self.token_ids[self.num_prompt + num_generated :]
        self.page_keys.clear()

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def generated(self) -> list[int]:
        return self.token_ids[self.num_prompt :]

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens still to compute; 1 in steady decode, more in prefill."""
        return len(self.token_ids) - self.num_computed
