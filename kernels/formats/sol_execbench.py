"""SOL-ExecBench: a folder with definition.json, workload.jsonl and solution.json (reference.py for inputs of its own).

Format: NVIDIA's SOL-ExecBench (Apache-2.0), FlashInfer-Trace with other fields; our models are written from its
published schema, the package itself is not on PyPI. A speed of light is not computed here.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import Definition, RandomInput, ScalarInput, StoredInput, Workload, WorkloadInput
from kernelwright.kernels.formats import flashinfer_schema as schema
from kernelwright.kernels.formats import flashinfer_trace as fib
from kernelwright.kernels.formats.imported import (
    Imported,
    Note,
    Written,
    candidate_key,
    changed,
    identifier,
    kept,
    lost,
    made_up,
    parse,
    read_text,
    solution_name,
    strays,
)  # fmt: skip
from kernelwright.kernels.formats.posing import pose_foreign
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput

NAME = "sol-execbench"
TO_THEIRS = {"python": "pytorch", "triton": "triton", "cuda": "cuda_cpp"}
TO_OURS: dict[str, Literal["python", "triton", "cuda"]] = {
    "pytorch": "python", "triton": "triton", "cuda_cpp": "cuda", "cute_dsl": "python", "cutile": "python",
    "cudnn_frontend": "python", "cutlass": "cuda", "cudnn": "cuda", "cublas": "cuda",
}  # fmt: skip
GPU_LANGUAGES = {"triton", "cute_dsl", "cutile", "cudnn_frontend", "cutlass", "cudnn", "cublas", "cuda_cpp"}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class TheirAxis(BaseModel, frozen=True, extra="allow"):
    type: Literal["const", "var", "expr"]
    value: int | None = None
    expression: str | None = None
    description: str | None = None


class TheirDefinition(BaseModel, frozen=True, extra="allow"):
    name: str = Field(min_length=1)
    op_type: str | None = None
    hf_id: str | None = None
    custom_inputs_entrypoint: str | None = None
    axes: dict[str, TheirAxis]
    inputs: dict[str, schema.TheirTensor]
    outputs: dict[str, schema.TheirTensor]
    reference: str = Field(min_length=1)
    description: str | None = None


class TheirInput(BaseModel, frozen=True, extra="allow"):
    type: Literal["random", "scalar", "safetensors", "custom"]
    value: int | float | bool | None = None
    path: str | None = None
    tensor_key: str | None = None


class TheirWorkload(BaseModel, frozen=True, extra="allow"):
    uuid: str
    axes: dict[str, int]
    inputs: dict[str, TheirInput]
    tolerance: dict[str, Any] | None = None


class TheirSpec(BaseModel, frozen=True, extra="allow"):
    languages: tuple[str, ...] = Field(min_length=1)
    target_hardware: tuple[str, ...] = ()
    entry_point: str
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    binding: str | None = None
    compile_options: dict[str, Any] | None = None


class TheirSolution(BaseModel, frozen=True, extra="allow"):
    name: str = Field(min_length=1)
    definition: str
    author: str
    spec: TheirSpec
    sources: tuple[SourceFile, ...] = Field(min_length=1)
    description: str | None = None


def read(path: Path, run: RunCommand) -> Imported:
    """Return problem and candidates of a folder (or of a lone solution file). Raises BrokenInput naming the file."""
    if path.is_file():
        candidate, unmeasured, notes = read_solution(path, None)
        return Imported(format=NAME, candidates=(candidate,), unmeasured=unmeasured, notes=tuple(notes))
    problem, notes = read_problem(path, run)
    found, unmeasured = [], {}
    for file in sorted(path.glob("solution*.json")):
        candidate, why, more = read_solution(file, problem)
        found.append(candidate)
        unmeasured |= why
        notes += more
    return Imported(
        format=NAME, problems=(problem,), candidates=tuple(found), unmeasured=unmeasured, notes=tuple(notes)
    )


def read_problem(folder: Path, run: RunCommand) -> tuple[Problem, list[Note]]:
    """Return the problem of `folder`; its reference is executed through `run` alone."""
    where = folder / "definition.json"
    theirs = parse(read_text(where), TheirDefinition, str(where))
    if theirs.custom_inputs_entrypoint:
        raise BrokenInput(
            f"{where}: custom_inputs_entrypoint {theirs.custom_inputs_entrypoint!r}",
            "inputs made by the problem's own code cannot be drawn from the judge's key; state shapes and ranges",
        )
    notes = strays(theirs, theirs.name)
    if theirs.hf_id:
        notes.append(lost(f"{theirs.name}.hf_id", theirs.hf_id))
    if theirs.op_type is None:
        notes.append(made_up(f"{theirs.name}.op_type", "sol"))
    axes, more = _fold(theirs)
    definition = fib.to_definition(
        schema.TheirDefinition(
            name=theirs.name, op_type=theirs.op_type or "sol", axes=axes, inputs=theirs.inputs, outputs=theirs.outputs,
            reference=theirs.reference, description=theirs.description,
        ),
        str(where),
    )  # fmt: skip
    workloads, remarks = _read_workloads(folder, set(definition.axes))
    workloads = [_var_only(definition, workload) for workload in workloads]
    definition, adapted = fib.made_runnable(definition, workloads)
    problem, posed = pose_foreign(definition, workloads, None, run)
    return problem, [*notes, *more, *remarks, *adapted, *posed]


def _fold(theirs: TheirDefinition) -> tuple[dict[str, schema.TheirAxis], list[Note]]:
    """Return axes with expressions over const axes worked out. Raises BrokenInput when one depends on a var axis."""
    values = {name: axis.value for name, axis in theirs.axes.items() if axis.type == "const"}
    axes, notes = {}, []
    for name, axis in theirs.axes.items():
        if axis.type != "expr":
            axes[name] = schema.TheirAxis(type=axis.type, value=axis.value, description=axis.description)
            continue
        value = evaluate(axis.expression or "", {k: v for k, v in values.items() if v is not None})
        if value is None:
            raise BrokenInput(
                f"{theirs.name}.axes.{name}: {axis.expression!r} is no arithmetic of const axes",
                "write the axis as var, with its value in each workload",
            )
        values[name] = value
        axes[name] = schema.TheirAxis(type="const", value=value, description=axis.description)
        notes.append(changed(f"{theirs.name}.axes.{name}", f"{axis.expression} is written as {value}"))
    return axes, notes


def evaluate(expression: str, values: dict[str, int]) -> int | None:
    """Return the value of whole-number arithmetic over `values`; None for anything else."""

    def of(node: ast.expr) -> int | None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            return values.get(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = of(node.left), of(node.right)
            if left is None or right is None or (isinstance(node.op, ast.Div) and (not right or left % right)):
                return None
            return _OPERATORS[type(node.op)](left, right)
        return None

    try:
        return of(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def _read_workloads(folder: Path, axes: set[str]) -> tuple[list[Workload], list[Note]]:
    found, notes = [], []
    path = folder / "workload.jsonl"
    lines = read_text(path).splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        theirs = parse(line, TheirWorkload, f"{path}:{number}")
        notes += strays(theirs, f"workload {theirs.uuid}")
        if theirs.tolerance:
            notes.append(lost(f"workload {theirs.uuid}.tolerance", f"{theirs.tolerance}: the judge's own gates decide"))
        inputs = {name: _input(given, f"{path}:{number} {name}") for name, given in theirs.inputs.items()}
        if unknown := set(theirs.axes) - axes:
            raise BrokenInput(f"{path}:{number} names unknown axes {', '.join(sorted(unknown))}", "mend the workload")
        found.append(Workload(uuid=theirs.uuid, axes=theirs.axes, inputs=inputs))
    return found, notes


def _var_only(definition: Definition, workload: Workload) -> Workload:
    axes = {name: value for name, value in workload.axes.items() if definition.axes[name].value is None}
    return Workload(uuid=workload.uuid, axes=axes, inputs=workload.inputs)


def _input(given: TheirInput, where: str) -> WorkloadInput:
    if given.type == "random":
        return RandomInput()
    if given.type == "scalar" and given.value is not None:
        return ScalarInput(value=given.value)
    if given.type == "safetensors" and given.path and given.tensor_key:
        return StoredInput(path=given.path, tensor_key=given.tensor_key)
    raise BrokenInput(f"{where}: an input of type {given.type} cannot be used", "random, scalar and safetensors can")


def read_solution(path: Path, problem: Problem | None) -> tuple[Candidate, dict[str, str], list[Note]]:
    """Return the candidate of a solution file, why it cannot be judged, and notes. Raises BrokenInput."""
    theirs = parse(read_text(path), TheirSolution, str(path))
    notes = [*strays(theirs, theirs.name), *strays(theirs.spec, f"{theirs.name}.spec")]
    unknown = [name for name in theirs.spec.languages if name not in TO_OURS]
    if unknown:
        raise BrokenInput(f"{path}: unknown language {', '.join(unknown)}", f"known: {', '.join(TO_OURS)}")
    gpu = [name for name in theirs.spec.languages if name in GPU_LANGUAGES]
    language = TO_OURS[gpu[0] if gpu else theirs.spec.languages[0]]
    if len(theirs.spec.languages) > 1 or theirs.spec.languages[0] not in TO_THEIRS.values():
        notes.append(
            changed(f"{theirs.name}.spec.languages", f"{', '.join(theirs.spec.languages)} is read as {language}")
        )
    if any((theirs.spec.compile_options or {}).values()):
        notes.append(lost(f"{theirs.name}.spec.compile_options", str(theirs.spec.compile_options)))
    common = schema.Solution(
        name=theirs.name, definition=theirs.definition, author=theirs.author, sources=theirs.sources,
        description=theirs.description,
        spec=schema.BuildSpec(
            language=language, target_hardware=theirs.spec.target_hardware, entry_point=theirs.spec.entry_point,
            dependencies=theirs.spec.dependencies, destination_passing_style=theirs.spec.destination_passing_style,
            binding="torch" if theirs.spec.binding == "torch" else None,
        ),
    )  # fmt: skip
    candidate, why, more = fib.to_candidate(common, problem.definition if problem else None, str(path))
    candidate = Candidate.model_validate({**candidate.model_dump(), "notes": f"SOL-ExecBench solution {theirs.name}"})
    why = f"it is written for a GPU ({', '.join(gpu)}), and this machine's judge has none" if gpu else why
    return candidate, ({candidate_key(candidate): why} if why else {}), [*notes, *more]


def write(problem: Problem, candidates: Iterable[Candidate]) -> Written:
    """Return definition.json, workload.jsonl and solution_N.json, with what SOL-ExecBench has no word for."""
    base = fib.write(problem, ())
    definition, notes = problem.definition, [n for n in base.notes if n.what.startswith(definition_prefix(problem))]
    place = f"{definition.op_type}/{definition.name}"
    theirs = json.loads(base.files[f"definitions/{place}.json"])
    for field in ("tags", "constraints"):
        if theirs.pop(field, None):
            notes.append(lost(field, f"{', '.join(getattr(definition, field))}: SOL-ExecBench has no such field"))
    files = {"definition.json": json.dumps(theirs, indent=2, ensure_ascii=False) + "\n"}
    lines = [{**w.model_dump(mode="json"), "tolerance": TOLERANCE} for w in problem.workloads]
    if not lines:
        lines = [
            {"uuid": "timed", "axes": dict(problem.timed_axes), "inputs": _random(problem), "tolerance": TOLERANCE}
        ]
        notes.append(made_up("workload timed", "the timed shape, SOL-ExecBench needs one"))
    notes.append(made_up("tolerance", "1e-2, ratio 0.99: SOL-ExecBench's own default"))
    files["workload.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines)
    notes.append(
        lost(
            "contract, incumbent, ranges, timed shape, precision, distributions", "SOL-ExecBench has no place for them"
        )
    )
    for number, candidate in enumerate(candidates):
        plain = f"{identifier(candidate.author)}_{definition.name}_{digest_of(candidate)[:8]}"
        name = solution_name(candidate, plain)
        if candidate.language not in TO_THEIRS or candidate.prepare:
            what = "a packing step" if candidate.language in TO_THEIRS else candidate.language
            notes.append(lost(f"candidate of {candidate.author}", f"SOL-ExecBench has no place for {what}"))
            continue
        files[f"solution_{number}.json"] = json.dumps(_solution(candidate, name), indent=2, ensure_ascii=False) + "\n"
        notes.append(lost(f"{name}: ranges, isa, compile_flags, parent, parameters, proposer", "no such fields"))
        notes.append(made_up(f"{name}.spec.target_hardware", "LOCAL"))
    if any(i.type == "safetensors" for w in problem.workloads for i in w.inputs.values()):
        notes.append(kept("safetensors files", "named by the workloads; copy them beside the folder"))
    return Written(format=NAME, files=files, notes=tuple(notes))


TOLERANCE: dict[str, Any] = {"max_atol": 0.01, "max_rtol": 0.01, "required_matched_ratio": 0.99}


def definition_prefix(problem: Problem) -> str:
    """Return what notes about the definition's own tensors begin with."""
    return f"{problem.definition.name}."


def _random(problem: Problem) -> dict[str, Any]:
    from kernelwright.kernels.formats.traces import timed_workload

    dump = timed_workload(problem).model_dump(mode="json")["inputs"]
    return dict(dump)


def _solution(candidate: Candidate, name: str) -> dict[str, Any]:
    return {
        "name": name, "definition": candidate.definition, "author": candidate.author,
        "spec": {
            "languages": [TO_THEIRS[candidate.language]], "target_hardware": ["LOCAL"],
            "entry_point": f"{candidate.sources[0].path}::{candidate.entry_point}", "dependencies": [],
            "destination_passing_style": candidate.language == "cuda", "binding": None,
            "compile_options": {"cflags": [], "cuda_cflags": [], "ld_flags": []},
        },
        "sources": [s.model_dump() for s in candidate.sources],
        **({"description": candidate.notes} if candidate.notes else {}),
    }  # fmt: skip
