"""Source text of the GPU MODE adapters, and reference.py or a submission written from a problem of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.formats.kernelbench_source import FLAT, scalar_text
from kernelwright.kernels.ops.generic import int_range
from kernelwright.kernels.problem import Problem

FACTS = "_KW_TASK"


def reference_adapter(definition: Definition, call: str, written: Sequence[str], task: dict[str, Any]) -> str:
    """Return a `run` that puts `data` together, calls ref_kernel and takes its result apart."""
    facts = f"{FACTS} = { ({'call': call, 'written': list(written), 'task': task})!r}\n"
    return facts + _run(definition, call, written, "_kw_main.ref_kernel")


def kernel_adapter(definition: Definition, call: str, written: Sequence[str]) -> str:
    """Return a `run` that puts `data` together, calls custom_kernel and takes its result apart."""
    return _run(definition, call, written, "_kw_main.custom_kernel")


def _run(definition: Definition, call: str, written: Sequence[str], entry: str) -> str:
    copies = "\n".join(f"    {name} = {name}.clone()" for name in written)
    in_place = f"    _kw_results = _kw_results or ({', '.join(written)},)\n" if written else ""
    return f"""import torch as _kw_torch

{FLAT}

def run({", ".join(definition.inputs)}):
{copies}
    _kw_results = _kw_flat({entry}({call}))
{in_place}    return _kw_results
"""


def reference_source(problem: Problem) -> str:
    """Return reference.py: generate_input over the var axes, ref_kernel over a tuple, check_implementation."""
    definition = problem.definition
    var = [name for name, axis in definition.axes.items() if axis.value is None]
    consts = {name: axis.value for name, axis in definition.axes.items() if axis.value is not None}
    made = "\n".join(f"    {name} = {_made(problem, name)}" for name in definition.inputs)
    names = ", ".join(definition.inputs)
    sizes = "\n".join(f"    {name} = {value}" for name, value in consts.items())
    arguments = ", ".join(f"{name}: int" for name in [*var, "seed"])
    return f"""{definition.reference.rstrip()}


import torch


def generate_input({arguments}):
{sizes}
    generator = torch.Generator().manual_seed(seed)
{made}
    return ({names},)


def ref_kernel(data):
    results = run(*data)
    return results[0] if len(results) == 1 else tuple(results)


def check_implementation(data, output):
    expected = ref_kernel(data)
    pairs = [(output, expected)] if isinstance(expected, torch.Tensor) else list(zip(output, expected))
    for i, (a, b) in enumerate(pairs):
        if a.shape != b.shape or a.dtype != b.dtype or not torch.allclose(a, b, rtol=1e-2, atol=1e-2):
            return f"output {{i}} differs"
    return ""
"""


def submission_source(problem: Problem, candidate: Candidate) -> str:
    """Return a submission that calls `candidate`, which must be python without packing."""
    return f"""{candidate.sources[0].content.rstrip()}


_run = {candidate.entry_point}


def custom_kernel(data):
    results = _run(*data)
    return results[0] if len(results) == 1 else tuple(results)
"""


def _made(problem: Problem, name: str) -> str:
    definition = problem.definition
    spec = definition.inputs[name]
    if spec.shape is None:
        return scalar_text(problem, name)
    shape = f"({', '.join(spec.shape)}{',' if spec.shape else ''})"
    if "float" in spec.dtype:
        return f"torch.randn({shape}, generator=generator).to(torch.{spec.dtype})"
    low, high = problem.contract.int_ranges.get(name) or int_range(definition, name, problem.timed_axes)
    return f"torch.randint({low}, {high + 1}, {shape}, generator=generator).to(torch.{spec.dtype})"
