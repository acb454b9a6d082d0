"""GPU MODE: a folder with task.yml and reference.py (generate_input, ref_kernel); submission.py with custom_kernel.

Format: the task.yml of GPU MODE's competitions; parser and writer are our own. Tests and benchmarks become workloads;
the nested `data` a kernel gets is taken apart into named inputs and put together again in front of the kernel.
"""

from __future__ import annotations

import ast
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import (
    Axis,
    Definition,
    RandomInput,
    ScalarInput,
    TensorSpec,
    Workload,
    WorkloadInput,
)  # fmt: skip
from kernelwright.kernels.formats import adapters
from kernelwright.kernels.formats.gpu_mode_source import (
    FACTS,
    kernel_adapter,
    reference_adapter,
)  # fmt: skip
from kernelwright.kernels.formats.imported import (
    Imported,
    Note,
    candidate_key,
    changed,
    faults,
    identifier,
    kept,
    lost,
    read_text,
    strays,
)  # fmt: skip
from kernelwright.kernels.formats.posing import pose_foreign
from kernelwright.kernels.formats.probe import GpuModeCase, probe_gpu_mode
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse

NAME = "gpu-mode"
Spec = dict[str, int | float | bool | str]
MAX_SPECS = 32
PROVIDED = {"eval.py"}
"""Files of a task that only drive it; they are not read."""


class TaskFile(BaseModel, frozen=True, extra="allow"):
    name: str
    source: str


class Task(BaseModel, frozen=True, extra="allow"):
    files: tuple[TaskFile, ...] = ()
    lang: str = "py"
    description: str = ""
    config: dict[str, Any] = {}
    templates: dict[str, str] = {}
    tests: tuple[Spec, ...] = ()
    benchmarks: tuple[Spec, ...] = ()
    test_timeout: int | None = None
    benchmark_timeout: int | None = None
    ranked_timeout: int | None = None
    ranking_by: Literal["last", "mean", "geom"] = "last"


def read_task(path: Path) -> Task:
    """Return task.yml. Raises BrokenInput."""
    try:
        found = yaml.safe_load(read_text(path))  # type: ignore[no-untyped-call]
        return Task.model_validate(found)
    except yaml.YAMLError as error:
        raise BrokenInput(f"{path} is no YAML: {error}", "mend the file") from error
    except ValidationError as error:
        raise BrokenInput(f"{path} is no task: {faults(error)}", "mend the file") from error


def read_problem(folder: Path, run: RunCommand) -> Imported:
    """Return the problem of a task's folder; its code is executed through `run` alone. Raises BrokenInput."""
    task = read_task(folder / "task.yml")
    if task.lang != "py":
        raise BrokenInput(f"{folder}: lang is {task.lang}", "only python tasks have a reference that can be run here")
    specs = [*task.tests, *task.benchmarks]
    if not specs:
        raise BrokenInput(f"{folder / 'task.yml'} has neither tests nor benchmarks", "add one")
    notes = [*strays(task, "task.yml"), *_task_notes(task)]
    if len(specs) > MAX_SPECS:
        notes.append(lost(f"{len(specs) - MAX_SPECS} tests", f"only the first {MAX_SPECS} and the benchmarks are read"))
        specs = [*task.tests[: max(0, MAX_SPECS - len(task.benchmarks))], *task.benchmarks][:MAX_SPECS]
    files = _python_files(folder, task)
    on_cpu = {name: adapters.on_cpu(text) for name, text in files.items()}
    if on_cpu != files:
        notes.append(changed("device", '"cuda" in the sources is read as "cpu"'))
    source = adapters.bundle(on_cpu, "reference.py")
    cases = probe_gpu_mode(source, [dict(spec) for spec in specs], run).cases
    definition, axes = define(folder, source, cases, specs, task)
    workloads = [_workload(definition, s, a, c) for s, a, c in zip(specs, axes, cases, strict=True)]
    timed = workloads[-1] if task.benchmarks else None
    problem, posed = pose_foreign(definition, _distinct(workloads), None, run, timed)
    if len(_distinct(workloads)) < len(workloads):
        notes.append(changed("tests", "those that differ in their seed alone are one workload"))
    if any(case.written for case in cases):
        written = ", ".join(sorted({name for case in cases for name in case.written}))
        notes.append(changed(written, "written in place by the reference: each call gets a copy"))
    return Imported(format=NAME, problems=(problem,), notes=(*notes, *posed))


