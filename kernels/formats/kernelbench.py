"""KernelBench: a python file with Model, get_inputs, get_init_inputs; a solution file with ModelNew.

Format: KernelBench's problem files and eval_results.json (fields of its KernelExecResult). Parameters of the module
become inputs that are weights, so that they are drawn away from what the constructor makes of them; buffers and what
else the constructor makes stay as it makes them under KernelBench's seed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import Axis, Definition, TensorSpec
from kernelwright.kernels.formats import adapters
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
    read_text,
)  # fmt: skip
from kernelwright.kernels.formats.kernelbench_source import (
    BOUND,
    BUFFERS,
    FACTS,
    FUNCTIONAL,
    model_source,
    solution_source,
)  # fmt: skip
from kernelwright.kernels.formats.posing import pose_foreign
from kernelwright.kernels.formats.probe import Described, KernelBenchFacts, probe_kernelbench, probe_solution
from kernelwright.kernels.formats.result import Result
from kernelwright.kernels.ops.generic import WEIGHT_TAG
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse

NAME = "kernelbench"
SEED_NOTE = "made by the constructor under seed 42, as KernelBench does, and given to a solution's own of that name"


def is_problem(source: str) -> bool:
    """Return whether a python source is a KernelBench problem."""
    return {"Model", "get_inputs"} <= adapters.names_defined(source)


def is_solution(source: str) -> bool:
    """Return whether a python source is a KernelBench solution."""
    return "ModelNew" in adapters.names_defined(source)


def read_problem(path: Path, run: RunCommand) -> Imported:
    """Return the problem of a KernelBench file; its code is executed through `run` alone. Raises BrokenInput."""
    original = read_text(path)
    source = adapters.on_cpu(original)
    if "run" in adapters.names_defined(source) and "run" in adapters.names_read_later(source):
        raise BrokenInput(f"{path} defines run itself", "rename it: the adapter needs the name")
    facts = probe_kernelbench(source, run)
    if not facts.outputs:
        raise BrokenInput(f"{path}: forward returns no tensor", "return the result")
    definition = define(path, source, facts)
    incumbent = Candidate(
        definition=definition.name, language="python", proposer="incumbent", author="KernelBench Model",
        sources=(SourceFile(path="incumbent.py", content=_adapted(source, facts, definition, BOUND, "Model")),),
    )  # fmt: skip
    problem, notes = pose_foreign(definition, (), incumbent, run)
    if source != original:
        notes.append(changed("device", '"cuda" in the source is read as "cpu"'))
    if facts.buffers:
        notes.append(kept(f"buffers {', '.join(facts.buffers)}", SEED_NOTE))
    if facts.parameters:
        notes.append(changed(f"{len(facts.parameters)} parameters", "inputs that are weights, with values of our own"))
    notes += [
        kept(name, f"drawn as a {seen.triangle} matrix, as get_inputs makes it")
        for name, seen in facts.inputs.items() if seen.triangle
    ]  # fmt: skip
    notes.append(changed("shapes", "constants: KernelBench tries one shape only"))
    return Imported(format=NAME, problems=(problem,), notes=tuple(notes))


def define(path: Path, source: str, facts: KernelBenchFacts) -> Definition:
    """Return the definition; each size is a const axis of its own name (`d64`)."""
    inputs = {**facts.inputs, **facts.parameters}
    outputs = {("output" if i == 0 else f"output_{i}"): spec for i, spec in enumerate(facts.outputs)}
    sizes = sorted({size for spec in [*inputs.values(), *outputs.values()] for size in spec.shape})
    draft = Definition(
        name=identifier(path.stem if path.stem not in ("problem", "model") else path.resolve().parent.name),
        op_type="kernelbench",
        axes={f"d{size}": Axis(type="const", value=size) for size in sizes},
        inputs={name: _spec(spec) for name, spec in inputs.items()},
        outputs={name: _spec(spec) for name, spec in outputs.items()},
        reference=source,
        tags=tuple(WEIGHT_TAG + name for name in facts.parameters),
        constraints=tuple(_constraints(facts.inputs)),
    )
    reference = _adapted(source, facts, draft, FUNCTIONAL, "Model")
    return Definition.model_validate({**draft.model_dump(), "reference": reference})


def read_solution(path: Path, problem: Problem, run: RunCommand) -> Imported:
    """Return the candidate of a solution file for `problem`, which must have come from KernelBench.

    Raises WrongUse for a problem from elsewhere, BrokenInput for a file without ModelNew.
    """
    original = read_text(path)
    source = adapters.on_cpu(original)
    if not is_solution(source):
        raise BrokenInput(f"{path} does not define ModelNew", "name a KernelBench solution")
    known = facts_of(problem.definition)
    if known is None:
        raise WrongUse("a ModelNew can only be judged on the KernelBench problem it was written for", "name that")
    kind = adapters.extension_of(source)
    values = _values(problem.definition, known["call"], known["parameters"], known["init"], "ModelNew")
    if known.get("buffers"):
        posed = adapters.strip(problem.definition.reference)
        values |= {"buffers": BUFFERS.format(source=repr(posed), init=values["init"])}
    adapter = BOUND.format(**values)
    candidate = Candidate(
        definition=problem.definition.name, proposer="import", author=path.stem, notes="KernelBench ModelNew",
        language="cuda" if kind == "cuda" else "triton" if kind == "triton" else "python",
        sources=(SourceFile(path="candidate.py", content=adapters.with_adapter(source, adapter)),),
    )  # fmt: skip
    notes = [] if source == original else [changed("device", '"cuda" in the source is read as "cpu"')]
    unmeasured = {candidate_key(candidate): adapters.WHY_NOT[kind]} if kind else {}
    if not kind and known["parameters"]:
        notes += _match(source, known, problem, run)
    return Imported(format=NAME, candidates=(candidate,), unmeasured=unmeasured, notes=tuple(notes))


def _match(source: str, known: dict[str, Any], problem: Problem, run: RunCommand) -> list[Note]:
    """Say how the solution's parameters are matched; one that does not match fails in the judge, not here."""
    wanted = {known["parameters"][n]: problem.definition.shape_of(n, {}) for n in problem.contract.weights}
    try:
        own = probe_solution(source, known["init"], run).parameters
    except BrokenInput as error:
        return [kept("ModelNew", f"it could not be constructed: {error.message}")]
    if own == wanted:
        return [kept("parameters", "matched by name")]
    if list(own.values()) == list(wanted.values()):
        return [changed("parameters", f"matched by order and shape: {', '.join(own)} for {', '.join(wanted)}")]
    return [lost("parameters", f"ModelNew has {_shapes(own)}, Model has {_shapes(wanted)}: it will not load")]


