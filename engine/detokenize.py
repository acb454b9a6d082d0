"""Token ids to text, one token at a time, and the search for stop strings in what comes out.

A character may be spread over several byte-level tokens, and how a token reads may depend on the one before it. So the
text of a new token is the difference of two decodings of a short window, and nothing is given out while the window
ends in the middle of a character (U+FFFD).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_REPLACEMENT = "\ufffd"
_LONGEST_HOLD = 8
"""Tokens. UTF-8 needs at most four bytes, so a window that stays broken for longer is the model's own nonsense."""


@dataclass(slots=True)
class Detokenizer:
    decode: Callable[[Sequence[int]], str]
    """All ids to text, special tokens left out."""
    _window: list[int] = field(default_factory=list)
    _given: int = 0
    """How many tokens of the window have been given out as text."""

    def feed(self, token: int) -> str:
        """Return the text that `token` completes; may be empty."""
        self._window.append(token)
        before, now = self.decode(self._window[: self._given]), self.decode(self._window)
        if now.endswith(_REPLACEMENT) and len(self._window) - self._given < _LONGEST_HOLD:
            return ""
        if len(now) <= len(before):
            # A token without text (a special one): forget it, so that a thousand of them do not lengthen the window.
            self._window.pop()
            return ""
        # Keep only what was new: the next token's text may depend on it, not on anything older.
        self._window = self._window[self._given :]
        self._given = len(self._window)
        return now[len(before) :]

    def flush(self) -> str:
        """Return what is still held back at the end of a generation (an unfinished character reads as U+FFFD)."""
        before, now = self.decode(self._window[: self._given]), self.decode(self._window)
        self._window, self._given = [], 0
        return now[len(before) :]


@dataclass(slots=True)
class StopSearch:
    """Finds the first stop string in a stream of text and never lets a part of one through."""

    stops: tuple[str, ...]
    found: str | None = None
    _held: str = ""

    def feed(self, text: str) -> str:
        """Return what may be shown now. After a stop was found (`found`) everything returned is empty."""
        if self.found is not None:
            return ""
        if not self.stops:
            return text
        self._held += text
        hits = [(at, stop) for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if hits:
            at, self.found = min(hits)
            shown, self._held = self._held[:at], ""
            return shown
        keep = max(overlap(self._held, stop) for stop in self.stops)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def flush(self) -> str:
        """Return what was held back because a stop string might have begun there."""
        shown, self._held = self._held, ""
        return shown


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
