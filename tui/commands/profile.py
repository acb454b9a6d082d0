"""`kernelwright profile`: where the time of the served engine goes, per slot and phase.

With FILE: a trace of our server. Without: a server is started on the model, profiled while it
serves the shipped mix, and stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kernelwright.profiles.errors import WrongUse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, help="a trace of our engine (Chrome JSON, .gz or not)")
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
    import json

    from kernelwright.profiles.attribute import attribute
    from kernelwright.profiles.trace import read_trace

    found = attribute(read_trace(args.file))
    found_slots = sorted(found.slots.items(), key=lambda item: -item[1].self_ns)
    if args.json:
        rows = [
            {"definition": name, "phase": phase, "tokens": tokens, "calls": slot.calls, "self_ns": slot.self_ns}
            for (name, phase, tokens), slot in found_slots
        ]
        print(json.dumps({"busy_ns": found.busy_ns, "unattributed_ns": found.unattributed_ns, "slots": rows}))
        return 0
    for (name, phase, tokens), slot in found_slots:
        share = 100 * slot.self_ns / max(found.busy_ns, 1)
        print(f"{share:5.1f} %  {slot.self_ns / 1e6:10.3f} ms  {slot.calls:>6}x  {phase:<7} T={tokens:<5} {name}")
    print(f"{100 * found.unattributed_ns / max(found.busy_ns, 1):5.1f} %  outside every slot")
    return 0
