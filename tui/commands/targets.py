"""`kernelwright targets PROFILE`: ranked targets of a profile written by `profile --out`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pydantic import ValidationError

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", type=Path, help="a profile written by `kernelwright profile --out`")


def run(args: argparse.Namespace) -> int:
    from kernelwright.kernels.registry import OPS
    from kernelwright.profiles.rank import rank_targets
    from kernelwright.profiles.table import print_table, tabulate_targets

    profile = read_profile(args.profile)
    targets = rank_targets(profile, lambda name: any(name.startswith(op + "_") for op in OPS))
    if args.json:
        print(json.dumps({"targets": [target.model_dump(mode="json") for target in targets]}))
    else:
        print_table(tabulate_targets(targets))
    return 0


def read_profile(path: Path) -> Profile:
    """Raises BrokenInput when the file is missing or no profile."""
    try:
        return Profile.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenInput(
            f"cannot read {path}: {error}", "Write one with `kernelwright profile --out FILE`."
        ) from error
    except ValidationError as error:
        raise BrokenInput(
            f"{path} is no profile: {error}", "Write one with `kernelwright profile --out FILE`."
        ) from error
