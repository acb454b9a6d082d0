"""GPU MODE, the other way: task.yml, reference.py and submissions of a problem, and the result of a verdict."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import yaml

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.formats.gpu_mode import NAME, Spec, facts_of, workload_uuid
from kernelwright.kernels.formats.gpu_mode_source import reference_source, submission_source
from kernelwright.kernels.formats.imported import Note, Written, changed, lost, made_up
from kernelwright.kernels.formats.result import Result
from kernelwright.kernels.problem import Problem


def write(problem: Problem, candidates: Iterable[Candidate]) -> Written:
    """Return task.yml, reference.py and one submission per candidate that can be one, with what is lost."""
    definition, notes = problem.definition, []
    known = facts_of(definition)
    if known:
        files = {f"{name.replace('.', '/')}.py": text for name, text in known["files"].items()}
    else:
        files = {"reference.py": reference_source(problem)}
        notes += _losses(problem)
    if known:
        task = dict(known["task"])
    else:
        specs = [dict(w.axes) for w in problem.workloads] or [dict(problem.timed_axes)]
        task = {
            "lang": "py", "description": definition.description or definition.name, "config": {"main": "eval.py"},
            "tests": [{**spec, "seed": 1 + i} for i, spec in enumerate(specs)],
            "benchmarks": [{**problem.timed_axes, "seed": 1}],
            "test_timeout": 180, "benchmark_timeout": 180, "ranked_timeout": 420, "ranking_by": "geom",
        }  # fmt: skip
        notes.append(made_up("seed", "1, 2, …: workloads of ours are drawn from a secret key"))
        notes.append(made_up("timeouts, ranking_by", "180, 180, 420 s; geom"))
    notes.append(made_up("eval.py", "not written: GPU MODE's service provides it"))
    listed = [{"name": "submission.py", "source": "@SUBMISSION@"}, *({"name": n, "source": n} for n in files)]
    whole = {"files": listed, **task}
    files["task.yml"] = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)  # type: ignore[no-untyped-call]
    for number, candidate in enumerate(candidates):
        source = candidate.sources[0].content
        if candidate.language != "python" or candidate.prepare:
            what = "packing steps" if candidate.language == "python" else candidate.language
            notes.append(lost(f"candidate of {candidate.author}", f"a submission is one python file, without {what}"))
            continue
        own = _submission_in(source) if known else None
        files[f"submission_{number}.py"] = own or submission_source(problem, candidate)
        notes.append(
            lost(f"{candidate.author}: ranges, isa, parent, parameters, notes", "a submission is its source alone")
        )
    return Written(format=NAME, files=files, notes=tuple(notes))


def _submission_in(source: str) -> str | None:
    found = re.search(r"^_KW_FILES = (.*)$", source, re.MULTILINE)
    files = ast.literal_eval(found.group(1)) if found else {}
    return files.get("submission") if isinstance(files, dict) else None


def _losses(problem: Problem) -> list[Note]:
    notes = [
        lost("op_type, tags", "task.yml has no such fields"),
        lost("incumbent, ranges, precision, distributions", "task.yml has no place for them"),
    ]
    if problem.contract.weights:
        notes.append(changed("weights", "inputs like the others: GPU MODE knows no load time"))
    if problem.contract.aliases:
        notes.append(lost("aliases", "what is written in place is returned instead"))
    if problem.definition.constraints:
        notes.append(changed("constraints", "ranges of integers are written into generate_input, the others are lost"))
    if any(i.type == "safetensors" for w in problem.workloads for i in w.inputs.values()):
        notes.append(lost("stored inputs", "generate_input draws them at random"))
    return notes


def write_result(problem: Problem, result: Result) -> str:
    """Return the result as `key: value` lines; times are nanoseconds."""
    by_name = {e.workload: e for e in result.evaluations}
    tests = _tests(problem)
    lines = [f"test-count: {len(tests)}"]
    for i, (spec, name) in enumerate(tests):
        judged = by_name.get(name)
        fine = judged is not None and judged.status == "PASSED"
        lines += [f"test.{i}.spec: {_spec_text(spec)}", f"test.{i}.status: {'pass' if fine else 'fail'}"]
        if not fine:
            lines.append(f"test.{i}.error: {judged.status if judged else f'not judged: {result.reason}'}")
    if result.latency_ms is not None:
        lines += ["benchmark-count: 1", f"benchmark.0.spec: {_spec_text(_timed(problem))}"]
        lines += [f"benchmark.0.runs: {result.num_pairs}", f"benchmark.0.median: {result.latency_ms * 1e6:.1f}"]
        words = {"mean": "mean", "std": "std", "min": "best", "max": "worst"}
        stats = result.stats(result.candidate_ms)
        lines += [f"benchmark.0.{word}: {stats[k] * 1e6:.1f}" for k, word in words.items() if k in stats]
    lines.append(f"check: {'pass' if result.correct else 'fail'}")
    lines += [f"kernelwright.outcome: {result.outcome}", f"kernelwright.reason: {result.reason}"]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _tests(problem: Problem) -> list[tuple[Spec, str]]:
    """Return the task's own tests and the workload each became; the workloads where there is no task."""
    known = facts_of(problem.definition)
    if known is None:
        return [(dict(w.axes), w.uuid) for w in problem.workloads]
    return [(spec, workload_uuid(problem.definition.name, spec)) for spec in known["task"]["tests"]]


def _timed(problem: Problem) -> Spec:
    known = facts_of(problem.definition)
    benchmarks = known["task"]["benchmarks"] if known else []
    return benchmarks[-1] if benchmarks else dict(problem.timed_axes)


def _spec_text(axes: Spec) -> str:
    return "; ".join(f"{name}: {value}" for name, value in axes.items())
