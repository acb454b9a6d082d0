"""`kernelwright verify-bundle BUNDLE`: judge the verdict of an evidence bundle again, on this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from kernelwright.sandbox.bundle import Bundle
    from kernelwright.sandbox.replay import Replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="folder or .tar.gz of the evidence")
    parser.add_argument("--model", type=Path, help="the model it was judged with; else other weights are drawn")
    parser.add_argument("--digest", help="SHA-256 that was published as the bundle's")
    parser.add_argument("--cage", choices=("bubblewrap", "process"), default="bubblewrap")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-time", action="store_true", help="do not time it again")
    parser.add_argument("--no-run", action="store_true", help="only recompute: build and run nothing")


def run(args: argparse.Namespace) -> int:
    """Return 0 when no check failed, 1 otherwise. Raises BrokenInput on what is no bundle."""
    from kernelwright.sandbox.bundle import read_bundle
    from kernelwright.sandbox.replay import replay

    bundle = read_bundle(args.bundle)
    found = replay(
        bundle,
        weights=None if args.no_run else find_weights(bundle, args.model),
        cage=args.cage,
        threads=args.threads,
        full=not args.no_run,
        timed=not args.no_time,
        digest=args.digest,
        on_progress=_say,
    )
    _tell(found)
    if args.json:
        timing = {**found.timing.model_dump(), "reproduced": found.timing.reproduced} if found.timing else None
        print(json.dumps({**found.model_dump(), "timing": timing, "passed": found.passed}))
    return 0 if found.passed else 1


def find_weights(bundle: Bundle, model: Path | None) -> list[dict[str, Any]] | None:
    """Return the weights the bundle was judged with, one dict per layer; None where they are not at hand.

    Raises BrokenInput when `model` is another file than the bundle names, or has no such slot.
    """
    from kernelwright.engine.checkpoint import model_digest
    from kernelwright.engine.model_slots import ModelSlots
    from kernelwright.engine.weights import cached_default_model, is_model

    if not bundle.problem.contract.weights:
        return None
    path = model or (cached_default_model() if bundle.named.model else None)
    if path is None:
        return None
    if not is_model(path):
        raise BrokenInput(f"there is no model at {path}", "Give the model it was judged with, or leave --model out")
    if bundle.named.model and model_digest(path) != bundle.named.model:
        if model is None:
            return None
        raise BrokenInput(
            f"{path} is not the model of this bundle (SHA-256 {bundle.named.model})", "Give that file, or leave it out"
        )
    slots = ModelSlots(path, bundle.problem.timed_axes.get("P"))
    if bundle.problem.definition.name not in slots.definitions():
        raise BrokenInput(f"{path} has no {bundle.problem.definition.name}", "Give the model it was judged with")
    return slots.weights(bundle.problem.definition.name)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell(found: Replay) -> None:
    marks = {True: "ok", False: "NO", None: "--"}
    for check in found.checks:
        print(f"{marks[check.passed]}  {check.name:<11} {check.text}")
    if found.timing and found.timing.here:
        recorded = f"{found.timing.recorded:.2f}x" if found.timing.recorded else "none"
        here = f"{found.timing.here:.2f}x [{found.timing.low:.2f}, {found.timing.high:.2f}]"
        print(f"    timing      recorded {recorded}, here {here}: {found.timing.outcome} here")
    elif found.timing:
        print(f"    timing      {found.timing.outcome} here, nothing was timed")
    holds = "holds" if found.passed else "does not hold"
    print(f"the verdict `{found.outcome}` {holds}{', and allows a patch' if found.passed and found.accepted else ''}")
