"""`kernelwright convert IN OUT --to FORMAT`: from one format to another, with a report of what did not fit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from kernelwright.kernels.build import RunCommand
    from kernelwright.kernels.formats.imported import Imported, Note, Written

WORDS = {"lost": "lost", "made_up": "made up", "changed": "changed", "kept": "note"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", type=Path, help="file or folder of any format of docs/formats.md")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write into")
    parser.add_argument(
        "--to", metavar="FORMAT",
        help="kernelwright, flashinfer-trace, sol-execbench, kernelbench or gpu-mode (default: kernelwright, and "
        "flashinfer-trace for what is ours already)",
    )  # fmt: skip
    parser.add_argument("--problem", type=Path, help="the problem of a lone solution")
    parser.add_argument("--definition", help="convert this one only, where IN holds several")
    parser.add_argument("--force", action="store_true", help="overwrite files in OUT")
    parser.add_argument("--cage", choices=("bubblewrap", "process"), default="bubblewrap")


def run(args: argparse.Namespace) -> int:
    """Return 0; the report goes to stdout."""
    from kernelwright.kernels.formats import flashinfer_trace, native
    from kernelwright.kernels.formats.imported import write_files
    from kernelwright.kernels.formats.table import FORMATS, sniff

    target = args.to or (flashinfer_trace.NAME if sniff(args.source) == native.NAME else native.NAME)
    if target not in FORMATS:
        raise WrongUse(f"unknown format {target!r}", f"known: {', '.join(FORMATS)}")
    imported = _read(args)
    written = _convert(imported, target, args.definition)
    paths = write_files(written, args.out, args.force)
    notes = [*imported.notes, *written.notes]
    for path in paths:
        print(path)
    for note in notes:
        print(f"{WORDS[note.kind]:>8}: {note.what}: {note.why}")
    for key, why in imported.unmeasured.items():
        print(f"    note: {key}: {why}")
    if args.json:
        report = {
            "from": imported.format, "to": target, "files": [str(path) for path in paths],
            "notes": [note.model_dump() for note in notes], "unmeasured": imported.unmeasured,
        }  # fmt: skip
        print(json.dumps(report))
    return 0


def _read(args: argparse.Namespace) -> Imported:
    from kernelwright.kernels.formats.table import join, read_any

    probe = caged_probe(args.cage)
    if args.problem is None:
        return read_any(args.source, probe)
    posed = read_any(args.problem, probe)
    alone = posed.model_copy(update={"candidates": ()})
    return join(posed.format, [alone, read_any(args.source, probe, posed.problem(args.definition))])


def _convert(imported: Imported, target: str, definition: str | None) -> Written:
    """Return all files; several problems get a folder each, unless the format keeps them apart itself."""
    from kernelwright.kernels.formats import flashinfer_trace
    from kernelwright.kernels.formats.imported import Written
    from kernelwright.kernels.formats.table import write_as

    names = [definition] if definition else [p.definition.name for p in imported.problems]
    if len(names) < 2:
        return write_as(target, imported, names[0] if names else None)
    files: dict[str, str] = {}
    notes: list[Note] = []
    for name in names:
        one = write_as(target, imported, name)
        prefix = "" if target == flashinfer_trace.NAME else f"{name}/"
        files |= {prefix + path: text for path, text in one.files.items()}
        notes += one.notes
    return Written(format=target, files=files, notes=tuple(dict.fromkeys(notes)))


def caged_probe(cage: str) -> RunCommand:
    """Return what executes a problem's code to learn its shapes: in a cage, with its working folder alone writable.

    Raises EnvironmentLacks where the cage cannot be built.
    """
    from kernelwright.sandbox.builder import caged_run
    from kernelwright.sandbox.cage import Limits, open_cage

    limits = Limits(memory_bytes=8 << 30, processes=64, cpu_seconds=600, file_bytes=64 << 20)
    return caged_run(open_cage(cage), limits)


def tell(notes: Iterable[Note]) -> None:
    """Print a loss report to stderr."""
    for note in notes:
        print(f"{WORDS[note.kind]:>8}: {note.what}: {note.why}", file=sys.stderr)
