"""The table of formats: what a path holds, how it is read, and how a problem is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.formats import (
    adapters,
    flashinfer_trace,
    gpu_mode,
    gpu_mode_writing,
    kernelbench,
    native,
    sol_execbench,
)
from kernelwright.kernels.formats.imported import Imported, Written, read_text
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse

WRITERS: dict[str, Callable[[Problem, Iterable[Candidate]], Written]] = {
    native.NAME: native.write,
    flashinfer_trace.NAME: flashinfer_trace.write,
    sol_execbench.NAME: sol_execbench.write,
    kernelbench.NAME: kernelbench.write,
    gpu_mode.NAME: gpu_mode_writing.write,
}
FORMATS = tuple(WRITERS)


def sniff(path: Path) -> str:
    """Return the format of a folder or file. Raises BrokenInput when it is none that is known."""
    if path.is_dir():
        return _sniff_folder(path)
    text = read_text(path)
    if path.suffix == ".py":
        names = adapters.names_defined(text)
        if "custom_kernel" in names:
            return gpu_mode.NAME
        if names & {"Model", "ModelNew"}:
            return kernelbench.NAME
        raise _unknown(path, "it defines none of Model, ModelNew and custom_kernel")
    if path.suffix in (".yml", ".yaml"):
        return gpu_mode.NAME
    try:
        keys = json.loads(text)
    except ValueError as error:
        raise BrokenInput(f"{path} is no JSON: {error}", "mend the file") from error
    if not isinstance(keys, dict):
        raise _unknown(path, "it is no JSON object")
    return _sniff_json(path, keys)


def _sniff_folder(path: Path) -> str:
    if (path / "task.yml").is_file():
        return gpu_mode.NAME
    if (path / "definitions").is_dir() or (path / "solutions").is_dir():
        return flashinfer_trace.NAME
    if (path / "problem.json").is_file() or list(path.glob("candidate*.json")):
        return native.NAME
    if (path / "definition.json").is_file() or list(path.glob("solution*.json")):
        return sol_execbench.NAME
    if list(path.glob("*.py")):
        return kernelbench.NAME
    raise _unknown(path, "it has no problem.json, definition.json, definitions/, task.yml or python files")


def _sniff_json(path: Path, keys: dict[str, object]) -> str:
    if {"proposer", "language"} <= set(keys) or {"contract", "incumbent"} <= set(keys):
        return native.NAME
    spec = keys.get("spec")
    if isinstance(spec, dict):
        return sol_execbench.NAME if "languages" in spec else flashinfer_trace.NAME
    if {"axes", "reference"} <= set(keys):
        return flashinfer_trace.NAME
    raise _unknown(path, "its fields are those of no format")


def _unknown(path: Path, why: str) -> BrokenInput:
    return BrokenInput(f"{path} is of no known format: {why}", f"known: {', '.join(FORMATS)}; see docs/formats.md")


def read_any(path: Path, run: RunCommand, problem: Problem | None = None) -> Imported:
    """Return what `path` holds, its format found out. Code of problems is executed through `run` alone.

    `problem` is needed for a lone ModelNew or custom_kernel, which say nothing of inputs. Raises BrokenInput, WrongUse.
    """
    found = sniff(path)
    if found == native.NAME:
        return native.read(path, run)
    if found == flashinfer_trace.NAME:
        return flashinfer_trace.read(path, run) if problem is None or path.is_dir() else _solution(found, path, problem)
    if found == sol_execbench.NAME:
        return sol_execbench.read(path, run) if problem is None or path.is_dir() else _solution(found, path, problem)
    if found == kernelbench.NAME:
        return _read_kernelbench(path, run, problem)
    return _read_gpu_mode(path, run, problem)


def _solution(name: str, path: Path, problem: Problem) -> Imported:
    definition = problem.definition
    if name == flashinfer_trace.NAME:
        candidate, why, notes = flashinfer_trace.read_solution(path, None, {definition.name: definition})
    else:
        candidate, why, notes = sol_execbench.read_solution(path, problem)
    return Imported(format=name, candidates=(candidate,), unmeasured=why, notes=tuple(notes))


def _read_kernelbench(path: Path, run: RunCommand, problem: Problem | None) -> Imported:
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    texts = {file: read_text(file) for file in files}
    posed = [f for f in files if kernelbench.is_problem(texts[f]) and not kernelbench.is_solution(texts[f])]
    solved = [f for f in files if kernelbench.is_solution(texts[f])]
    if problem is None and not posed:
        if len(files) == 1 and solved:
            raise WrongUse(f"{path} is a solution, which says nothing of inputs", "name its problem too")
        raise BrokenInput(f"{path} has no file with Model and get_inputs", "name a KernelBench problem")
    if len(posed) > 1:
        raise WrongUse(f"{path} holds {len(posed)} problems", "name one file")
    whole = [kernelbench.read_problem(file, run) for file in posed if problem is None]
    posed_problem = problem or whole[0].problem()
    whole += [kernelbench.read_solution(file, posed_problem, run) for file in solved]
    return join(kernelbench.NAME, whole)


def _read_gpu_mode(path: Path, run: RunCommand, problem: Problem | None) -> Imported:
    if path.is_file() and path.suffix == ".py":
        if problem is None:
            raise WrongUse(f"{path} is a submission, which says nothing of inputs", "name its task too")
        return gpu_mode.read_submission(path, problem)
    folder = path if path.is_dir() else path.parent
    whole = [gpu_mode.read_problem(folder, run)]
    for file in sorted(folder.glob("submission*.py")):
        whole.append(gpu_mode.read_submission(file, whole[0].problem()))
    return join(gpu_mode.NAME, whole)


def join(name: str, parts: Iterable[Imported]) -> Imported:
    """Return several readings as one."""
    parts = list(parts)
    return Imported(
        format=name,
        problems=tuple(p for part in parts for p in part.problems),
        candidates=tuple(c for part in parts for c in part.candidates),
        unmeasured={key: why for part in parts for key, why in part.unmeasured.items()},
        notes=tuple(dict.fromkeys(n for part in parts for n in part.notes)),
    )


def write_as(name: str, imported: Imported, definition: str | None = None) -> Written:
    """Return `imported` in the format `name`: its one problem (or that of `definition`) and the candidates for it.

    Raises WrongUse for an unknown format, BrokenInput when the format cannot hold it.
    """
    if name not in WRITERS:
        raise WrongUse(f"unknown format {name!r}", f"known: {', '.join(FORMATS)}")
    problem = imported.problem(definition)
    mine = [c for c in imported.candidates if c.definition == problem.definition.name]
    return WRITERS[name](problem, mine)
