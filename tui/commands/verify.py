"""`kernelwright verify PROBLEM CANDIDATE`: judge one candidate of a problem of ours or of another tool's."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.profiles.errors import BrokenInput, WrongUse

if TYPE_CHECKING:
    import torch

    from kernelwright.kernels.build import RunCommand
    from kernelwright.kernels.candidate import Candidate
    from kernelwright.kernels.formats.imported import Imported, Note
    from kernelwright.kernels.problem import Problem
    from kernelwright.sandbox.verdict import Verdict


WORKING_SET_BYTES = 64 << 20
"""Of the buffer that memory bandwidth is measured with, for the roofline."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "problem", type=Path,
        help="problem folder of ours or of SOL-ExecBench, FlashInfer-Trace dataset, KernelBench file, GPU MODE task",
    )  # fmt: skip
    parser.add_argument(
        "candidate", type=Path, help="candidate or solution file of any of these, or a C++ source with __tvm_ffi_run"
    )
    parser.add_argument("--definition", help="which problem, where PROBLEM holds several")
    parser.add_argument("--out", type=Path, help="folder for verdict.json and the result file of the problem's format")
    parser.add_argument("--force", action="store_true", help="overwrite files in --out")
    parser.add_argument("--bundle", type=Path, help="write the verdict's evidence to this folder, or .tar.gz file")
    parser.add_argument(
        "--model",
        type=Path,
        help="whose weights are used (default: SmolLM2-135M-Instruct)",
    )
    parser.add_argument("--phase", choices=("search", "confirm"), default="confirm")
    parser.add_argument("--cage", choices=("bubblewrap", "docker", "process"), default="bubblewrap")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def run(args: argparse.Namespace) -> int:
    """Return 0 when the verdict is `faster`, 1 otherwise."""
    from kernelwright.kernels.formats.imported import candidate_key
    from kernelwright.kernels.formats.table import read_any, sniff
    from kernelwright.tui.commands.convert import caged_probe, tell

    probe = caged_probe(args.cage)
    imported = read_any(args.problem, probe)
    problem = imported.problem(args.definition)
    solution = read_candidate(args.candidate, problem, probe, imported)
    (candidate,) = solution.candidates
    tell([*imported.notes, *solution.notes] if args.problem != args.candidate else imported.notes)
    why = solution.unmeasured.get(candidate_key(candidate))
    verdict = unmeasured(problem, candidate, args.phase, why) if why else judge(args, problem, candidate)
    if args.out:
        write_result(args, sniff(args.problem), problem, candidate, verdict)
    if args.bundle:
        write_evidence(args, problem, candidate, verdict)
    if args.json:
        print(verdict.model_dump_json())
    else:
        timed = verdict.comparison
        numbers = f" {timed.ratio:.2f}x [{timed.low:.2f}, {timed.high:.2f}], n={timed.n}" if timed else ""
        print(f"{verdict.outcome}{numbers}  {verdict.reason}  (isolation {verdict.isolation})")
    return 0 if verdict.outcome == "faster" else 1


def judge(args: argparse.Namespace, problem: Problem, candidate: Candidate) -> Verdict:
    """Return the verdict of a bench opened for this one candidate."""
    from kernelwright.profiles.ceilings import measure_ceilings
    from kernelwright.sandbox.attempts import Attempts
    from kernelwright.sandbox.selftest_record import record_path
    from kernelwright.sandbox.verify import Bench

    folder = args.problem if args.problem.is_dir() else args.problem.parent
    weights = weight_sets(problem, args.model)
    if args.phase == "confirm":
        refuse_weak(args, problem, weights)
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-verify-") as cache,
        Bench(
            problem,
            problem_dir=folder,
            weights=weights,
            cage=args.cage,
            threads=args.threads,
            cache_dir=Path(cache),
            ceilings=measure_ceilings(args.threads, WORKING_SET_BYTES),
            attempts=Attempts(record_path().with_name("attempts.json")),
            lineage="verify",
            on_progress=lambda text: print(text, file=sys.stderr, flush=True),
        ) as bench,
    ):
        return bench.confirm(candidate) if args.phase == "confirm" else bench.search(candidate)


def refuse_weak(args: argparse.Namespace, problem: Problem, weights: Sequence[Mapping[str, torch.Tensor]]) -> None:
    """Lint a problem from elsewhere; ours are held to it by a test. Raises BrokenInput when idle kernels solve it."""
    from kernelwright.kernels.registry import is_ours
    from kernelwright.sandbox.cage import open_cage
    from kernelwright.sandbox.judge_link import lint_caged

    if is_ours(problem.definition):
        return
    print("linting the problem: kernels that do not do its work must fail on it", file=sys.stderr, flush=True)
    report = lint_caged(problem, weights, cage=open_cage(args.cage), threads=args.threads)
    idle = [name for name in report.accepted if name in report.idle]
    for fault in [*report.faults, *(f"right in every case: {name}" for name in report.accepted if name not in idle)]:
        print(f"lint: {fault}", file=sys.stderr)
    if idle:
        raise BrokenInput(
            f"{problem.definition.name} cannot tell a kernel from one that does not do the work: right in every case: "
            f"{', '.join(idle)}",
            "give it inputs on which they are wrong, or judge with --phase search, which proves nothing",
        )


