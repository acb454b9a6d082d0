"""Has a text collapsed? Detectors of one answer, and what is wrong with a set of answers beside another's.

rep-n: 1 − distinct n-grams ÷ n-grams, n = 4 (arXiv 2310.10226). Compression: UTF-8 bytes ÷ their zlib bytes, where
Whisper's decoder holds 2.4 for a loop. Both are compared with the incumbent's answer to the same prompt, since a small
model may well repeat itself.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from itertools import groupby

from pydantic import BaseModel

LONGEST_RUN = 16
REPEATED_SHARE = 0.5
COMPRESSION = 2.4
DROP = 0.1
"""A change of the set's vocabulary or mean length by more than this share is an alarm."""


class Generation(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    tokens: int
    finish: str
    longest_run: int
    """Longest run of one token."""
    repeated_4grams: float
    """1 − distinct 4-grams ÷ 4-grams."""
    replacement_characters: int
    compression: float = 1.0
    """Bytes ÷ zlib-compressed bytes."""
    odd_characters: int = 0
    """Control characters and characters that Unicode does not assign, the replacement character left out."""
    vocabulary: int = 0
    """Distinct tokens."""


def describe(ids: Sequence[int], text: str, finish: str) -> Generation:
    """Return the detectors' values of one answer."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    raw = text.encode("utf-8", "replace")
    odd = [c for c in text if unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\n\t\r"]
    return Generation(
        tokens=len(ids),
        finish=finish,
        longest_run=max((len(list(run)) for _, run in groupby(ids)), default=0),
        repeated_4grams=1 - len(set(grams)) / len(grams) if grams else 0.0,
        replacement_characters=text.count("\ufffd"),
        compression=len(raw) / len(zlib.compress(raw, 9)) if raw else 1.0,
        odd_characters=len(odd),
        vocabulary=len(set(ids)),
    )


def find_alarms(incumbent: Generation, patched: Generation, *, same_text: bool) -> list[str]:
    """Return what is wrong with the patched engine's answer, measured against the incumbent's to the same prompt."""
    alarms = []
    if patched.longest_run > max(LONGEST_RUN, incumbent.longest_run):
        alarms.append(f"one token {patched.longest_run} times in a row")
    if patched.repeated_4grams > max(REPEATED_SHARE, 1.5 * incumbent.repeated_4grams):
        alarms.append(f"{patched.repeated_4grams:.0%} of its 4-grams are repeats")
    if patched.compression >= COMPRESSION and patched.compression > 1.5 * incumbent.compression:
        alarms.append(f"it compresses {patched.compression:.1f}-fold")
    if patched.replacement_characters > incumbent.replacement_characters + 2:
        alarms.append(f"{patched.replacement_characters} characters that are no text")
    if patched.odd_characters > incumbent.odd_characters + 2:
        alarms.append(f"{patched.odd_characters} control or unassigned characters")
    if same_text and (patched.finish, patched.tokens) != (incumbent.finish, incumbent.tokens):
        alarms.append(f"same text, but it ended with {patched.finish!r} instead of {incumbent.finish!r}")
    return alarms


def find_set_alarms(incumbent: Sequence[Generation], patched: Sequence[Generation]) -> list[str]:
    """Return what is wrong with all answers together: fewer words, other lengths, more repetition, more cut answers."""
    alarms = []
    for name, fall_only in (("vocabulary", True), ("tokens", False)):
        before, after = (sum(getattr(g, name) for g in arm) for arm in (incumbent, patched))
        change = (after - before) / max(before, 1)
        if change < -DROP or (change > DROP and not fall_only):
            alarms.append(f"all answers together: {name} {before} → {after}")
    repeats = [sum(g.repeated_4grams for g in arm) / max(len(arm), 1) for arm in (incumbent, patched)]
    if repeats[1] > repeats[0] + DROP:
        alarms.append(f"all answers together: {repeats[0]:.0%} → {repeats[1]:.0%} of 4-grams are repeats")
    return alarms