def _kept(task: Task) -> dict[str, Any]:
    """Return what task.yml says beside its files, to be written back."""
    return {**task.model_dump(mode="json", exclude={"files"}), **(task.model_extra or {})}


def _task_notes(task: Task) -> list[Note]:
    notes = [
        kept("seed", "not used: inputs are drawn from the judge's key; generate_input tells shapes, dtypes and ranges"),
        kept("check_implementation", "not used: the judge's own gates decide"),
        kept(f"ranking_by {task.ranking_by}", "not used: one shape is timed, the last benchmark"),
    ]
    if task.templates:
        notes.append(lost("templates", f"the files {', '.join(task.templates.values())} are not read"))
    return notes


def _python_files(folder: Path, task: Task) -> dict[str, str]:
    """Return the task's python files by the name they are imported under. Raises BrokenInput when one is missing."""
    named = {f.name: f.source for f in task.files} or {"reference.py": "reference.py"}
    wanted = {n: s for n, s in named.items() if n.endswith(".py") and n not in PROVIDED and not s.startswith("@")}
    found = {}
    for name, source in wanted.items():
        path = folder / source
        if not path.is_file() and (folder / name).is_file():
            path = folder / name
        found[name] = read_text(path)
    if "reference.py" not in found:
        raise BrokenInput(f"{folder / 'task.yml'} names no reference.py", "add it to files")
    return found


def define(
    folder: Path, source: str, cases: Sequence[GpuModeCase], specs: Sequence[Spec], task: Task
) -> tuple[Definition, list[dict[str, int]]]:
    """Return the definition and, for each case, the values of its var axes.

    A dimension that keeps its size is a const axis; one that varies with the specs is a var axis, named after the
    number of the spec it equals in all of them. Raises BrokenInput when structure or dtypes change between specs.
    """
    first = cases[0]
    for case in cases:
        if (case.call, list(case.inputs), _dtypes(case), case.written) != (
            first.call, list(first.inputs), _dtypes(first), first.written,
        ):  # fmt: skip
            raise BrokenInput(f"{folder}: the structure of the input changes between tests", "split the task")
    columns: dict[tuple[int, ...], str] = {}
    tensors = {n: [c.inputs[n].shape for c in cases] for n in first.inputs}
    outputs = {
        ("output" if i == 0 else f"output_{i}"): [c.outputs[i].shape for c in cases] for i in range(len(first.outputs))
    }
    for name, shapes in {**tensors, **outputs}.items():
        for dim, sizes in enumerate(zip(*shapes, strict=True)):
            columns.setdefault(sizes, _axis_name(name, dim, sizes, specs, columns.values()))
    axes = {
        name: Axis(type="const", value=sizes[0]) if len(set(sizes)) == 1 else Axis(type="var")
        for sizes, name in columns.items()
    }
    scalars = {
        n: TensorSpec(shape=None, dtype="float64" if isinstance(v, float) else "int64")
        for n, v in first.scalars.items()
    }
    order = _order(first)
    made = {
        **{
            n: TensorSpec(shape=_axes_of(shapes, columns), dtype=first.inputs[n].dtype) for n, shapes in tensors.items()
        },
        **scalars,
    }
    draft = Definition(
        name=identifier(folder.resolve().name), op_type="gpu_mode", axes=axes, inputs={n: made[n] for n in order},
        outputs={
            n: TensorSpec(shape=_axes_of(s, columns), dtype=first.outputs[i].dtype)
            for i, (n, s) in enumerate(outputs.items())
        },
        reference=source, description=task.description.strip() or None, constraints=tuple(_constraints(cases)),
    )  # fmt: skip
    reference = adapters.with_adapter(source, reference_adapter(draft, first.call, first.written, _kept(task)))
    values = [
        {name: sizes[i] for sizes, name in columns.items() if axes[name].type == "var"} for i in range(len(cases))
    ]
    return Definition.model_validate({**draft.model_dump(), "reference": reference}), values


def _order(case: GpuModeCase) -> list[str]:
    """Return the leaves in the order they appear in the call."""
    names = {*case.inputs, *case.scalars}
    found = [n.id for n in ast.walk(ast.parse(case.call, mode="eval")) if isinstance(n, ast.Name) and n.id in names]
    return sorted(dict.fromkeys(found), key=lambda name: re.search(rf"\b{name}\b", case.call).start())  # type: ignore[union-attr]


def _dtypes(case: GpuModeCase) -> list[tuple[str, int]]:
    return [(t.dtype, len(t.shape)) for t in (*case.inputs.values(), *case.outputs)]


