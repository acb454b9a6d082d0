"""`kernelwright image build SESSION`: a container image that serves with the session's kernels live."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="build, start and ask the image")
    build.add_argument("session", type=Path)
    build.add_argument("--base", help="base image (default: made from a local root filesystem by debootstrap)")
    build.add_argument("--tag", default="kernelwright:latest")
    build.add_argument("--json", action="store_true", help="end with one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the image was built and proved live, 1 when only the context could be written."""
    from kernelwright.engine.image import build_image

    image = build_image(
        args.session, base=args.base, tag=args.tag, on_progress=lambda text: print(text, file=sys.stderr, flush=True)
    )
    print(image.model_dump_json() if args.json else _summary(image.model_dump()))
    return 0 if image.state == "live" else 1


def _summary(image: dict[str, object]) -> str:
    return "\n".join(f"{name:<18} {value}" for name, value in image.items() if value not in (None, ""))
