"""Ask the probing program, in whatever holds it, about a problem; parse its answer strictly.

The functions take a `RunCommand`, as the build does: the sandbox gives one that runs in a cage.
"""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.formats.imported import parse
from kernelwright.kernels.ops.draws import DISTRIBUTIONS
from kernelwright.profiles.errors import BrokenInput

SECONDS = 300.0
ANSWER_BYTES = 4 << 20
MAX_NON_FINITE = 0.01
_EXPRESSION = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.USub,
)  # fmt: skip


class Described(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A tensor as it was seen."""

    shape: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None
    triangle: str = ""
    of: str = ""
    """The dotted name of a parameter."""


def _is_plain(expression: str) -> str:
    tree = ast.parse(f"({expression},)" if expression else "()", mode="eval")
    if not all(isinstance(node, _EXPRESSION) for node in ast.walk(tree)):
        raise ValueError("not a plain expression")
    return expression


class KernelBenchFacts(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    init: str
    """Arguments of the constructor, as python text."""
    call: str
    """Arguments of forward, as python text over the inputs' names."""
    inputs: dict[str, Described]
    parameters: dict[str, Described]
    buffers: tuple[str, ...]
    outputs: tuple[Described, ...]

    @field_validator("init", "call")
    @classmethod
    def _plain(cls, text: str) -> str:
        return _is_plain(text)


class SolutionFacts(BaseModel, frozen=True, extra="forbid"):
    parameters: dict[str, tuple[int, ...]]


class GpuModeCase(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    call: str
    inputs: dict[str, Described]
    written: tuple[str, ...]
    """Inputs that the reference writes in place."""
    scalars: dict[str, int | float | bool | str | None]
    outputs: tuple[Described, ...]

    @field_validator("call")
    @classmethod
    def _plain(cls, text: str) -> str:
        return _is_plain(text)


class GpuModeFacts(BaseModel, frozen=True, extra="forbid"):
    cases: tuple[GpuModeCase, ...]


class Examined(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What running a reference on drawn inputs shows."""

    non_finite: dict[str, float]
    """Distribution → share of non-finite output elements."""
    deterministic: bool
    fp64_trouble: str
    """What it raised when given float64 inputs, or ''."""
    fp64_narrow: tuple[str, ...]
    """Outputs that are no float64 even then."""
    weak: str
    """Why its results could be guessed, or ''."""

    def finite(self) -> tuple[str, ...]:
        """Return the distributions that leave at most 1 % of the output non-finite; () when all do."""
        good = tuple(name for name, share in self.non_finite.items() if share <= MAX_NON_FINITE)
        return () if len(good) == len(self.non_finite) else good


def probe_kernelbench(source: str, run: RunCommand) -> KernelBenchFacts:
    """Execute a KernelBench problem through `run`. Raises BrokenInput with what it raised."""
    return parse(ask({"kind": "kernelbench", "source": source}, run), KernelBenchFacts, "the probe's answer")


def probe_solution(source: str, init: str, run: RunCommand, entry: str = "ModelNew") -> SolutionFacts:
    """Construct a KernelBench solution's module through `run`. Raises BrokenInput with what it raised."""
    job = {"kind": "solution", "source": source, "init": init, "entry": entry}
    return parse(ask(job, run), SolutionFacts, "the probe's answer")


def probe_gpu_mode(source: str, specs: list[dict[str, Any]], run: RunCommand) -> GpuModeFacts:
    """Run generate_input and ref_kernel for each spec through `run`. Raises BrokenInput with what it raised."""
    return parse(ask({"kind": "gpu_mode", "source": source, "specs": specs}, run), GpuModeFacts, "the probe's answer")


def examine(definition: Definition, axes: dict[str, int], run: RunCommand) -> Examined:
    """Run the reference on inputs of every distribution through `run`. Raises BrokenInput with what it raised."""
    job = {
        "kind": "examine", "definition": definition.model_dump_json(), "axes": axes,
        "distributions": [name for name in DISTRIBUTIONS if name != "exact"],
    }  # fmt: skip
    return parse(ask(job, run), Examined, "the probe's answer")


def ask(job: dict[str, Any], run: RunCommand) -> str:
    """Return the JSON text the probing program wrote about `job`. Raises BrokenInput."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-probe-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "kernelwright.kernels.formats.probing"]
        done = run(command, folder, SECONDS)
        answer = _take(folder / "found.json")
    if answer is None:
        how = "took too long" if done.returncode is None else f"ended with status {done.returncode}"
        raise BrokenInput(f"reading the problem {how}: {done.log.strip()[-600:]}", "run its code by hand to see why")
    try:
        error = json.loads(answer).get("error")
    except (ValueError, AttributeError):
        raise BrokenInput("the probe's answer is no JSON object", "the problem's code wrote over it") from None
    if error:
        raise BrokenInput(f"the problem's code cannot be used: {str(error)[:800]}", "mend it, or leave it out")
    return answer


def _take(path: Path) -> str | None:
    """Return the answer; the folder was writable to untrusted code, so nothing but a small plain file is taken."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > ANSWER_BYTES:
            return None
        return os.pread(fd, ANSWER_BYTES, 0).decode(errors="replace")
    finally:
        os.close(fd)
