"""`kernelwright profile`: where the time of an engine goes.

With FILE: traces of torch.profiler, Nsight Systems or rocprofv3, of any engine; one of our own engine is told per slot
and phase. Without: a server is started on the model, profiled while it serves the shipped mix, and stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kernelwright.profiles.errors import WrongUse
from kernelwright.tui.commands.traces import check_writable, show_traces, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE",
        help="a trace (torch.profiler, nsys sqlite or CSV, rocprofv3 JSON), packed or not; beside it: traces of its "
        "other ranks, of its graphs' capture, of an eager run, a CSV of Nsight Compute",
    )  # fmt: skip
    parser.add_argument(
        "--device",
        help="the GPU of the trace where its header does not say: H100, MI300X, …; `here`: this machine's processor",
    )
    parser.add_argument(
        "--window", metavar="FROM:TO", help="only what ran in this window of the trace, ms since its first event"
    )
    parser.add_argument("--url", help="profile a server that runs: vLLM, SGLang or ours, e.g. http://localhost:8000")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="with --url: where that server writes its traces")
    parser.add_argument("--requests", type=int, default=4, help="with --url: completions to ask for (default: 4)")
    parser.add_argument("--tokens", type=int, default=32, help="with --url: tokens of each (default: 32)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="with --url and --requests 0: how long to watch (default: 5)"
    )
    parser.add_argument("--html", type=Path, metavar="OUT", help="write one HTML file with pictures")
    parser.add_argument("--csv", type=Path, metavar="OUT", help="write one row per kernel")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="write the tables")
    parser.add_argument("--model", type=Path, help="GGUF file or Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--mix", default="chat", help="request mix: a shipped name or a JSON file (default: chat)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="write the profile here as JSON (for `targets`)")


def run(args: argparse.Namespace) -> int:
    """Print the profile as a table (or, with --json, as JSON) and write it to --out."""
    if args.threads < 1:
        raise WrongUse("--threads must be above 0", "Give --threads a positive number.")
    for path in (args.out, args.html, args.csv, args.markdown):
        check_writable(path)
    if args.url:
        args.files = _capture(args)
    if args.files:
        return show_traces(args)
    if args.html or args.csv or args.markdown or args.device or args.traces or args.window:
        raise WrongUse(
            "--html, --csv, --markdown, --device, --window and --traces are for traces",
            "name the trace, kernelwright profile FILE, or a server that runs, --url",
        )
    from kernelwright.agent.profiling import profile_model
    from kernelwright.engine.weights import find_default_model
    from kernelwright.profiles.table import print_table, tabulate_profile

    profile = profile_model(args.model or find_default_model(), args.mix, args.threads)
    if args.out:
        write_report(args.out, profile.model_dump_json(indent=1))
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


def _capture(args: argparse.Namespace) -> list[Path]:
    """Take the trace of a server that runs."""
    from kernelwright.agent.live import capture_live

    if args.files:
        raise WrongUse("--url takes a trace itself", "leave out FILE, or --url")
    if args.requests < 0 or args.tokens < 1 or args.seconds < 0:
        raise WrongUse("--requests, --tokens and --seconds count upwards", "Give them numbers that are not negative.")
    found = capture_live(
        args.url, args.traces, requests=args.requests, tokens=args.tokens, seconds=args.seconds,
        api_key=os.environ.get("OPENAI_API_KEY"), say=lambda text: print(text, file=sys.stderr),
    )  # fmt: skip
    print(f"traces: {', '.join(map(str, found))}", file=sys.stderr)
    return found