def write_evidence(args: argparse.Namespace, problem: Problem, candidate: Candidate, verdict: Verdict) -> None:
    """Write the verdict's evidence bundle where `--bundle` says."""
    from kernelwright.sandbox.bundle import pack_bundle, write_bundle

    folder = args.problem if args.problem.is_dir() else args.problem.parent
    if args.bundle.name.endswith(".tar.gz"):
        with tempfile.TemporaryDirectory(prefix="kernelwright-bundle-") as place:
            whole = write_bundle(Path(place) / "bundle", problem, candidate, verdict, problem_dir=folder)
            pack_bundle(whole, args.bundle)
    else:
        write_bundle(args.bundle, problem, candidate, verdict, problem_dir=folder)
    print(f"wrote {args.bundle}", file=sys.stderr)


def weight_sets(problem: Problem, model: Path | None) -> Sequence[Mapping[str, torch.Tensor]]:
    """Return a model's weights for a slot of ours, weights drawn from a fresh key for a problem from elsewhere."""
    from kernelwright.kernels.registry import is_ours
    from kernelwright.sandbox.draw import Key, draw_weights

    if is_ours(problem.definition):
        from kernelwright.engine.model_slots import ModelSlots
        from kernelwright.engine.weights import find_default_model

        slots = ModelSlots(model or find_default_model(), problem.timed_axes.get("P"))
        return slots.weights(problem.definition.name)
    key = Key.draw()
    return [
        draw_weights(
            problem.definition, problem.contract, problem.timed_axes, "normal", key.generator("imported weights", i)
        )
        for i in range(problem.num_weight_sets)
    ]  # fmt: skip


def unmeasured(problem: Problem, candidate: Candidate, phase: str, why: str) -> Verdict:
    """Return the verdict of a candidate that this machine cannot run; nothing was executed."""
    from kernelwright.profiles.digest import digest_of
    from kernelwright.sandbox.verdict import Verdict

    return Verdict(
        problem=digest_of(problem), candidate=digest_of(candidate), outcome="unmeasured", reason=why, isolation="L0",
        phase="confirm" if phase == "confirm" else "search",
    )  # fmt: skip


def write_result(
    args: argparse.Namespace, name: str, problem: Problem, candidate: Candidate, verdict: Verdict
) -> list[Path]:
    """Write verdict.json and the result file of format `name` into `args.out`; return their paths."""
    from kernelwright.kernels.formats import flashinfer_trace as fib
    from kernelwright.kernels.formats import gpu_mode, gpu_mode_writing, kernelbench, sol_execbench
    from kernelwright.kernels.formats.imported import Written, write_files
    from kernelwright.kernels.formats.traces import write_sol, write_traces
    from kernelwright.tui.commands.results import result_of

    result = result_of(verdict, candidate)
    definition = problem.definition
    files = {"verdict.json": verdict.model_dump_json(indent=1) + "\n"}
    if name == fib.NAME:
        files[f"traces/{definition.op_type}/{definition.name}.jsonl"] = write_traces(problem, result)
    elif name == sol_execbench.NAME:
        files["result.json"] = write_sol(problem, result)
    elif name == kernelbench.NAME:
        files["eval_results.json"] = kernelbench.write_results([result], kernelbench.problem_id_of(args.problem))
    elif name == gpu_mode.NAME:
        files["result.txt"] = gpu_mode_writing.write_result(problem, result)
    paths = write_files(Written(format=name, files=files), args.out, args.force)
    print(f"wrote {', '.join(str(path) for path in paths)}", file=sys.stderr)
    return paths


def read_candidate(path: Path, problem: Problem, probe: RunCommand, imported: Imported) -> Imported:
    """Return the one candidate at `path`, with notes. Raises BrokenInput, and WrongUse when there are several."""
    from kernelwright.kernels.formats.table import read_any

    if path.is_file() and (path.suffix in (".cpp", ".cc", ".cxx") or _is_plain_python(path)):
        return _plain_source(path, problem)
    found = read_any(path, probe, problem)
    mine = tuple(c for c in found.candidates if c.definition == problem.definition.name)
    if not mine:
        others = ", ".join(sorted({c.definition for c in found.candidates})) or "none"
        raise BrokenInput(f"{path} has no candidate for {problem.definition.name}, but for: {others}", "name another")
    if len(mine) > 1:
        raise WrongUse(f"{path} holds {len(mine)} candidates for {problem.definition.name}", "name one file")
    return found.model_copy(update={"candidates": mine, "notes": _new(found.notes, imported.notes)})


def _new(notes: Sequence[Note], told: Sequence[Note]) -> tuple[Note, ...]:
    return tuple(note for note in notes if note not in told)


def _is_plain_python(path: Path) -> bool:
    from kernelwright.kernels.formats import adapters
    from kernelwright.kernels.formats.imported import read_text

    if path.suffix != ".py":
        return False
    names = adapters.names_defined(read_text(path))
    return "run" in names and not names & {"ModelNew", "custom_kernel", "Model"}


def _plain_source(path: Path, problem: Problem) -> Imported:
    """Return a lone C++ or python source as a candidate."""
    from kernelwright.kernels.candidate import Candidate, SourceFile
    from kernelwright.kernels.formats.imported import Imported, read_text
    from kernelwright.kernels.isa import detect_isa

    native = path.suffix != ".py"
    candidate = Candidate(
        definition=problem.definition.name,
        language="cpp" if native else "python",
        sources=(SourceFile(path=path.name, content=read_text(path)),),
        isa=detect_isa() if native else "any",
        proposer="import",
        author=os.environ.get("USER", "unknown"),
    )
    return Imported(format="kernelwright", candidates=(candidate,))
