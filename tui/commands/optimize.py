"""`kernelwright optimize`: the loop. Profile, rewrite, judge, gate, commit, report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from kernelwright.agent.options import OptimizeOptions
from kernelwright.agent.session import recorded_options
from kernelwright.agent.sessions import new_session_folder
from kernelwright.profiles.errors import WrongUse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="GGUF file or Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--minutes", type=float, default=15.0, help="wall time of the session (default 15)")
    parser.add_argument("--attempts", type=int, default=500, help="candidates judged at most")
    parser.add_argument("--tokens", type=int, help="tokens the model may write at most (default 16 a minute)")
    parser.add_argument(
        "--brain",
        action="append",
        metavar="templates|self|URL",
        help="who proposes; repeatable (default: templates and self, the served model)",
    )
    parser.add_argument("--only", action="append", default=[], metavar="DEFINITION", help="work on this one only")
    parser.add_argument("--repo", type=Path, help="repository to commit to (default: a new one in the session)")
    parser.add_argument("--out", type=Path, help="session folder (default: in the user's state folder)")
    parser.add_argument("--resume", action="store_true", help="go on with the session in --out")
    parser.add_argument("--cage", choices=("bubblewrap", "docker", "process"), default="bubblewrap")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of the engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the session came to its end with a report; 1 when the gate refused what was found."""
    from kernelwright.agent.loop import optimize
    from kernelwright.tui.progress import Progress

    options = _options(args)
    with Progress(options.minutes * 60) as progress:
        report = optimize(options, listen=progress, resume=args.resume)
    if args.json:
        print(json.dumps(report))
    else:
        print(summary(report))
    return 1 if (report.get("gate") or {}).get("passed") is False else 0


def _options(args: argparse.Namespace) -> OptimizeOptions:
    if args.resume:
        if args.out is None:
            raise WrongUse("--resume needs --out SESSION", "Name the session folder to go on with.")
        return recorded_options(args.out)
    for name in ("minutes", "attempts", "threads"):
        if getattr(args, name) <= 0:
            raise WrongUse(f"--{name} must be above 0", f"Give --{name} a positive number.")
    from kernelwright.engine.weights import find_default_model

    print("looking for the model", file=sys.stderr)
    return OptimizeOptions(
        model=(args.model or find_default_model()).absolute(),
        out=(args.out or new_session_folder()).absolute(),
        repo=args.repo.absolute() if args.repo else None,
        minutes=args.minutes,
        max_attempts=args.attempts,
        max_tokens=int(16 * args.minutes) if args.tokens is None else args.tokens,
        brains=tuple(args.brain or ("templates", "self")),
        only=tuple(args.only),
        cage=args.cage,
        threads=args.threads,
        seed=args.seed,
        command=shlex.join(["kernelwright", *sys.argv[1:]]),
    )


def summary(report: dict[str, Any]) -> str:
    """Return the result in a few lines for a person; every number with its interval and n."""
    lines = [f"session  {report['session']}"]
    for kernel in report["accepted"]:
        low, high = kernel["interval"]
        lines.append(
            f"kernel   {kernel['definition']}: {kernel['ratio']:.2f}x [{low:.2f}, {high:.2f}] kernel-level, "
            f"by {kernel['author']}, {kernel['attempts_judged']} judged"
        )
    for phase in ("decode", "prefill"):
        measured = (report.get("engine") or {}).get(phase)
        if measured:
            low, high = measured["interval"]
            lines.append(
                f"{phase:<8} {measured['incumbent_tok_s']:.1f} → {measured['patched_tok_s']:.1f} tok/s, "
                f"{measured['ratio']:.2f}x [{low:.2f}, {high:.2f}], n={measured['n']}, over HTTP"
            )
        fidelity = (report.get("fidelity") or {}).get(phase)
        if fidelity:
            lines.append(
                f"         mean KLD {fidelity['mean_kld']:.1e} (null {fidelity['null_kld']:.1e}), "
                f"top-1 {100 * fidelity['top1']:.3f} %"
            )
    if (report.get("gate") or {}).get("reason"):
        lines.append(f"gate     {report['gate']['state']}: {report['gate']['reason']}")
    lines += [f"{name:<8} {report[name]}" for name in ("branch", "commit", "report") if report.get(name)]
    return "\n".join(lines)
