"""Score both engines on the same forced tokens, row by row, outside both. Only the metrics of a row are kept.

The incumbent answers a run first, then the patched engine; the rows of a run are held in memory and compared when both
are idle, so that nothing competes for the engines' cores. A sample of the incumbent's rows is kept a little longer: the
same position of the same document in another phase (alone, in a batch of eight, in one prefill step) gives the null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernelwright.engine.client import EngineFailed, ScoreRow
from kernelwright.engine.gate_fidelity import PhaseFidelity, Row, compare_row, summarise
from kernelwright.engine.gate_texts import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]

KEPT_BYTES = 96 << 20


class Scorer(Protocol):
    """What is asked of an engine here; `EngineClient` is one."""

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], phase: Literal["decode", "prefill"]
    ) -> Iterator[ScoreRow]: ...


@dataclass(slots=True)
class Scores:
    """Rows compared so far, by phase of the gate, and the null's."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    null: dict[str, list[Row]] = field(default_factory=dict)
    _kept: dict[tuple[str, int], Logits] = field(default_factory=dict)

    def add(self, run: Run, incumbent: Scorer, patched: Scorer, on_row: Callable[[], None] = lambda: None) -> None:
        """Score one run on both. Raises EngineFailed when the engines answer for different tokens."""
        base = {(row.sequence, row.position): row.logits for row in self._ask(run, incumbent)}
        self._feed_null(run, base)
        rows = self.rows.setdefault(run.name, [])
        for row in list(self._ask(run, patched)):  # all of them first: comparing would take a core from the engine
            expected = base.pop((row.sequence, row.position), None)
            if expected is None:
                raise EngineFailed("the patched engine answered for a token it was not asked for", "Refuse the pack")
            sequence = run.sequences[row.sequence]
            target = sequence.after(row.position)
            rows.append(compare_row(expected, row.logits, target, sequence.document, row.position))
            on_row()
        if base:
            raise EngineFailed(f"the patched engine left out {len(base)} rows of {run.name}", "Refuse the pack")

    def _ask(self, run: Run, engine: Scorer) -> Iterator[ScoreRow]:
        return engine.score([(s.prompt, s.forced) for s in run.sequences], run.phase)

    def _feed_null(self, run: Run, base: dict[tuple[int, int], Logits]) -> None:
        for (number, position), logits in base.items():
            document = run.sequences[number].document
            kept = self._kept.get((document, position))
            if kept is not None and run.name != "decode":
                null = compare_row(kept, logits, run.sequences[number].after(position), document, position)
                self.null.setdefault(run.name, []).append(null)
            elif run.name == "decode" and (len(self._kept) + 1) * logits.nbytes <= KEPT_BYTES and position % 2:
                self._kept[document, position] = logits

    def fidelity(self) -> tuple[PhaseFidelity, ...]:
        """Return each phase's summary. The null of decode at batch 1 is the one of batch 8: the same pairs of rows."""
        null = {"decode": self.null.get("decode_batch8", []), **self.null}
        return tuple(summarise(name, rows, null.get(name, ())) for name, rows in self.rows.items())


def score_runs(
    runs: Iterable[Run], incumbent: Scorer, patched: Scorer, on_row: Callable[[], None] = lambda: None
) -> Scores:
    """Return the scores of all `runs`."""
    scores = Scores()
    for run in runs:
        scores.add(run, incumbent, patched, on_row)
    return scores
