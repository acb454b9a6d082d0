"""Guard: notice a generation that has collapsed while it runs.

Three signs, all cheap enough for every token: one token drawn many times in a row, a few tokens that come round and
round, and logits that are not finite. What to do about it is a choice: `observe` counts, `stop` also ends the
generation with finish reason `collapse`, `retry` has the incumbents decode it again first (guarding.py). Tables,
indents and rows of digits repeat themselves in sound text: tokens that are nothing but rules, blanks and digits may do
so much longer.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["observe", "stop", "retry"]
Collapse = Literal["repeat", "loop", "not_finite"]

LONGEST_LOOP = 32
"""Tokens of a loop that is looked for."""
LEAST_LOOPED = 48
"""Tokens that must have come as one loop before, at least."""
SUSPECT_LOOPED = 8
"""Tokens that have come as one loop before, and all its own: from then on it is suspected."""
PATIENCE = 16
"""So many times longer may tokens repeat that are rules, blanks and digits."""
_RULE = re.compile(r"[\s\d\-_=*#~.,:|+\u2500-\u259f]*")


@dataclass(slots=True)
class _Run:
    last: deque[int] = field(default_factory=lambda: deque(maxlen=LONGEST_LOOP))
    same: list[int] = field(default_factory=lambda: [0] * (LONGEST_LOOP + 1))
    """By period: how many of the newest tokens equal the one that many before them."""
    plain: int = 0
    """Newest tokens, in a row, that are rules, blanks and digits."""
    reported: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Guard:
    max_repeats: int = 7
    """A token drawn more often than this in a row is a collapse."""
    action: Action = "observe"
    max_loops: int = 8
    """So are two to 32 tokens that come round more often than this, 48 tokens at least."""
    text_of: Callable[[int], str] | None = None
    """Text of a token; None: no token is known to be a rule."""
    trips: Counter[str] = field(default_factory=Counter)
    """Collapses seen since the start, by kind; a generation counts once for each kind."""
    retries: Counter[str] = field(default_factory=Counter)
    """Answers that the incumbents decoded again, by outcome: mended, collapsed, failed."""
    _runs: dict[str, _Run] = field(default_factory=dict)
    _rules: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_repeats < 1:
            raise ValueError(f"max_repeats must be at least 1, not {self.max_repeats}")
        if self.max_loops < 1:
            raise ValueError(f"max_loops must be at least 1, not {self.max_loops}")

    def observe(self, request: str, token: int | None) -> Collapse | None:
        """Take note of one step of `request`; return the kind of collapse that it completes, else None.

        `token` is None when the sampler refused to draw because the logits were not finite.
        """
        if token is None:
            self.trips["not_finite"] += 1
            return "not_finite"
        run = self._runs.setdefault(request, _Run())
        self._note(run, token)
        kind: Collapse | None = "repeat" if self._repeats(run) else "loop" if self._loops(run) else None
        if kind is None or kind in run.reported:
            return None
        run.reported.add(kind)
        self.trips[kind] += 1
        return kind

    def suspects(self, request: str) -> bool:
        """Return whether the newest tokens of `request` may be the beginning of a collapse; rules and blanks are none.

        From the second time a token is drawn in a row, and from the second round of a loop, eight tokens at least.
        """
        run = self._runs.get(request)
        if run is None or run.plain:
            return False
        return run.same[1] > 0 or any(
            run.same[period] >= max(period, SUSPECT_LOOPED) for period in range(2, LONGEST_LOOP + 1)
        )

    def replay(self, request: str, tokens: Sequence[int]) -> None:
        """Watch `request` anew from `tokens` on, which it has said; what they may be a sign of is not reported."""
        run = self._runs[request] = _Run()
        for token in tokens:
            self._note(run, token)

    @property
    def num_watched(self) -> int:
        """Requests of which something is known."""
        return len(self._runs)

    def forget(self, request: str) -> None:
        """Drop what is known about a request that has ended."""
        self._runs.pop(request, None)

    def _note(self, run: _Run, token: int) -> None:
        for period, before in enumerate(reversed(run.last), 1):
            run.same[period] = run.same[period] + 1 if before == token else 0
        run.last.append(token)
        run.plain = run.plain + 1 if self._is_rule(token) else 0

    def _repeats(self, run: _Run) -> bool:
        return run.same[1] >= self.max_repeats * (PATIENCE if run.plain else 1)

    def _loops(self, run: _Run) -> bool:
        for period in range(2, LONGEST_LOOP + 1):
            same = run.same[period]
            if same >= max(period * self.max_loops, LEAST_LOOPED) and run.same[1] < period:
                # a row of a table is a loop, too: one whose every token is a rule
                return run.plain < period or same >= PATIENCE * max(period * self.max_loops, LEAST_LOOPED)
        return False

    def _is_rule(self, token: int) -> bool:
        if self.text_of is None:
            return False
        known = self._rules.get(token)
        if known is None:
            known = self._rules[token] = _RULE.fullmatch(self.text_of(token)) is not None
        return known
