"""`kernelwright tui [SESSION]`: the terminal screens."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelwright.agent.sessions import latest_session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", type=Path, help="session folder (default: the latest one)")


def run(args: argparse.Namespace) -> int:
    from kernelwright.tui.app import run_app

    return run_app(args.session or latest_session())
