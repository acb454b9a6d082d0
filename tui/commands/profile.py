"""`kernelwright profile`: where the time of an engine goes.

With FILE: a trace of torch.profiler, of any engine; one of our own engine is told per slot and phase. Without: a
server is started on the model, profiled while it serves the shipped mix, and stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.profiles.errors import BrokenInput, WrongUse

if TYPE_CHECKING:
    from kernelwright.profiles.events import Events


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, help="a trace of torch.profiler (Chrome JSON, packed or not)")
    parser.add_argument("--model", type=Path, help="GGUF file (default: SmolLM2-135M-Instruct, fetched once)")
    parser.add_argument("--mix", default="chat", help="request mix: a shipped name or a JSON file (default: chat)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="write the profile here as JSON (for `targets`)")


def run(args: argparse.Namespace) -> int:
    """Print the profile as a table (or, with --json, as JSON) and write it to --out."""
    if args.threads < 1:
        raise WrongUse("--threads must be above 0", "Give --threads a positive number.")
    if args.file is not None:
        return _show_trace(args)
    from kernelwright.agent.profiling import profile_model
    from kernelwright.engine.weights import find_default_model
    from kernelwright.profiles.table import print_table, tabulate_profile

    profile = profile_model(args.model or find_default_model(), args.mix, args.threads)
    if args.out:
        args.out.write_text(profile.model_dump_json(indent=1), encoding="utf-8")
        print(f"profile written to {args.out}", file=sys.stderr)
    if args.json:
        print(profile.model_dump_json())
        return 0
    print_table(tabulate_profile(profile))
    print(
        f"decode step at batch 1: {profile.step_ms_unprofiled:.1f} ms, "
        f"under the profiler {profile.step_ms_profiled:.1f} ms; "
        f"outside every slot: {100 * profile.unattributed_ns / profile.busy_ns:.1f} %"
    )
    return 0


def _show_trace(args: argparse.Namespace) -> int:
    from kernelwright.profiles.summary import summarise
    from kernelwright.profiles.summary_tables import describe_health, tabulate_summary
    from kernelwright.profiles.table import print_table
    from kernelwright.profiles.trace import read_trace

    trace = read_trace(args.file)
    summary = summarise(trace)
    if summary.device == "none":
        raise BrokenInput(
            f"{args.file} holds {summary.events} events and no work: neither kernels nor operations of a CPU",
            "profile while the engine serves requests, with CPU and device activities on",
        )
    slots = _attribute_slots(trace) if summary.device == "cpu" else None
    if args.json:
        print(json.dumps({**summary.flat(), **(slots or {})}))
        return 0
    if slots is not None:
        _print_slots(slots)
        for sentence in describe_health(summary.health):
            print(sentence)
        return 0
    for table in tabulate_summary(summary):
        print_table(table)
        print()
    return 0


def _attribute_slots(trace: Events) -> dict[str, Any] | None:
    """Return the time of each slot of our own engine; None where the trace is of another one."""
    from kernelwright.profiles.attribute import attribute, parse_range

    if not any(parse_range(name) for name in trace.pool.names):
        return None
    found = attribute(trace)
    rows = [
        {"definition": name, "phase": phase, "tokens": tokens, "calls": slot.calls, "self_ns": slot.self_ns}
        for (name, phase, tokens), slot in sorted(found.slots.items(), key=lambda item: -item[1].self_ns)
    ]
    return {"busy_ns": found.busy_ns, "unattributed_ns": found.unattributed_ns, "slots": rows}


def _print_slots(found: dict[str, Any]) -> None:
    busy = max(found["busy_ns"], 1)
    for slot in found["slots"]:
        share = 100 * slot["self_ns"] / busy
        named = f"{slot['calls']:>6}x  {slot['phase']:<7} T={slot['tokens']:<5} {slot['definition']}"
        print(f"{share:5.1f} %  {slot['self_ns'] / 1e6:10.3f} ms  {named}")
    print(f"{100 * found['unattributed_ns'] / busy:5.1f} %  outside every slot")
