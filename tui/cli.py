"""The front door: `kernelwright VERB …`.

stdout is for results, stderr for talk. With `--json` the last line of stdout is one JSON object, also when the exit
code is not 0. Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 the environment lacks something, 4 input broken,
5 interrupted (resumable), 6 to 10 what is wrong with a trace (`profiles/errors.py`). Each verb lives in
`tui/commands/<verb>.py` (with _ for -) with `add_arguments(parser)` and `run(args)`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from kernelwright.profiles.errors import Interrupted, KernelwrightError

VERBS = {
    "doctor": "what this machine has and lacks",
    "serve": "serve a model with the embedded engine, OpenAI-compatible",
    "optimize": "the loop: profile, rewrite, judge, gate, commit, report",
    "profile": "a trace or a served model: where the time goes, per slot and phase",
    "compare": "what changed between two traces, with an exit code for CI",
    "targets": "ranked targets of a profile",
    "verify": "judge one candidate of a problem, of ours or of another tool's",
    "verify-bundle": "judge the verdict of an evidence bundle again",
    "convert": "problems and solutions from one tool's format to another's, with a loss report",
    "selftest": "the judge against exploits and honest controls, on this machine",
    "bench": "load a server: time to first token, per token, throughput, goodput",
    "gate": "incumbent against a kernel pack in the served engine: speed and fidelity",
    "report": "write the reports of a session again",
    "image": "build a container image from a session",
    "tui": "follow a live session, or open a finished one",
}


class _ShowVersion(argparse.Action):
    """Looks the version up only where it is asked for: that reads the metadata of what is installed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"kernelwright {version('kernelwright')}")
        parser.exit()


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """Return the parser. Only the module of `verb` is imported, so that `--help` and `doctor` stay fast."""
    parser = argparse.ArgumentParser(
        prog="kernelwright", description="A served model makes its own inference engine faster."
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == verb:
            _command(name).add_arguments(command)
            if not any(action.dest == "json" for action in command._actions):
                command.add_argument("--json", action="store_true", help="end with one JSON object on stdout")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; the console script passes it to `sys.exit`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    args = build_parser(verb).parse_args(arguments)
    module = _command(args.verb)
    try:
        return int(module.run(args))
    except KernelwrightError as error:
        return _tell(error, args.json)
    except KeyboardInterrupt:
        again = "with --resume to go on" if hasattr(args, "resume") else "again"
        return _tell(Interrupted("interrupted", f"Run the same command {again}."), args.json)
    except BrokenPipeError:
        # The reader of our stdout has gone (`… | head`); keep the interpreter's own flush from failing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            full = KernelwrightError(f"no space left: {error.filename or error}", "Free some space, then go on.")
            full.exit_code = 3
            return _tell(full, args.json)
        raise


def _command(verb: str) -> Any:
    return importlib.import_module(f"kernelwright.tui.commands.{verb.replace('-', '_')}")


def _tell(error: KernelwrightError, as_json: bool) -> int:
    print(f"kernelwright: {error.message}", file=sys.stderr)
    if error.remedy:
        print(error.remedy, file=sys.stderr)
    if as_json:
        kind = type(error).__name__
        print(json.dumps({"error": {"kind": kind, "message": error.message, "remedy": error.remedy}}))
    return error.exit_code
