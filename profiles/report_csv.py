"""The targets of a trace as CSV: one row per kernel, none left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from kernelwright.profiles.kernel_target import KernelTarget

COLUMNS = tuple(KernelTarget.model_fields)


def format_csv(targets: Sequence[Mapping[str, object]]) -> str:
    """Return one row per kernel in the order of the ranking; times in ns, an empty cell where there is no model."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", *COLUMNS))
    for number, row in enumerate(targets, 1):
        writer.writerow((number, *("" if row.get(name) is None else row[name] for name in COLUMNS)))
    return text.getvalue()
