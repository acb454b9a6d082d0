"""Show the traces that `kernelwright profile` is given."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.profiles.errors import BrokenInput, CutInput, NoDeviceWork, WrongUse

if TYPE_CHECKING:
    from kernelwright.profiles.attribution import Work
    from kernelwright.profiles.devices import Device
    from kernelwright.profiles.events import Events
    from kernelwright.profiles.inputs import Inputs
    from kernelwright.profiles.ranks import Ranks, RankTrace
    from kernelwright.profiles.summary import TraceSummary
    from kernelwright.profiles.table import Table

WORKING_SET = 256 << 20
"""Bytes read to measure memory bandwidth: more than caches hold."""


class _Shown(NamedTuple):
    tables: list[Table]
    record: dict[str, Any]
    html: str


def show_traces(args: argparse.Namespace) -> int:
    """Print what the files hold; write the reports asked for. Return the exit code: 0, or that of what is wrong."""
    from kernelwright.profiles.inputs import open_inputs, refuse_lone_capture

    inputs = open_inputs(args.files, modules=bool(args.html))
    if not inputs.traces and not inputs.captures:
        return _show_sums(args, inputs)
    trouble: BrokenInput | None = refuse_lone_capture(inputs)
    shown, found = _show(args, inputs)
    trouble = trouble or found
    _write_reports(args, shown)
    if args.json:
        error = {"error": _describe(trouble)} if trouble else {}
        print(json.dumps({**shown.record, **error}))
    else:
        _print(shown.tables)
        for note in inputs.notes:
            print(note)
    if trouble is not None:
        print(f"kernelwright: {trouble.message}\n{trouble.remedy}", file=sys.stderr)
        return trouble.exit_code
    return 0


def _show(args: argparse.Namespace, inputs: Inputs) -> tuple[_Shown, BrokenInput | None]:
    from kernelwright.profiles.devices import name_device
    from kernelwright.profiles.headroom import tell_gpu
    from kernelwright.profiles.summary_tables import tabulate_counters, tabulate_ranks, tabulate_summary

    asked = _measure_here() if args.device == "here" else name_device(args.device) if args.device else None
    trace = inputs.traces[0] if inputs.traces else inputs.lone_capture
    assert trace is not None, "there is a trace, or a capture alone"
    ranks = _compare_ranks(inputs)
    summary, work = _summarise(args, inputs, trace.events, asked)
    trouble = _find_trouble(trace, summary)
    slots = _attribute_slots(trace.events) if summary.device == "cpu" and not args.window else None
    tables = [_tabulate_slots(slots, summary)] if slots else tabulate_summary(summary)
    tables += [tabulate_ranks(ranks)] if ranks else []
    tables += [tabulate_counters(inputs.counters)] if inputs.counters else []
    record = {**summary.flat(), **(slots or {})}
    record |= {"ranks": ranks.model_dump(mode="json")} if ranks else {}
    record |= {"counters": [c.model_dump(mode="json") for c in inputs.counters]} if inputs.counters else {}
    record |= {"file": trace.file, "captures": inputs.captures, "notes": inputs.notes}
    if not args.html:
        return _Shown(tables, record, ""), trouble
    from kernelwright.profiles.html import render_html

    html = render_html(trace.file, summary, work, tell_gpu(trace.events, asked), tables, ranks)
    return _Shown(tables, record, html), trouble


def _summarise(
    args: argparse.Namespace, inputs: Inputs, events: Events, asked: Device | None
) -> tuple[TraceSummary, Work]:
    from kernelwright.profiles.attribution import attribute_work
    from kernelwright.profiles.summary import summarise_work

    if not args.window:
        work = attribute_work(events, inputs.donors, paths=bool(args.html))
        return summarise_work(work, events, asked), work
    from kernelwright.profiles.window import parse_window, summarise_window

    if len(inputs.traces) > 1:
        raise WrongUse("--window is for the trace of one rank", "name one trace")
    window = parse_window(args.window, events)
    return summarise_window(attribute_work(events, inputs.donors, bool(args.html)), events, window, asked)


def _compare_ranks(inputs: Inputs) -> Ranks | None:
    from kernelwright.profiles.ranks import compare_ranks

    return compare_ranks(inputs.traces) if len(inputs.traces) > 1 else None


def _measure_here() -> Device:
    """Return this machine's processor, measured with as many threads as it has."""
    from kernelwright.profiles.ceilings import measure_ceilings
    from kernelwright.profiles.devices import device_of

    print("measuring what this machine reaches", file=sys.stderr)
    return device_of(
        measure_ceilings(len(os.sched_getaffinity(0)), WORKING_SET), platform.processor() or "this machine"
    )