def _shapes(parameters: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in parameters.items()) or "none"


def facts_of(definition: Definition) -> dict[str, Any] | None:
    """Return what the adapter of a KernelBench reference says: init, call, parameters (input → dotted name)."""
    found = re.search(rf"^{FACTS} = (.*)$", definition.reference, re.MULTILINE)
    try:
        facts = ast.literal_eval(found.group(1)) if found else None
    except (ValueError, SyntaxError):
        return None
    return facts if isinstance(facts, dict) and {"init", "call", "parameters"} <= set(facts) else None


def write(problem: Problem, candidates: Iterable[Candidate]) -> Written:
    """Return `<name>.py` and one file per candidate that can be a ModelNew, with what is lost."""
    definition, notes = problem.definition, []
    if facts_of(definition) is not None:
        text = adapters.strip(definition.reference)
    else:
        text = model_source(problem)
        notes = _losses(problem)
    stem = re.sub(r"^x(?=\d)", "", definition.name)  # readers put an x before a number
    files = {f"{stem}.py": text}
    for number, candidate in enumerate(candidates):
        name = f"{stem}_{identifier(candidate.author)}_{number}.py"
        if candidate.language != "python" or candidate.prepare:
            why = "has no packing step" if candidate.language == "python" else f"has no place for {candidate.language}"
            notes.append(lost(f"candidate of {candidate.author}", f"KernelBench {why}"))
            continue
        source = candidate.sources[0].content
        own = facts_of(definition) is not None and is_solution(adapters.strip(source))
        files[name] = adapters.strip(source) if own else solution_source(problem, candidate)
        notes.append(
            lost(f"{candidate.author}: ranges, isa, parent, parameters, notes", "KernelBench keeps the source alone")
        )
    return Written(format=NAME, files=files, notes=tuple(notes))


