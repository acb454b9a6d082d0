"""Result files with FlashInfer-Trace's Evaluation block: traces/*.jsonl, and SOL-ExecBench's variant of it.

A trace is written for the timed shape when the candidate passed every check of the judge, and for each workload it was
judged on when it did not; a workload it was right on is not called PASSED while the whole candidate failed.
"""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

from kernelwright.kernels.definition import RandomInput, ScalarInput, Workload
from kernelwright.kernels.formats.result import Judged, Result
from kernelwright.kernels.ops.generic import generate
from kernelwright.kernels.problem import Problem

HAS_CORRECTNESS = ("PASSED", "INCORRECT_NUMERICAL")


def write_traces(problem: Problem, result: Result) -> str:
    """Return JSON lines: FlashInfer-Trace's Trace objects. Empty when nothing was judged (`unmeasured`)."""
    return "".join(json.dumps(trace) + "\n" for trace in traces(problem, result))


def write_sol(problem: Problem, result: Result) -> str:
    """Return a JSON array of SOL-ExecBench's Trace objects: also has_nan and has_inf, and the status REWARD_HACK."""
    found = traces(problem, result)
    for trace in found:
        evaluation = trace["evaluation"]
        if result.outcome == "suspect":
            evaluation["status"] = "REWARD_HACK"
            evaluation.pop("correctness", None)
            evaluation.pop("performance", None)
        if correctness := evaluation.get("correctness"):
            bad = "NaN" in result.reason
            correctness |= {"has_nan": bad, "has_inf": bad}
    return json.dumps(found, indent=1) + "\n"


def traces(problem: Problem, result: Result) -> list[dict[str, Any]]:
    """Return the traces as dicts."""
    if result.outcome == "unmeasured":
        return []
    whole = result.status()
    by_name = {w.uuid: w for w in problem.workloads}
    if whole == "PASSED":
        worst = result.worst() or (0.0, 0.0)
        return [_trace(problem, timed_workload(problem), result, "PASSED", worst, "")]
    judged = [e for e in result.evaluations if e.workload in by_name and e.status != "PASSED"]
    if not judged:
        log = next((e.log for e in reversed(result.evaluations) if e.status != "PASSED"), "")
        return [_trace(problem, timed_workload(problem), result, whole, _errors(result), log)]
    return [_trace(problem, by_name[e.workload], result, e.status, _of(e) or _errors(result), e.log) for e in judged]


def timed_workload(problem: Problem) -> Workload:
    """Return the workload at the timed shape, made when the problem has none there."""
    for workload in problem.workloads:
        if workload.axes == problem.timed_axes:
            return workload
    axes = dict(problem.timed_axes)
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([problem.definition.name, sorted(axes.items())]))
    scalars = {n for n, spec in problem.definition.inputs.items() if spec.shape is None}
    values: dict[str, Any] = {n: 1.0 for n in scalars}
    if scalars:
        import torch

        only = problem.definition.model_copy(
            update={"inputs": {n: s for n, s in problem.definition.inputs.items() if n in scalars}}
        )
        values = dict(generate(only, axes, torch.Generator(), "normal"))
    inputs = {n: ScalarInput(value=values[n]) if n in scalars else RandomInput() for n in problem.definition.inputs}
    return Workload(uuid=str(name), axes=axes, inputs=inputs)


def _trace(
    problem: Problem, workload: Workload, result: Result, status: str, errors: tuple[float, float] | None, log: str
) -> dict[str, Any]:
    prefix = f"kernelwright: {result.outcome}: {result.reason}"
    evaluation: dict[str, Any] = {
        "status": status, "timestamp": result.timestamp, "log": f"{prefix}\n{log}".strip(),
        "environment": {"hardware": result.hardware, "libs": result.libs},
    }  # fmt: skip
    if status in HAS_CORRECTNESS:
        relative, absolute = errors or (0.0, 0.0)
        evaluation["correctness"] = {
            "max_relative_error": _finite(relative), "max_absolute_error": _finite(absolute),
            "extra": {
                "outcome": result.outcome, "reason": result.reason, "ratio": result.ratio, "low": result.low,
                "high": result.high, "num_pairs": result.num_pairs, "isolation": result.isolation,
                "verdict": result.verdict, **result.extra,
            },
        }  # fmt: skip
    if status == "PASSED":
        latency, reference = result.latency_ms or 0.0, result.reference_ms or 0.0
        evaluation["performance"] = {
            "latency_ms": latency, "reference_latency_ms": reference, "speedup_factor": result.ratio or 0.0,
        }  # fmt: skip
    return {
        "definition": problem.definition.name, "solution": result.candidate,
        "workload": workload.model_dump(mode="json"), "evaluation": evaluation,
    }  # fmt: skip


def _of(judged: Judged) -> tuple[float, float] | None:
    if judged.max_relative_error is None or judged.max_absolute_error is None:
        return None
    return judged.max_relative_error, judged.max_absolute_error


def _errors(result: Result) -> tuple[float, float] | None:
    """Return the errors of the evaluation that failed."""
    return next((found for e in reversed(result.evaluations) if e.status != "PASSED" and (found := _of(e))), None)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 1e30