def _find_trouble(trace: RankTrace, summary: TraceSummary) -> BrokenInput | None:
    """Return what the exit code must say of a trace that is shown all the same."""
    devices = trace.events.header.get("deviceProperties")
    wanted_gpu = bool(devices) or bool(trace.events.is_launch.any())
    if summary.device == "none" or (summary.device == "cpu" and wanted_gpu):
        what = "a GPU's trace without a kernel" if wanted_gpu else "neither kernels nor operations of a CPU"
        return NoDeviceWork(
            f"{trace.file} holds {summary.events} events and no work: {what}",
            "profile while the engine serves requests, in the process that launches kernels, with CPU and device "
            "activities on",
        )
    if summary.health.cut:
        return CutInput(
            f"{trace.file} is cut: what was written later is missing, and kernels are written last",
            "take the trace again and let the profiler finish writing it; what could be read is shown",
        )
    return None


def _show_sums(args: argparse.Namespace, inputs: Inputs) -> int:
    """Show files that hold sums of kernels or counters, and no times."""
    from kernelwright.profiles.summary_tables import tabulate_counters, tabulate_sums
    from kernelwright.profiles.sums_record import describe_sums

    if args.window:
        raise WrongUse("sums and counters have no times", "name a trace, or leave --window out")
    tables = [tabulate_sums(sums) for _, sums in inputs.sums]
    tables += [tabulate_counters(inputs.counters)] if inputs.counters else []
    record = describe_sums([sums for _, sums in inputs.sums], inputs.counters)
    _write_reports(args, _Shown(tables, record, ""))
    if args.json:
        print(json.dumps(record))
    else:
        _print(tables)
    return 0


def _write_reports(args: argparse.Namespace, shown: _Shown) -> None:
    from kernelwright.profiles.report_csv import format_csv
    from kernelwright.profiles.table import format_markdown

    if args.html and not shown.html:
        raise WrongUse("sums and counters have no pictures", "name a trace, or leave --html out")
    texts: list[tuple[Path | None, str]] = [
        (args.html, shown.html),
        (args.csv, format_csv(shown.record["targets"]) if args.csv else ""),
        (args.markdown, "\n".join(format_markdown(table) for table in shown.tables) if args.markdown else ""),
    ]
    for path, text in texts:
        if path is not None:
            write_report(path, text)


def check_writable(path: Path | None) -> None:
    """Raise WrongUse when `path` cannot be a report: asked before the work, which may take minutes, not after it."""
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise WrongUse(f"cannot write {path}", "name a file in a folder that is there and yours")


def write_report(path: Path, text: str) -> None:
    """Write `text` to `path` and say so. Raises WrongUse where that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"cannot write {path}: {error.strerror}", "name another file") from error
    print(f"written to {path}", file=sys.stderr)


def _print(tables: list[Table]) -> None:
    from kernelwright.profiles.table import print_table

    for table in tables:
        print_table(table)
        print()


def _describe(error: BrokenInput) -> dict[str, str]:
    return {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy}


def _attribute_slots(events: Events) -> dict[str, Any] | None:
    """Return the time of each slot of our own engine; None where the trace is of another one."""
    from kernelwright.profiles.attribute import attribute, parse_range

    if not any(parse_range(name) for name in events.pool.names):
        return None
    found = attribute(events)
    rows = [
        {"definition": name, "phase": phase, "tokens": tokens, "calls": slot.calls, "self_ns": slot.self_ns}
        for (name, phase, tokens), slot in sorted(found.slots.items(), key=lambda item: -item[1].self_ns)
    ]
    return {"busy_ns": found.busy_ns, "unattributed_ns": found.unattributed_ns, "slots": rows}


def _tabulate_slots(found: dict[str, Any], summary: TraceSummary) -> Table:
    from kernelwright.profiles.summary_tables import describe_health
    from kernelwright.profiles.table import Table, format_percent

    busy = found["busy_ns"]
    rows = [
        (
            slot["definition"], slot["phase"], str(slot["tokens"]), f"{slot['calls']:,}",
            f"{slot['self_ns'] / 1e6:,.3f}", format_percent(slot["self_ns"], busy),
        )
        for slot in found["slots"]
    ]  # fmt: skip
    rest = found["unattributed_ns"]
    rows.append(("(outside every slot)", "", "", "", f"{rest / 1e6:,.3f}", format_percent(rest, busy)))
    header = ("slot", "phase", "tokens", "calls", "self ms", "of steps")
    return Table("Slots (cpu)", header, tuple(rows), 2, describe_health(summary.health))
