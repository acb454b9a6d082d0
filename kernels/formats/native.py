"""Our own form: a folder with problem.json, and candidate.json files beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.formats.imported import Imported, Written, parse, read_text
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of

NAME = "kernelwright"


def read(path: Path, run: RunCommand) -> Imported:
    """Return problem and candidates of a folder, or of a lone problem or candidate file. Raises BrokenInput."""
    if path.is_file():
        text = read_text(path)
        if '"workloads"' in text:
            return Imported(format=NAME, problems=(parse(text, Problem, str(path)),))
        return Imported(format=NAME, candidates=(parse(text, Candidate, str(path)),))
    problem = path / "problem.json"
    problems = (parse(read_text(problem), Problem, str(problem)),) if problem.is_file() else ()
    found = [parse(read_text(p), Candidate, str(p)) for p in sorted(path.glob("candidate*.json"))]
    return Imported(format=NAME, problems=problems, candidates=tuple(found))


def write(problem: Problem, candidates: Iterable[Candidate]) -> Written:
    """Return problem.json and a candidate file for each candidate; nothing is lost."""
    files = {"problem.json": problem.model_dump_json(indent=1) + "\n"}
    for candidate in candidates:
        files[f"candidate_{digest_of(candidate)[:12]}.json"] = candidate.model_dump_json(indent=1) + "\n"
    return Written(format=NAME, files=files)
