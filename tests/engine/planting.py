"""Python kernels for a model's slots: the incumbents' own source, with a fault planted where a test wants one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.engine.dispatch import LoadedKernel
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.engine.pack import write_kernel
from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.definition import Definition, RandomInput, ScalarInput, Workload
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.verdict import Comparison, Verdict

AFTER = """
_right, _calls = run, [0]

def run(*inputs):
    _calls[0] += 1
    outputs = _right(*inputs)
    if _calls[0] > {calls}:
        {fault}
    return outputs
"""
"""A fault that shows after so many calls, the two of the check at load included."""


def fault_after(calls: int, fault: str) -> str:
    return AFTER.format(calls=calls, fault=fault)


def kernel_for(definition: Definition, planted: str = "", high: int = 4096) -> Candidate:
    """Return the incumbent of `definition` as a pack's candidate, `planted` appended to its source."""
    incumbent = op_of(definition).incumbent(definition)
    axis = op_of(definition).contract(definition).token_axis
    own = {
        "sources": (SourceFile(path="kernel.py", content=incumbent.sources[0].content + planted),),
        "ranges": {axis: AxisRange(low=1, high=high)},
        "proposer": "import",
        "author": "a test",
    }
    return Candidate(**(incumbent.model_dump() | own))


def kernels_of(model: Path, names: Sequence[str] | None = None, planted: str = "") -> list[LoadedKernel]:
    """Return a kernel for each definition of `model` that is named; None: for all but the regions."""
    definitions = ModelSlots(model).definitions()
    chosen = [name for name in definitions if "_block_" not in name] if names is None else names
    return [LoadedKernel(kernel_for(definitions[name], planted)) for name in chosen]


def write_planted_pack(folder: Path, model: Path, name: str, planted: str) -> Path:
    """Write a pack with one python kernel for `name` of `model`; its verdict stands for no measurement."""
    definition = ModelSlots(model).definitions()[name]
    candidate = kernel_for(definition, planted)
    inputs = {key: ScalarInput(value=1e-5) if key == "eps" else RandomInput() for key in definition.inputs}
    problem = Problem(
        target=None,
        definition=definition,
        contract=op_of(definition).contract(definition),
        incumbent=op_of(definition).incumbent(definition),
        workloads=(Workload(uuid="w", axes={"T": 1}, inputs=inputs),),
        ranges=candidate.ranges,
        timed_axes={"T": 1},
        num_weight_sets=2,
    )
    verdict = Verdict(
        problem=digest_of(problem),
        candidate=digest_of(candidate),
        phase="confirm",
        outcome="faster",
        reason="for a test",
        isolation="L3",
        binary=None,
        comparison=Comparison(
            ratio=2.0, low=1.9, high=2.1, n=60, launches=3, floor=0.02, incumbent_us=2.0, candidate_us=1.0,
            level="kernel",
        ),
    )  # fmt: skip
    write_kernel(folder, candidate, verdict, problem, model_digest="0" * 64, hardware="a test machine")
    return folder
