"""The null and batch invariance: each engine against itself under changes that may not matter.

    together     in a batch of eight            against alone, through decode
    neighbours   among strangers, other order   against alone, through decode
    prefill      the same tokens in one prefill against alone, through decode
    chunked      prefill in pieces              against prefill in one piece
    again        the very same batch once more  against together

What the incumbent shows is the null, and it is measured before anything is asked of the patched engine. The patched
engine must be no less invariant than the incumbent; an engine that answers the same question in two ways has a race.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kernelwright.engine.gate_limits import FP32, Limits, State
from kernelwright.engine.gate_row import Logits, Row, compare_row
from kernelwright.engine.gate_texts import KINDS, Forced, Library, Run, probes

if TYPE_CHECKING:
    from kernelwright.engine.gate_score import Scorer

FORCED = 16
CHUNK = 23
REPEATS = 3
BASES = {"together": "alone", "neighbours": "alone", "prefill": "alone", "chunked": "prefill", "again": "together"}
NULL_OF = {
    "decode": ("together", "neighbours"),
    "decode_batch8": ("together", "neighbours"),
    "prefill": ("prefill", "chunked"),
}

Kept = dict[tuple[str, int], "Logits"]


class ModeDrift(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Both engines, each against itself, in one mode."""

    mode: str
    tokens: int
    incumbent_kld: float
    """Mean, nats."""
    patched_kld: float
    incumbent_max: float
    patched_max: float
    incumbent_identical: float
    """Share of rows that are the same bit for bit."""
    patched_identical: float


def mode_runs(library: Library, longest: int) -> Iterator[Run]:
    """Yield the runs of all modes, bases first."""
    windows = probes(library, FORCED, longest)
    for window in windows:
        yield Run("decode", "alone", (window,))
    yield Run("decode", "together", windows)
    dice = random.Random(len(windows))
    strangers = [library.window(kind, dice.randrange(9000), dice.randrange(1, 200), FORCED) for kind in KINDS[:4]]
    for half in (windows[:4], windows[4:]):
        mixed = [*half, *strangers]
        dice.shuffle(mixed)
        yield Run("decode", "neighbours", tuple(mixed))
    for name, chunk in (("prefill", None), ("chunked", CHUNK)):
        for window in windows:
            yield Run("prefill", name, (Forced(window.document, window.prompt + window.forced),), chunk)
    for _ in range(REPEATS):
        yield Run("decode", "again", windows)


def measure_modes(runs: Sequence[Run], engine: Scorer) -> dict[str, list[Row]]:
    """Ask `engine` in every mode; return its rows against its own base, by mode."""
    kept: dict[str, Kept] = {}
    found: dict[str, list[Row]] = {mode: [] for mode in BASES}
    wanted = {
        (window.document, p)
        for run in runs
        if run.name == "alone"
        for window in run.sequences
        for p in _positions(window)
    }
    for run in runs:
        answers: Kept = {}
        asked = [(sequence.prompt, sequence.forced) for sequence in run.sequences]
        for row in engine.score(asked, run.phase, chunk=run.chunk):
            key = (run.sequences[row.sequence].document, row.position)
            if key in wanted:
                answers[key] = row.logits
        kept.setdefault(run.name, {}).update(answers)
        if run.name in BASES:
            base = kept[BASES[run.name]]
            found[run.name] += [compare_row(base[key], logits, None, *key) for key, logits in answers.items()]
    return found


def _positions(window: Forced) -> range:
    return range(len(window.prompt), len(window.prompt) + len(window.forced))


def null_of(phase: str, incumbent: dict[str, list[Row]]) -> list[Row]:
    """Return the incumbent's rows that are the null of a phase of the gate."""
    return [row for mode in NULL_OF[phase] for row in incumbent[mode]]


def compare_modes(incumbent: dict[str, list[Row]], patched: dict[str, list[Row]]) -> tuple[ModeDrift, ...]:
    """Return both engines' drift, mode by mode."""
    return tuple(
        ModeDrift(
            mode=mode,
            tokens=len(rows),
            incumbent_kld=_mean(rows),
            patched_kld=_mean(patched[mode]),
            incumbent_max=max(row.kld for row in rows),
            patched_max=max(row.kld for row in patched[mode]),
            incumbent_identical=sum(row.identical for row in rows) / len(rows),
            patched_identical=sum(row.identical for row in patched[mode]) / len(rows),
        )
        for mode, rows in incumbent.items()
    )


def _mean(rows: Sequence[Row]) -> float:
    return sum(row.kld for row in rows) / len(rows)


def judge_modes(modes: Sequence[ModeDrift], limits: Limits = FP32) -> list[tuple[State, str]]:
    """Return (state, reason) for each mode in which the patched engine is less invariant than the incumbent."""
    found: list[tuple[State, str]] = []
    for mode in modes:
        passes, refused = (max(limit, limits.null_factor * mode.incumbent_kld) for limit in limits.mean_kld)
        # NaN compares as false: what is not a number is not below the limit either
        if not mode.patched_kld <= passes:
            state: State = "review" if mode.patched_kld <= refused else "refuse"
            found.append(
                (
                    state,
                    f"the patched engine against itself, {mode.mode}: mean KLD {mode.patched_kld:.1e} > {passes:.1e}",
                )
            )
        elif mode.mode == "again" and mode.incumbent_identical == 1 > mode.patched_identical:
            share = 1 - mode.patched_identical
            found.append(
                ("review", f"the same batch again gives other logits in {share:.1%} of the rows: is there a race?")
            )
    return found
