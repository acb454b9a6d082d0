"""Samples of every format, definitions and candidates drawn at random, and a probe for trusted sources."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from kernelwright.kernels.build import CommandResult
from kernelwright.kernels.candidate import AxisRange, Candidate, PackedTensor, SourceFile
from kernelwright.kernels.definition import (
    Axis,
    Definition,
    RandomInput,
    ScalarInput,
    SlotContract,
    StoredInput,
    TensorSpec,
    Workload,
)  # fmt: skip
from kernelwright.kernels.formats import probing
from kernelwright.kernels.ops import generic
from kernelwright.kernels.problem import PrecisionPolicy, Problem

SAMPLES = Path(__file__).parent / "samples"
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int8", "bool")


def probe_here(_command: Sequence[str], folder: Path, _seconds: float) -> CommandResult:
    """Run the probing program in this process; for the tests' own sources only."""
    with contextlib.chdir(folder):
        probing.main()
    return CommandResult(0, "")


def outputs_of(source: str, inputs: dict[str, Any], wide: bool = False) -> tuple[torch.Tensor, ...]:
    """Return what the `run` of `source` gives for `inputs`; with `wide`, for float64 casts of them."""
    given = {n: v.double() if wide and isinstance(v, torch.Tensor) and v.is_floating_point() else v
             for n, v in inputs.items()}  # fmt: skip
    with torch.inference_mode():
        return tuple(probing.load(source, "x.py")["run"](**given))


def draw_inputs(problem: Problem, seed: int = 0, distribution: str = "normal") -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return generic.generate(problem.definition, dict(problem.timed_axes), generator, distribution)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda n: n not in ("run", "torch", "if", "in", "is", "or", "as", "not", "and", "def", "for", "try", "del", "from",
                        "pass", "else", "with", "elif", "class", "while", "raise", "yield", "async", "await", "break",
                        "lambda", "import", "return", "global", "assert", "except", "finally", "nonlocal", "continue",
                        "data", "seed", "results", "generator", "nn", "type", "print", "int", "self")
)  # fmt: skip
TEXTS = st.text(max_size=20)


@st.composite
def definitions(draw: st.DrawFn, dtypes: Sequence[str] = DTYPES) -> Definition:
    """Definitions whose reference runs: every output is made from one input of its shape and dtype."""
    names = draw(st.lists(NAMES, min_size=6, max_size=10, unique=True))
    axes = {
        name: Axis(type="const", value=draw(st.integers(1, 5))) if draw(st.booleans()) else Axis(type="var")
        for name in names[:3]
    }
    inputs = {}
    for name in names[3:-2]:
        shape = tuple(draw(st.lists(st.sampled_from(names[:3]), min_size=1, max_size=3)))
        inputs[name] = TensorSpec(shape=shape, dtype=draw(st.sampled_from(dtypes)), description=draw(st.none() | TEXTS))
    # the first input has every axis, so that sizes can be read off the inputs
    inputs[names[3]] = TensorSpec(shape=tuple(names[:3]), dtype="float32")
    picked = draw(st.lists(st.sampled_from(sorted(inputs)), min_size=1, max_size=2))
    outputs = {n: inputs[source] for n, source in zip(names[-2:], picked, strict=False)}
    results = ", ".join(f"{p} * 1" if inputs[p].dtype != "bool" else f"{p} & True" for p in picked)
    return Definition(
        name=draw(NAMES), op_type=draw(NAMES), axes=axes, inputs=inputs, outputs=outputs,
        reference=f"def run({', '.join(inputs)}):\n    return ({results},)\n",
        tags=tuple(draw(st.lists(st.text(min_size=1, max_size=8), max_size=2))), description=draw(st.none() | TEXTS),
        constraints=tuple(draw(st.lists(st.sampled_from(["a > 0", "b == c + 1"]), max_size=2))),
    )  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn, definition: Definition, stored: bool = True) -> tuple[Workload, ...]:
    kinds = [st.just(RandomInput())]
    if stored:
        kinds.append(st.builds(StoredInput, path=st.just("blob/a.safetensors"), tensor_key=NAMES))
    var = [name for name, axis in definition.axes.items() if axis.value is None]
    return tuple(
        Workload(
            uuid=f"workload-{i}", axes={name: draw(st.integers(1, 6)) for name in var},
            inputs={
                name: draw(st.one_of(kinds)) if spec.shape is not None else ScalarInput(value=draw(st.integers(0, 9)))
                for name, spec in definition.inputs.items()
            },
        )
        for i in range(draw(st.integers(1, 3)))
    )  # fmt: skip


@st.composite
def problems(draw: st.DrawFn, dtypes: Sequence[str] = DTYPES, stored: bool = True) -> Problem:
    definition = draw(definitions(dtypes))
    given = draw(workloads(definition, stored))
    ranges = st.builds(lambda a, b: AxisRange(low=min(a, b), high=max(a, b)), st.integers(0, 9), st.integers(0, 9))
    return Problem(
        target=draw(st.none() | TEXTS), definition=definition, incumbent=generic.incumbent(definition),
        contract=SlotContract(
            definition=definition.name, token_axis="", linear=draw(st.booleans()),
            weights=tuple(draw(st.lists(st.sampled_from(sorted(definition.inputs)), max_size=1))),
        ),
        workloads=given, ranges=draw(st.dictionaries(st.sampled_from(sorted(definition.axes)), ranges, max_size=1)),
        timed_axes=given[0].axes, num_weight_sets=draw(st.integers(1, 9)),
        precision=PrecisionPolicy(allow_tf32=draw(st.booleans())),
        distributions=tuple(draw(st.lists(st.sampled_from(["normal", "lognormal"]), unique=True))),
    )  # fmt: skip


@st.composite
def candidates(
    draw: st.DrawFn, definition: str, languages: Sequence[str] = ("cpp", "python", "triton", "cuda")
) -> Candidate:
    packed = tuple(draw(st.lists(st.just(PackedTensor(name="p", shape=(2, 3), dtype="float32")), max_size=1)))
    paths = draw(st.lists(st.sampled_from(["a.py", "b/c.cpp", "d.h"]), min_size=1, unique=True))
    return Candidate(
        definition=definition, language=draw(st.sampled_from(["cpp", "python", "triton", "cuda"])),
        sources=tuple(SourceFile(path=p, content=draw(TEXTS) + "x") for p in paths),
        entry_point=draw(NAMES), prepare="prepare" if packed else None, packed=packed,
        isa=draw(st.sampled_from(["any", "x86-64-v3"])), compile_flags=tuple(draw(st.lists(TEXTS, max_size=1))),
        proposer=draw(st.sampled_from(["templates", "model", "import"])), author=draw(st.text(min_size=1, max_size=8)),
        parent=draw(st.none() | TEXTS), parameters=draw(st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2)),
        notes=draw(TEXTS),
    )  # fmt: skip
