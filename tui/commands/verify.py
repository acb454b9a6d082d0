"""`kernelwright verify PROBLEM CANDIDATE`: judge one candidate of a problem folder that `optimize` posed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from kernelwright.kernels.candidate import Candidate
    from kernelwright.kernels.problem import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", type=Path, help="problem folder (SESSION/problems/<definition>)")
    parser.add_argument("candidate", type=Path, help="candidate.json, or a C++ source file with __tvm_ffi_run")
    parser.add_argument("--model", type=Path, help="GGUF file whose weights are used (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--phase", choices=("search", "confirm"), default="confirm")
    parser.add_argument("--cage", choices=("bubblewrap", "docker", "process"), default="bubblewrap")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def run(args: argparse.Namespace) -> int:
    """Return 0 when the verdict is `faster`, 1 otherwise."""
    from kernelwright.engine.model_slots import ModelSlots
    from kernelwright.engine.weights import find_default_model
    from kernelwright.kernels.problem import Problem
    from kernelwright.sandbox.verify import Bench

    problem = _read(args.problem / "problem.json", Problem)
    candidate = read_candidate(args.candidate, problem)
    slots = ModelSlots(args.model or find_default_model(), problem.timed_axes.get("P"))
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-verify-") as cache,
        Bench(
            problem,
            problem_dir=args.problem,
            weights=slots.weights(problem.definition.name),
            cage=args.cage,
            threads=args.threads,
            cache_dir=Path(cache),
            on_progress=lambda text: print(text, file=sys.stderr, flush=True),
        ) as bench,
    ):
        verdict = bench.confirm(candidate) if args.phase == "confirm" else bench.search(candidate)
    if args.json:
        print(verdict.model_dump_json())
    else:
        timed = verdict.comparison
        numbers = f" {timed.ratio:.2f}x [{timed.low:.2f}, {timed.high:.2f}], n={timed.n}" if timed else ""
        print(f"{verdict.outcome}{numbers}  {verdict.reason}  (isolation {verdict.isolation})")
    return 0 if verdict.outcome == "faster" else 1


def read_candidate(path: Path, problem: Problem) -> Candidate:
    """Return the candidate of a JSON file, or one made from a lone C++ source. Raises BrokenInput."""
    from kernelwright.kernels.candidate import Candidate, SourceFile
    from kernelwright.kernels.isa import detect_isa

    if path.suffix == ".json":
        return _read(path, Candidate)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenInput(f"cannot read {path}: {error}", "Give a candidate.json or a C++ source file.") from error
    source = SourceFile(path=path.name, content=content)
    return Candidate(
        definition=problem.definition.name,
        language="cpp",
        sources=(source,),
        isa=detect_isa(),
        proposer="import",
        author=os.environ.get("USER", "unknown"),
    )


Noun = TypeVar("Noun", bound=BaseModel)


def _read(path: Path, noun: type[Noun]) -> Noun:
    try:
        return noun.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenInput(f"cannot read {path}: {error}", "Name a folder or file that `optimize` wrote.") from error
    except ValidationError as error:
        raise BrokenInput(f"{path} is no {noun.__name__}: {error}", "It may be of another version.") from error
