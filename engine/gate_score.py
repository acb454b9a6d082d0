"""Score both engines on the same forced tokens, row by row, outside both. Only the metrics of a row are kept.

The incumbent answers a run first, then the patched engine; the rows of a run are held in memory and compared when both
are idle, so that nothing competes for the engines' cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kernelwright.engine.client import EngineFailed, ScoreRow
from kernelwright.engine.gate_fidelity import PhaseFidelity, summarise
from kernelwright.engine.gate_row import Row, compare_row
from kernelwright.engine.gate_texts import Run


class Scorer(Protocol):
    """What is asked of an engine here; `EngineClient` is one."""

    def score(
        self,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"] = "logits",
        chunk: int | None = None,
    ) -> Iterator[ScoreRow]: ...


@dataclass(slots=True)
class Scores:
    """Rows compared so far, by phase of the gate."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, run: Run, incumbent: Scorer, patched: Scorer, on_row: Callable[[], None] = lambda: None) -> None:
        """Score one run on both. Raises EngineFailed when the engines answer for different tokens."""
        base = {(row.sequence, row.position): row.logits for row in _ask(run, incumbent)}
        rows = self.rows.setdefault(run.name, [])
        for row in list(_ask(run, patched)):  # all of them first: comparing would take a core from the engine
            expected = base.pop((row.sequence, row.position), None)
            if expected is None:
                raise EngineFailed("the patched engine answered for a token it was not asked for", "Refuse the pack")
            sequence = run.sequences[row.sequence]
            target = sequence.after(row.position)
            rows.append(compare_row(expected, row.logits, target, sequence.document, row.position))
            on_row()
        if base:
            raise EngineFailed(f"the patched engine left out {len(base)} rows of {run.name}", "Refuse the pack")

    def fidelity(self, null: Mapping[str, Sequence[Row]], tie_margin: float | None = None) -> tuple[PhaseFidelity, ...]:
        """Return each phase's summary; `null` holds the incumbent's rows against itself by phase."""
        return tuple(summarise(name, rows, null.get(name, ()), tie_margin) for name, rows in self.rows.items())


def _ask(run: Run, engine: Scorer) -> Iterator[ScoreRow]:
    return engine.score([(s.prompt, s.forced) for s in run.sequences], run.phase, chunk=run.chunk)
