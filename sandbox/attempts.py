"""Attempts: how often one author may ask for a confirm of one problem, and what each time costs.

Many tries at a noisy gate let luck through, so a lineage (one author, or proposers that share notes) has three confirms
of a problem in a week and shares 5 % between them: 2.5 %, 1.25 %, 1.25 %. A try is charged when it begins, however it
ends. Source: alpha spending (Lan and DeMets, "Discrete sequential boundaries for clinical trials", 1983), in its
simplest form.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ALPHAS = (0.025, 0.0125, 0.0125)
WEEK_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    """Counted from 1."""
    alpha: float
    """What this one may err with; its interval has confidence 1 - alpha."""


class Attempts:
    """The count, kept in the JSON file `path` (None: in memory, for as long as this object lives)."""

    def __init__(self, path: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now
        self._kept: dict[str, list[float]] = {}

    def begin(self, problem: str, lineage: str) -> Attempt | None:
        """Charge one confirm of `problem` (a digest) to `lineage`; None when its week's share is used up."""
        key = f"{problem}/{lineage}"
        with self._open() as kept:
            recent = [t for t in kept.get(key, []) if t > self._now() - WEEK_S]
            if len(recent) >= len(ALPHAS):
                return None
            kept[key] = [*recent, self._now()]
            return Attempt(len(recent) + 1, ALPHAS[len(recent)])

    @contextlib.contextmanager
    def _open(self) -> Iterator[dict[str, list[float]]]:
        if self._path is None:
            yield self._kept
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = _read(self._path)
            yield kept
            kept = {k: [t for t in times if t > self._now() - WEEK_S] for k, times in kept.items()}
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps({k: times for k, times in kept.items() if times}))
            fresh.replace(self._path)


def _read(path: Path) -> dict[str, list[float]]:
    """Return what is kept. A file that cannot be read counts as empty: it holds nothing that cannot be earned again."""
    try:
        found = json.loads(path.read_text())
        return {str(k): [float(t) for t in times] for k, times in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
