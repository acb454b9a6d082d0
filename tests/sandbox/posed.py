"""A small real problem and candidates for the sandbox tests: a Q4_1 layer whose incumbent repeats its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.bubblewrap import Bubblewrap
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.corpus_index import CORPUS
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import Bench

EVIL = Path(__file__).parent / "evil"
LINEAR = CORPUS / "include" / "linear.h"
"""The arithmetic that honest and evil natives share, here and in the selftest."""
N, K, SETS, TOKENS = 256, 256, 4, 4
# an incumbent that is slow for certain: what beats it, beats it on any machine
SLOW = """
once = run


def run(x, dense):
    for _ in range(12):
        result = once(x, dense)
    return result
"""


def require_cage() -> None:
    """Skip the test when this machine cannot build a cage."""
    try:
        Bubblewrap().check()
    except EnvironmentLacks as lack:
        pytest.skip(str(lack))


def pose(slow_incumbent: bool = True) -> Problem:
    definition = define("q4_1_linear", n=N, k=K)
    op = op_of(definition)
    incumbent = op.incumbent(definition)
    if slow_incumbent:
        incumbent = extend(incumbent, SLOW)
    return Problem(
        target=None,
        definition=definition,
        contract=op.contract(definition),
        incumbent=incumbent,
        workloads=(),
        ranges={"T": AxisRange(low=1, high=6)},
        timed_axes={"T": TOKENS},
        num_weight_sets=SETS,
    )


def draw_sets(problem: Problem) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    op = op_of(problem.definition)
    drawn = (op.generate(problem.definition, {"T": 1}, generator, "normal") for _ in range(SETS))
    return [{"w": tensors["w"]} for tensors in drawn]  # type: ignore[dict-item]


def extend(incumbent: Candidate, more: str, **changes: str) -> Candidate:
    """Return the incumbent with `more` source behind its own, which may wrap its `run`."""
    source = SourceFile(path="candidate.py", content=incumbent.sources[0].content + more)
    return Candidate.model_validate({**incumbent.model_dump(), "sources": [source], **changes})


def load_evil(name: str, problem: Problem) -> Candidate:
    """Return the candidate in tests/sandbox/evil/`name`."""
    text = (EVIL / name).read_text()
    if name.endswith(".py"):
        plain = op_of(problem.definition).incumbent(problem.definition)
        return extend(plain, text, proposer="import", author=name)
    return Candidate(
        definition=problem.definition.name,
        language="cpp",
        sources=(
            SourceFile(path=name, content=text),
            SourceFile(path="linear.h", content=LINEAR.read_text()),
        ),
        proposer="import",
        author=name,
    )


def open_bench(problem: Problem, cache: Path, controls: Controls | None = None, threads: int = 1) -> Bench:
    """Return a bench on `problem`; one thread, so that a busy machine makes it slow and not erratic."""
    bench = Bench(
        problem,
        problem_dir=cache,
        weights=draw_sets(problem),
        threads=threads,
        cache_dir=cache / "builds",
        controls=controls or Controls(),
        call_timeout_s=10.0,
    )
    bench._floor = 0.02  # no calibration: these tests ask about kinds of candidates, not about this machine's noise
    return bench


def when_quiet(judge: Callable[[], Verdict], tries: int = 3) -> Verdict:
    """Return the first verdict that does not blame other work on this machine, or the last of `tries`."""
    for _ in range(tries):
        verdict = judge()
        if "busy processor" not in verdict.reason:
            break
    return verdict