def _losses(problem: Problem) -> list[Note]:
    definition, notes = problem.definition, []
    if problem.timed_axes:
        notes.append(changed("var axes", f"fixed at the timed shape: {problem.timed_axes}"))
    if problem.workloads:
        notes.append(lost(f"{len(problem.workloads)} workloads", "KernelBench has one shape and its own get_inputs"))
    notes.append(lost("op_type, axis names, tags, description", "a python file has no place for them"))
    if definition.constraints:
        notes.append(changed("constraints", "ranges of integers are written into get_inputs, the others are lost"))
    if problem.contract.aliases:
        notes.append(lost("aliases", "what is written in place is returned instead"))
    if problem.contract.weights:
        notes.append(made_up("initial values of the parameters", "torch.randn scaled by the fan-in"))
    notes.append(lost("incumbent, ranges, precision, number of weight sets", "KernelBench has eager torch and seed 42"))
    return notes


def write_results(results: Iterable[Result], problem_id: str) -> str:
    """Return the text of an eval_results.json. Times are milliseconds, -1.0 where nothing was timed."""
    return json.dumps({problem_id: [_result(r, i) for i, r in enumerate(results)]}, indent=1) + "\n"


def problem_id_of(path: Path) -> str:
    """Return the number a KernelBench file name begins with, else its stem."""
    found = re.match(r"\d+", path.stem)
    return found.group() if found else path.stem


def _result(result: Result, number: int) -> dict[str, Any]:
    judged = result.outcome != "unmeasured"
    passed = [e for e in result.evaluations if e.status == "PASSED"]
    metadata = {
        "hardware": result.hardware, "device": "cpu", "judge": "kernelwright", "outcome": result.outcome,
        "reason": result.reason, "correctness_trials": f"({len(passed)} / {len(result.evaluations)})",
        "verdict": result.verdict,
    }  # fmt: skip
    stats = {"num_trials": result.num_pairs, "hardware": result.hardware, "device": "cpu"}
    return {
        "sample_id": number,
        "compiled": judged and not any(e.status == "COMPILE_ERROR" for e in result.evaluations),
        "correctness": result.correct,
        "metadata": metadata,
        "runtime": result.latency_ms if result.latency_ms is not None else -1.0,
        "runtime_stats": {**result.stats(result.candidate_ms), **stats} if result.latency_ms is not None else {},
        "ref_runtime": result.reference_ms if result.reference_ms is not None else -1.0,
        "ref_runtime_stats": {**result.stats(result.incumbent_ms), **stats} if result.reference_ms is not None else {},
    }


def _spec(seen: Described) -> TensorSpec:
    return TensorSpec(shape=tuple(f"d{size}" for size in seen.shape), dtype=seen.dtype)


def _constraints(inputs: dict[str, Described]) -> Iterable[str]:
    for name, seen in inputs.items():
        if seen.low is not None and seen.high is not None:
            yield f"{name} >= {seen.low}"
            yield f"{name} <= {seen.high}"
        if seen.triangle:
            yield f"{seen.triangle}({name})"


def _adapted(source: str, facts: KernelBenchFacts, definition: Definition, template: str, entry: str) -> str:
    named = {name: spec.of for name, spec in facts.parameters.items()}
    return adapters.with_adapter(
        source, template.format(**_values(definition, facts.call, named, facts.init, entry, facts.buffers))
    )


def _values(
    definition: Definition, call: str, parameters: dict[str, str], init: str, entry: str, buffers: Sequence[str] = ()
) -> dict[str, str]:
    weights = [name for name in definition.inputs if name in parameters]
    return {
        "facts": repr({"init": init, "call": call, "parameters": parameters, "buffers": list(buffers)}),
        "buffers": "",
        "inputs": ", ".join(definition.inputs),
        "call": call,
        "arguments": f"({call}{',' if call else ''})",
        "weights": ", ".join(weights) + ("," if weights else ""),
        "names": repr([parameters[name] for name in weights]),
        "shapes": repr([definition.shape_of(name, {}) for name in weights]),
        "init": f"({init}{',' if init else ''})",
        "entry": entry,
    }
