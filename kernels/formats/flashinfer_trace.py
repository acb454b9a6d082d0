"""FlashInfer-Trace: definitions/*.json, workloads/*.jsonl, solutions/*.json, traces/*.jsonl in one folder.

Format: flashinfer-bench 0.1.2 (Apache-2.0), field names as there; our models of it are written from its schema. Its
files keep its fields and no others. What it has no word for goes to `kernelwright/`, beside its four folders, under the
digest of the file it belongs to: it is believed when read back only if that file is still the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import Axis, Definition, TensorSpec, Workload
from kernelwright.kernels.formats import adapters
from kernelwright.kernels.formats.flashinfer_schema import (
    THEIR_DTYPES,
    CandidateSidecar,
    DefinitionSidecar,
    Solution,
    TheirDefinition,
    TheirTensor,
    Trace,
)
from kernelwright.kernels.formats.imported import (
    Imported,
    Note,
    Written,
    candidate_key,
    changed,
    faults,
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
from kernelwright.kernels.registry import is_ours
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import BrokenInput

NAME = "flashinfer-trace"


def read(path: Path, run: RunCommand) -> Imported:
    """Return every problem and candidate of a dataset folder, or of a lone definition or solution file.

    References are executed through `run` alone. Raises BrokenInput naming the file at fault.
    """
    root = path if path.is_dir() else None
    if root is None:
        text = read_text(path)
        if '"sources"' in text:
            candidates, unmeasured, notes = read_solution(path, None, None)
            return Imported(format=NAME, candidates=(candidates,), unmeasured=unmeasured, notes=tuple(notes))
        problem, notes = read_definition(path, None, (), run)
        return Imported(format=NAME, problems=(problem,), notes=tuple(notes))
    workloads, notes = _read_workloads(root)
    problems = []
    for file in sorted((root / "definitions").rglob("*.json")):
        name = parse(read_text(file), TheirDefinition, str(file)).name
        problem, more = read_definition(file, root, workloads.pop(name, ()), run)
        problems.append(problem)
        notes += more
    notes += [lost(f"workloads of {name}", "the folder has no such definition") for name in workloads]
    known = {p.definition.name: p.definition for p in problems}
    found, unmeasured = [], {}
    for file in sorted((root / "solutions").rglob("*.json")):
        candidate, why, more = read_solution(file, root, known)
        found.append(candidate)
        unmeasured |= why
        notes += more
    if (root / "traces").is_dir():
        notes.append(lost("traces/", "results of another judge are not taken over"))
    if not problems and not found:
        raise BrokenInput(f"{path} has neither definitions nor solutions", "name the root of a dataset")
    return Imported(
        format=NAME, problems=tuple(problems), candidates=tuple(found), unmeasured=unmeasured, notes=tuple(notes)
    )


def read_definition(
    path: Path, root: Path | None, workloads: tuple[Workload, ...], run: RunCommand
) -> tuple[Problem, list[Note]]:
    """Return the problem of one definition file."""
    text = read_text(path)
    sidecar = _sidecar(root, "problems", path.stem, text, DefinitionSidecar)
    theirs = parse(text, TheirDefinition, str(path))
    notes = [n for n in strays(theirs, theirs.name)]
    for part in ("axes", "inputs", "outputs"):
        for name, value in getattr(theirs, part).items():
            notes += strays(value, f"{theirs.name}.{part}.{name}")
    definition = to_definition(theirs, str(path))
    if isinstance(sidecar, DefinitionSidecar):
        whole = {"definition": definition, **sidecar.problem, "workloads": workloads}
        return parse(_json(whole), Problem, f"the sidecar of {path}"), notes
    definition, more = made_runnable(definition, workloads)
    problem, remarks = pose_foreign(definition, workloads, None, run)
    return problem, [*notes, *more, *remarks]


def to_definition(theirs: TheirDefinition, where: str) -> Definition:
    """Return our Definition of theirs, field by field. Raises BrokenInput on a dtype that we cannot hold."""
    try:
        return Definition(
            name=theirs.name, op_type=theirs.op_type,
            axes={n: Axis(type=a.type, value=a.value, description=a.description) for n, a in theirs.axes.items()},
            inputs={n: _tensor(t) for n, t in theirs.inputs.items()},
            outputs={n: _tensor(t) for n, t in theirs.outputs.items()},
            reference=theirs.reference, tags=theirs.tags, description=theirs.description,
            constraints=theirs.constraints,
        )  # fmt: skip
    except ValidationError as error:
        raise BrokenInput(f"{where}: {faults(error)}", "mend the definition") from error


def made_runnable(definition: Definition, workloads: Iterable[Workload]) -> tuple[Definition, list[Note]]:
    """Return `definition` with a reference that returns a tuple, and with constraints that state its scalars."""
    if is_ours(definition):
        return definition, []
    names = adapters.names_defined(definition.reference)
    if "run" not in names:
        raise BrokenInput(f"{definition.name}: its reference does not define run", "define it at the top level")
    notes, reference, constraints = [], definition.reference, list(definition.constraints)
    if adapters.on_cpu(reference) != reference:
        reference = adapters.on_cpu(reference)
        notes.append(changed(f"{definition.name}.reference", 'the device "cuda" is read as "cpu"'))
    if not adapters.returns_tuples(reference) and adapters.MARK not in reference:
        reference = adapters.with_adapter(
            reference, adapters.tuple_adapter(list(definition.inputs), list(definition.outputs))
        )
        notes.append(changed(f"{definition.name}.reference", "an adapter makes a tuple of its results"))
    for name, spec in definition.inputs.items():
        values = {w.inputs[name].value for w in workloads if w.inputs.get(name) and w.inputs[name].type == "scalar"}  # type: ignore[union-attr]
        if spec.shape is None and len(values) == 1 and not any(c.startswith(f"{name} ==") for c in constraints):
            constraints.append(f"{name} == {values.pop()!r}")
            notes.append(made_up(f"{definition.name}.constraints", f"{constraints[-1]}, as every workload says"))
        elif spec.shape is None and len(values) > 1:
            notes.append(
                kept(f"{definition.name}.{name}", "its value differs by workload; while timed it is the default")
            )
    changes = {"reference": reference, "constraints": constraints}
    return Definition.model_validate({**definition.model_dump(), **changes}), notes


def read_solution(
    path: Path, root: Path | None, known: dict[str, Definition] | None
) -> tuple[Candidate, dict[str, str], list[Note]]:
    """Return the candidate of one solution file, why it cannot be judged (by `candidate_key`), and notes.

    `known` are the definitions; None when there are none to look at. Raises BrokenInput.
    """
    text = read_text(path)
    theirs = parse(text, Solution, str(path))
    notes = [*strays(theirs, theirs.name), *strays(theirs.spec, f"{theirs.name}.spec")]
    sidecar = _sidecar(root, "candidates", path.stem, text, CandidateSidecar)
    if isinstance(sidecar, CandidateSidecar):
        whole = {**sidecar.candidate, "sources": [s.model_dump() for s in theirs.sources]}
        return parse(_json(whole), Candidate, f"the sidecar of {path}"), {}, notes
    candidate, why, more = to_candidate(theirs, (known or {}).get(theirs.definition), str(path))
    return candidate, ({candidate_key(candidate): why} if why else {}), [*notes, *more]


def to_candidate(theirs: Solution, definition: Definition | None, where: str) -> tuple[Candidate, str, list[Note]]:
    """Return the candidate, why it cannot be judged ('' when it can), and what was lost. Raises BrokenInput."""
    file, separator, entry = theirs.spec.entry_point.partition("::")
    by_path = {source.path: source for source in theirs.sources}
    if not separator or file not in by_path:
        raise BrokenInput(f"{where}: entry_point {theirs.spec.entry_point!r} names no source", "write file::function")
    language = theirs.spec.language
    why = adapters.WHY_NOT.get(language, "")
    if language in ("cpp", "cuda") and theirs.spec.binding == "torch":
        why = adapters.WHY_NOT["torch"]
    sources = (by_path[file], *(s for s in theirs.sources if s.path != file))
    if language == "python":
        sources = (_python_source(theirs, by_path, file, entry, definition, where),)
        kind = adapters.extension_of(sources[0].content)
        why = adapters.WHY_NOT.get(kind, "")
    candidate = Candidate(
        definition=theirs.definition, language="cuda" if language == "tilelang" else language, sources=sources,
        entry_point="run" if language == "python" else entry, proposer="import", author=theirs.author or "unknown",
        notes=f"FlashInfer-Trace solution {theirs.name}",
    )  # fmt: skip
    notes = [
        lost(f"{theirs.name}.spec.target_hardware", f"{', '.join(theirs.spec.target_hardware)}: judged on this CPU")
    ]
    if theirs.description:
        notes.append(lost(f"{theirs.name}.description", theirs.description[:80]))
    if theirs.spec.dependencies:
        notes.append(lost(f"{theirs.name}.spec.dependencies", ", ".join(theirs.spec.dependencies)))
    return candidate, why, notes


def _python_source(
    theirs: Solution, by_path: dict[str, SourceFile], file: str, entry: str, definition: Definition | None, where: str
) -> SourceFile:
    source = by_path[file].content
    if len(by_path) > 1:
        source = adapters.bundle({p: s.content for p, s in by_path.items() if p.endswith(".py")}, file)
        entry = f"_kw_main.{entry}"
    elif entry not in adapters.names_defined(source):
        raise BrokenInput(f"{where}: {file} does not define {entry}", "name a function of it")
    if definition is None:
        return SourceFile(path=file, content=source)
    if theirs.spec.destination_passing_style:
        adapter = adapters.passing_adapter(definition, entry)
    elif entry == "run" and adapters.returns_tuples(source):
        return SourceFile(path=file, content=source)
    else:
        adapter = adapters.tuple_adapter(list(definition.inputs), list(definition.outputs), entry)
    return SourceFile(path=file, content=adapters.with_adapter(source, adapter))


def write(problem: Problem, candidates: Iterable[Candidate]) -> Written:
    """Return the files of a dataset. Raises BrokenInput for a dtype FlashInfer-Trace does not have."""
    definition = problem.definition
    notes: list[Note] = []
    files: dict[str, str] = {}
    for name, spec in {**definition.inputs, **definition.outputs}.items():
        if spec.dtype not in THEIR_DTYPES and spec.shape is not None:
            raise BrokenInput(f"{name} is {spec.dtype}, which FlashInfer-Trace does not have", "choose another format")
    text = json.dumps(_definition(definition, notes), indent=2, ensure_ascii=False) + "\n"
    place = f"{definition.op_type}/{definition.name}"
    files[f"definitions/{place}.json"] = text
    if problem.workloads:
        files[f"workloads/{place}.jsonl"] = "".join(workload_line(definition, w) + "\n" for w in problem.workloads)
    rest = problem.model_dump(mode="json", exclude={"definition", "workloads"})
    sidecar = DefinitionSidecar(file=digest_bytes(text.encode()), problem=rest)
    if any(spec.dtype not in THEIR_DTYPES for spec in definition.inputs.values()):
        sidecar = DefinitionSidecar(
            file=sidecar.file, problem={**rest, "definition": definition.model_dump(mode="json")}
        )
    files[f"kernelwright/problems/{definition.name}.json"] = sidecar.model_dump_json(indent=1) + "\n"
    notes.append(
        changed(
            "contract, incumbent, ranges, timed shape, precision, distributions",
            "in kernelwright/, which FlashInfer-Trace does not read",
        )
    )
    stored = [i.path for w in problem.workloads for i in w.inputs.values() if i.type == "safetensors"]
    if stored:
        notes.append(
            kept(f"{len(set(stored))} safetensors files", "named by the workloads; copy them beside the folder")
        )
    for candidate in candidates:
        name, more = _write_candidate(definition, candidate, files)
        notes += more
    return Written(format=NAME, files=files, notes=tuple(notes))


def _write_candidate(definition: Definition, candidate: Candidate, files: dict[str, str]) -> tuple[str, list[Note]]:
    name = solution_name(candidate, f"{identifier(candidate.author)}_{definition.name}_{digest_of(candidate)[:8]}")
    place = f"solutions/{identifier(candidate.author)}/{definition.op_type}/{definition.name}"
    stem = identifier(name)
    if f"kernelwright/candidates/{stem}.json" in files:
        name = stem = f"{stem}_{digest_of(candidate)[:8]}"  # two of one name
    entry = candidate.sources[0].path
    native = candidate.language in ("cpp", "cuda")
    where = "cpu" if candidate.language in ("cpp", "python") else "cuda"
    solution = {
        "name": name, "definition": candidate.definition, "author": candidate.author,
        "spec": {
            "language": candidate.language, "target_hardware": [where],
            "entry_point": f"{entry}::{candidate.entry_point}", "dependencies": [],
            "destination_passing_style": native, "binding": "tvm-ffi" if native else None,
        },
        "sources": [s.model_dump() for s in candidate.sources],
        **({"description": candidate.notes} if candidate.notes else {}),
    }  # fmt: skip
    text = json.dumps(solution, indent=2, ensure_ascii=False) + "\n"
    files[f"{place}/{stem}.json"] = text
    rest = candidate.model_dump(mode="json", exclude={"sources"})
    sidecar = CandidateSidecar(file=digest_bytes(text.encode()), candidate=rest)
    files[f"kernelwright/candidates/{stem}.json"] = sidecar.model_dump_json(indent=1) + "\n"
    notes = [
        changed(
            f"{name}: ranges, isa, parent, parameters, proposer",
            "in kernelwright/, which FlashInfer-Trace does not read",
        )
    ]
    if candidate.prepare:
        notes.append(
            lost(f"{name}.prepare", "FlashInfer-Trace has no packing step: there the solution does not run as it is")
        )
    if native:
        notes.append(kept(f"{name}", "needs kernelwright.h on the include path where it uses it"))
    return name, notes


def workload_line(definition: Definition, workload: Workload) -> str:
    """Return one line of a workloads file: a Trace without solution and evaluation."""
    line = {
        "definition": definition.name,
        "solution": None,
        "workload": workload.model_dump(mode="json"),
        "evaluation": None,
    }
    return json.dumps(line)


def _definition(definition: Definition, notes: list[Note]) -> dict[str, Any]:
    dump = definition.model_dump(mode="json", exclude_none=True)
    for part in ("inputs", "outputs"):
        for name, spec in getattr(definition, part).items():
            dump[part][name]["shape"] = list(spec.shape) if spec.shape is not None else None
            if spec.dtype not in THEIR_DTYPES:
                dump[part][name]["dtype"] = "float32"
                notes.append(changed(f"{definition.name}.{name}", f"a {spec.dtype} scalar is written as float32"))
    return dump


def _read_workloads(root: Path) -> tuple[dict[str, tuple[Workload, ...]], list[Note]]:
    found: dict[str, tuple[Workload, ...]] = {}
    notes: list[Note] = []
    for file in sorted((root / "workloads").rglob("*.jsonl")):
        for number, line in enumerate(read_text(file).splitlines(), 1):
            if not line.strip():
                continue
            trace = parse(line, Trace, f"{file}:{number}")
            notes += strays(trace, f"{file.name}:{number}")
            found[trace.definition] = (*found.get(trace.definition, ()), trace.workload)
    return found, notes


def _sidecar(
    root: Path | None, kind: str, name: str, text: str, noun: type[DefinitionSidecar] | type[CandidateSidecar]
) -> DefinitionSidecar | CandidateSidecar | None:
    """Return the sidecar of a file when there is one that was written for this very text."""
    path = root / "kernelwright" / kind / f"{name}.json" if root else None
    if path is None or not path.is_file():
        return None
    found = parse(read_text(path), noun, str(path))
    return found if found.file == digest_bytes(text.encode()) else None


def _tensor(theirs: TheirTensor) -> TensorSpec:
    return TensorSpec(shape=theirs.shape, dtype=theirs.dtype, description=theirs.description)


def _json(whole: dict[str, Any]) -> str:
    return json.dumps(whole, default=lambda model: model.model_dump(mode="json"))