def _axis_name(name: str, dim: int, sizes: tuple[int, ...], specs: Sequence[Spec], taken: Iterable[str]) -> str:
    for key in specs[0]:
        if tuple(spec.get(key) for spec in specs) == sizes and key not in taken:
            return identifier(key, taken)
    return identifier(f"d{sizes[0]}" if len(set(sizes)) == 1 else f"{name}_d{dim}", taken)


def _axes_of(shapes: Sequence[tuple[int, ...]], columns: dict[tuple[int, ...], str]) -> tuple[str, ...]:
    return tuple(columns[sizes] for sizes in zip(*shapes, strict=True))


def _constraints(cases: Sequence[GpuModeCase]) -> Iterable[str]:
    for name, seen in cases[0].inputs.items():
        lows, highs = [c.inputs[name].low for c in cases], [c.inputs[name].high for c in cases]
        if seen.low is not None:
            low = min(v for v in lows if v is not None)
            yield f"{name} >= {low}"
            yield f"{name} <= {max(low, min(v for v in highs if v is not None))}"
        if seen.triangle and all(c.inputs[name].triangle == seen.triangle for c in cases):
            yield f"{seen.triangle}({name})"
    for name in cases[0].scalars:
        yield f"{name} == {cases[-1].scalars[name]!r}"


def _workload(definition: Definition, spec: Spec, axes: dict[str, int], case: GpuModeCase) -> Workload:
    inputs: dict[str, WorkloadInput] = {n: RandomInput() for n in case.inputs}
    inputs |= {n: ScalarInput(value=v) for n, v in case.scalars.items() if isinstance(v, int | float)}
    name = workload_uuid(definition.name, spec)
    return Workload(uuid=name, axes=axes, inputs={n: inputs[n] for n in definition.inputs})


def workload_uuid(name: str, spec: Spec) -> str:
    """Return the uuid of the workload that a test of task `name` becomes; the seed does not count."""
    shape = json.dumps({k: v for k, v in spec.items() if k != "seed"}, sort_keys=True)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {shape}"))


def _distinct(workloads: Sequence[Workload]) -> list[Workload]:
    return list({w.uuid: w for w in workloads}.values())


def read_submission(path: Path, problem: Problem) -> Imported:
    """Return the candidate of a submission file for `problem`, which must have come from a GPU MODE task.

    Raises WrongUse for a problem from elsewhere, BrokenInput for a file without custom_kernel.
    """
    original = read_text(path)
    source = adapters.on_cpu(original)
    known = facts_of(problem.definition)
    if known is None:
        raise WrongUse("a custom_kernel can only be judged on the GPU MODE task it was written for", "name that")
    if "custom_kernel" not in adapters.names_defined(source):
        raise BrokenInput(f"{path} does not define custom_kernel", "name a submission")
    kind = adapters.extension_of(source)
    helpers = {n: t for n, t in known["files"].items() if n not in ("reference", "submission")}
    text = adapters.bundle({**{f"{n}.py": t for n, t in helpers.items()}, "submission.py": source}, "submission.py")
    adapter = kernel_adapter(problem.definition, known["call"], known["written"])
    candidate = Candidate(
        definition=problem.definition.name, proposer="import", author=path.stem, notes="GPU MODE submission",
        language="cuda" if kind == "cuda" else "triton" if kind == "triton" else "python",
        sources=(SourceFile(path="candidate.py", content=adapters.with_adapter(text, adapter)),),
    )  # fmt: skip
    why = adapters.WHY_NOT.get(kind, "")
    notes = [] if source == original else [changed("device", '"cuda" in the source is read as "cpu"')]
    popcorn = re.findall(r"^#!POPCORN.*$", source, re.MULTILINE)
    notes += [kept(line, "a directive for the competition's service; the judge does not follow it") for line in popcorn]
    unmeasured = {candidate_key(candidate): why} if why else {}
    return Imported(format=NAME, candidates=(candidate,), unmeasured=unmeasured, notes=tuple(notes))


def facts_of(definition: Definition) -> dict[str, Any] | None:
    """Return what the adapter of a GPU MODE reference says: call, written, files (module → text)."""
    found = re.search(rf"^{FACTS} = (.*)$", definition.reference, re.MULTILINE)
    files = re.search(r"^_KW_FILES = (.*)$", definition.reference, re.MULTILINE)
    try:
        if not found or not files:
            return None
        return {**ast.literal_eval(found.group(1)), "files": ast.literal_eval(files.group(1))}
    except (ValueError, SyntaxError):
        return None
