"""Tables of a profile and of its targets: Markdown text, and the same rows on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from kernelwright.profiles.profile import Profile
from kernelwright.profiles.target import Target


class Table(NamedTuple):
    title: str
    header: tuple[str, ...]
    """Column names; those after the first `num_text` columns are numbers and stand to the right."""
    rows: tuple[tuple[str, ...], ...]
    num_text: int
    notes: tuple[str, ...] = ()


def tabulate_profile(profile: Profile) -> Table:
    """Return one row per slot, phase and step bucket, and one for the unattributed rest."""
    rows: list[tuple[str, ...]] = [
        (
            slot.definition, slot.phase, str(slot.tokens), str(slot.calls), f"{slot.self_ns / 1e6:.2f}",
            format_percent(slot.self_ns, profile.step_ns.get(slot.phase, 0)),
            format_percent(slot.self_ns, profile.busy_ns),
            f"{slot.self_ns / slot.calls / 1e3:.1f}", _count(slot.bytes_per_call), _count(slot.flops_per_call),
        )
        for slot in profile.slots
    ]  # fmt: skip
    rest = (f"{profile.unattributed_ns / 1e6:.2f}", "", format_percent(profile.unattributed_ns, profile.busy_ns))
    rows.append(("(outside every slot)", "", "", "", *rest, "", "", ""))
    steps = ", ".join(f"{n} {phase} steps" for phase, n in profile.steps.items())
    notes = [
        f"{steps}; busy {profile.busy_ns / 1e6:.1f} ms; times are self times",
        f"decode step at batch 1: {profile.step_ms_profiled:.2f} ms with the profiler, "
        f"{profile.step_ms_unprofiled:.2f} ms without",
        f"{profile.model} on {profile.engine}; {profile.machine.cpu}, {profile.machine.isa}, "
        f"{profile.machine.cores} cores, torch {profile.machine.torch}",
    ]
    if profile.ceilings:
        c = profile.ceilings
        notes.append(
            f"ceilings with {c.threads} threads: memory {c.dram_bytes_per_s / 1e9:.1f} GB/s over "
            f"{c.working_set_bytes / 1e6:.0f} MB, cache {c.cache_bytes_per_s / 1e9:.1f} GB/s, "
            f"fp32 {c.fp32_flops_per_s / 1e9:.0f} GFLOP/s"
        )
    header = ("slot", "phase", "tokens", "calls", "self ms", "of phase", "of busy", "us/call", "bytes", "FLOP")
    return Table("Profile", header, tuple(rows), 2, tuple(notes))


def tabulate_targets(targets: Sequence[Target]) -> Table:
    """Return one row per target in the order given; the excluded ones say why."""
    rows: list[tuple[str, ...]] = [
        (
            target.definition, target.phase, target.excluded or "chosen", str(target.tokens), f"{target.share:.1%}",
            f"{target.ns_per_call / 1e3:.1f}",
            "unknown" if target.roofline_ns is None else f"{target.roofline_ns / 1e3:.1f}", target.bound,
            "unknown" if target.headroom is None else f"{target.headroom:.1f}x", f"{target.ceiling:.2f}x",
        )
        for target in targets
    ]  # fmt: skip
    header = ("slot", "phase", "status", "tokens", "of phase", "us/call", "roofline us", "bound", "headroom", "ceiling")
    notes = (
        "headroom = time now / time at the roofline; ceiling = speed-up of the phase if the slot ran at its roofline",
    )
    return Table("Targets", header, tuple(rows), 3, notes)


def format_markdown(table: Table, level: int = 2) -> str:
    """Return `table` as Markdown with a trailing newline, its title a heading of `level`."""
    marks = ["---" if i < table.num_text else "---:" for i in range(len(table.header))]
    lines = [f"{'#' * level} {table.title}", "", _line(table.header), _line(marks), *map(_line, table.rows), ""]
    lines += [f"- {note}" for note in table.notes]
    return "\n".join(lines).rstrip() + "\n"


def print_table(table: Table, file: TextIO | None = None) -> None:
    """Write `table` to `file` (stdout): drawn by rich on a terminal, Markdown where it is read by a program."""
    file = file or sys.stdout
    if not file.isatty():
        file.write(format_markdown(table))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(table.header):
        # the name of the slot is what a reader looks for: it keeps its width when the terminal is narrow
        drawn.add_column(name, justify="left" if i < table.num_text else "right", overflow="fold", no_wrap=i == 0)
    for row in table.rows:
        drawn.add_row(*row)
    console = Console(file=file, markup=False, highlight=False)
    console.print(drawn)
    for note in table.notes:
        console.print(note, style="dim")


def _line(cells: Iterable[str]) -> str:
    """Return one row; a cell may come from a model or a compiler and must not break out of its place."""
    plain = (" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return "| " + " | ".join(plain) + " |"


def format_percent(part: int, whole: int) -> str:
    """Return the share as text, `n/a` of nothing."""
    return f"{part / whole:.1%}" if whole else "n/a"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
