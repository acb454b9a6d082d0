"""`kernelwright gate MODEL PACK`: the incumbent engine against a kernel pack, in speed and in distribution."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="GGUF file or Hugging Face folder")
    parser.add_argument("pack", type=Path, help="kernel pack, e.g. SESSION/pack")
    parser.add_argument(
        "--seconds", type=float, default=450.0,
        help="time to spend; more pairs and each kernel switched off in turn, as far as it goes (default 450)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cage", choices=("bubblewrap", "docker", "process"), default="bubblewrap")
    parser.add_argument("--out", type=Path, help="folder for gate.json")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the pack passes, 1 when it does not."""
    from kernelwright.engine.gate import run_gate

    with tempfile.TemporaryDirectory(prefix="kernelwright-gate-") as folder:
        result = run_gate(
            args.model,
            args.pack,
            session_dir=args.out or Path(folder),
            budget_s=args.seconds,
            threads=args.threads,
            cage=args.cage,
            on_progress=_tell(),
        )
    if args.json:
        print(result.model_dump_json())
        return 0 if result.passed else 1
    for measured in (result.decode, result.prefill):
        print(
            f"{measured.kind:<14} {measured.incumbent_tok_s:.1f} → {measured.patched_tok_s:.1f} tok/s, "
            f"{measured.ratio:.2f}x [{measured.low:.2f}, {measured.high:.2f}], n={measured.n}, over HTTP"
        )
    for phase in result.fidelity:
        print(
            f"{phase.phase:<14} mean KLD {phase.mean_kld:.1e} (null {phase.null_kld:.1e}), "
            f"top-1 {100 * phase.top1:.3f} % of {phase.tokens} tokens"
        )
    print("; ".join([result.state, *result.reasons]))
    return 0 if result.passed else 1


def _tell() -> Callable[[int, int, str], None]:
    last = ""

    def tell(done: int, total: int, text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    return tell
