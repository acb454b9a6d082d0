"""What the guard does about an answer that collapses: count it, end it, or have the incumbents decode it again.

With `retry` a client must never see a beginning that is taken back. Tokens that have been sent stand; so those that may
be the start of a collapse are held back until they turn out to be none, and then sent together. The newest one is held
in any case, since a run of one token begins with it: an answer streams one token late. An answer that collapses is cut
to what was sent and goes on with the incumbents alone, once. If they do not collapse where the kernels did, that is
evidence against the kernels: it is counted as `mended` and told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.engine import wire
from kernelwright.engine.guard import Collapse, Guard

Retry = Callable[[str, int], list[int] | None]
"""(request, generated tokens to keep) → those tokens, or None when it cannot be retried."""


@dataclass(slots=True)
class _Answer:
    sent: int = 0
    """Tokens that the front end has."""
    held: list[wire.Token] = field(default_factory=list)
    said: int = 0
    """Tokens drawn and not taken back."""
    retried: Collapse | None = None
    """What it collapsed by before the incumbents took over."""
    collapsed_at: int = 0
    """Tokens it had then."""
    judged: bool = False


@dataclass(slots=True)
class Guarding:
    """Watches every token on its way out; `retry` and `abort` are the engine's."""

    guard: Guard
    retry: Retry
    abort: Callable[[str], None]
    say: Callable[[str], None] = lambda text: None
    _answers: dict[str, _Answer] = field(default_factory=dict)

    def pass_on(self, token: wire.Token) -> list[wire.Token]:
        """Return what is sent because `token` was drawn: it, others held before it, or nothing yet."""
        ended_without = token.token is None and token.finish != "error"
        collapse = None if ended_without else self.guard.observe(token.id, token.token)
        if self.guard.action != "retry":
            stops = collapse is not None and self.guard.action == "stop" and token.finish is None
            return [self._ended(token)] if stops else [token]
        answer = self._answers.setdefault(token.id, _Answer())
        answer.said += token.token is not None
        if collapse is not None and token.finish is None:
            return self._collapsed(token, answer, collapse)
        if token.finish is not None or answer.said > answer.collapsed_at:
            self._count(answer, "failed" if token.finish == "error" else "collapsed" if collapse else "mended")
        if token.finish is not None:
            return [*answer.held, token]
        answer.held.append(token)
        if self.guard.suspects(token.id):
            return []
        sent, answer.held = answer.held[:-1], answer.held[-1:]
        answer.sent += len(sent)
        return sent

    def forget(self, request: str) -> None:
        """Drop what is known about a request that has ended."""
        self._answers.pop(request, None)
        self.guard.forget(request)

    def _collapsed(self, token: wire.Token, answer: _Answer, collapse: Collapse) -> list[wire.Token]:
        kept = None if answer.retried else self.retry(token.id, answer.sent)
        if kept is None:
            self._count(answer, "collapsed")
            return [*answer.held, self._ended(token)]
        self.say(
            f"an answer collapsed ({collapse}) after {answer.said} tokens with the pack's kernels; "
            f"the incumbents go on after {len(kept)} of them"
        )
        answer.held.clear()
        answer.retried, answer.collapsed_at, answer.said = collapse, answer.said, len(kept)
        self.guard.replay(token.id, kept)
        return []

    def _ended(self, token: wire.Token) -> wire.Token:
        self.abort(token.id)
        return wire.Token(token.id, token.token, "collapse", token.logprob, token.top, token.cached)

    def _count(self, answer: _Answer, outcome: Literal["mended", "collapsed", "failed"]) -> None:
        """Count how a retry went, once: mended is what got past the place of the collapse, or ended before it."""
        if answer.retried is None or answer.judged:
            return
        answer.judged = True
        self.guard.retries[outcome] += 1
        if outcome == "mended":
            self.say(
                f"the incumbents did not collapse ({answer.retried}) where the pack's kernels did: "
                f"{self.guard.retries['mended']} such answers so far; see /v1/kernels"
            )
