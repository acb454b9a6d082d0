"""Constraint: what a request may still say, by a grammar. Compiled beside the engine's steps, applied within them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 32
"""Compiled grammars that are kept for the next request with the same one."""
_LONGEST_TOKEN = 64
"""Bytes looked at in a greedy cut; it only has to be right, not short."""


class TokenText(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class Constraint:
    """One request's place in its grammar. It follows the request's tokens, also when some are taken back."""

    def __init__(self, fresh: LLMatcher, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._fresh = fresh
        """At the beginning, always: a matcher that has failed cannot be set back."""
        self._matcher = fresh.deep_copy()
        self._vocab_size = vocab_size
        self._eos = torch.tensor(list(eos_ids), dtype=torch.long)
        self._followed: list[int] = []

    @property
    def has_failed(self) -> bool:
        """Whether the grammar cannot be followed any further: it grew beyond the library's limits."""
        return bool(self._matcher.is_error())

    @property
    def has_ended(self) -> bool:
        """Whether nothing may follow but the end of the text."""
        return bool(self._matcher.is_stopped())

    def follow(self, generated: Sequence[int]) -> None:
        """Take note that `generated` are the request's tokens now. A token the grammar forbids makes it fail."""
        known = len(self._followed)
        if list(generated[:known]) != self._followed:
            self._matcher = self._fresh.deep_copy()
            known = 0
        fresh = list(generated[known:])
        if fresh:
            self._matcher.consume_tokens(fresh)
        self._followed = list(generated)

    def mask(self, logits: Tensor, generated: Sequence[int]) -> Tensor:
        """Return `logits` [vocab] with minus infinity at every token that may not follow `generated`.

        When the grammar has failed only the end of the text is left.
        """
        self.follow(generated)
        allowed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self.has_failed:
            masked = torch.full_like(logits, -torch.inf)
            masked[self._eos.to(logits.device)] = 0.0
            return masked
        bits = np.unpackbits(allowed, count=self._vocab_size, bitorder="little")
        return logits.masked_fill(torch.from_numpy(bits == 0).to(logits.device), -torch.inf)


class GrammarCompiler:
    """Turns grammars into constraints on a thread of its own. The tokenizer is read when the first one comes."""

    def __init__(self, text: TokenText, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._text = text
        self._vocab_size = vocab_size
        self._eos_ids = tuple(eos_ids)
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def compile(self, grammar: str) -> Future[Constraint]:
        """Return at once what will be a new constraint by `grammar`; its result raises WrongUse if it cannot be one."""
        return self._pool.submit(self._compile, grammar)

    def _compile(self, grammar: str) -> Constraint:
        from llguidance import LLMatcher

        matcher = self._kept.get(grammar)
        if matcher is None:
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
            if matcher.is_error():
                raise WrongUse(" ".join(matcher.get_error().split()), "Mend the schema or the grammar")
            self._kept[grammar] = matcher
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(grammar)
        return Constraint(matcher, self._vocab_size, self._eos_ids)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        if not self._eos_ids:
            raise WrongUse("this model names no token that ends a text", "Ask without a schema or a grammar")
        vocabulary = _Vocabulary(self._text, self._vocab_size, self._eos_ids)
        return LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=self._vocab_size, eos_token=list(self._eos_ids))


class _Vocabulary:
    """A tokenizer as llguidance asks for it: the bytes of every token, and which of them are no text."""

    def __init__(self, text: TokenText, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self.eos_token_id = eos_ids[0]
        self.bos_token_id = None
        self.tokens = [text.token_bytes(token) for token in range(vocab_size)]
        # two of each: some decoders drop the blank that a text begins with
        self.special_token_ids = [id for id, name in enumerate(self.tokens) if name and not text.decode([id, id])]
        self._text = text
        self._lead = text.encode("")
        special = set(self.special_token_ids)
        self._by_bytes = {name: id for id, name in enumerate(self.tokens) if name and id not in special}

    def __call__(self, text: Any) -> list[int]:
        """Return ids that are exactly `text`: where the tokenizer adds something, the longest matches."""
        if not isinstance(text, str):
            raise TypeError("text, not bytes")
        ids = self._text.encode(text)
        ids = ids[len(self._lead) :] if ids[: len(self._lead)] == self._lead else ids
        whole = text.encode()
        return ids if b"".join(self.tokens[id] for id in ids) == whole else self._cut(whole)

    def _cut(self, rest: bytes) -> list[int]:
        ids = []
        while rest:
            lengths = range(min(len(rest), _LONGEST_TOKEN), 0, -1)
            length = next((n for n in lengths if rest[:n] in self._by_bytes), 0)
            if not length:
                break  # bytes that no token stands for: the library fills in what is missing
            ids.append(self._by_bytes[rest[:length]])
            rest = rest[length:]
        return ids
