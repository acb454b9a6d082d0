"""Short ways to write the ops' definitions and incumbents down."""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, PackedTensor, SourceFile
from kernelwright.kernels.definition import Axis, Definition, TensorSpec


def name_of(op_type: str, **consts: int) -> str:
    """Return `op_type` and its consts, e.g. `q4_1_linear_n960_k576`."""
    return "_".join([op_type, *(f"{key}{value}" for key, value in consts.items())])


def axes_of(const: dict[str, int], var: tuple[str, ...]) -> dict[str, Axis]:
    """Return const axes with their values, then var axes."""
    axes = {key: Axis(type="const", value=value) for key, value in const.items()}
    return axes | {key: Axis(type="var") for key in var}


def tensors(text: str) -> dict[str, TensorSpec]:
    """Parse `x[T,H] weight[H] slots[T]:int64 eps` to tensor specs; float32 unless said, a bare name is a scalar."""
    specs = {}
    for word in text.split():
        body, _, dtype = word.partition(":")
        name, bracket, inside = body.partition("[")
        if bracket:
            specs[name] = TensorSpec(shape=tuple(inside.rstrip("]").split(",")), dtype=dtype or "float32")
        else:
            specs[name] = TensorSpec(shape=None, dtype=dtype or "float64")
    return specs


def python_incumbent(definition: Definition, source: str, packed: tuple[PackedTensor, ...] = ()) -> Candidate:
    """Return the plain-torch incumbent of `definition`; with `packed` its source also has `prepare`."""
    return Candidate(
        definition=definition.name,
        language="python",
        sources=(SourceFile(path="incumbent.py", content=source),),
        prepare="prepare" if packed else None,
        packed=packed,
        proposer="incumbent",
        author="kernelwright",
    )


def const_of(definition: Definition, axis: str) -> int:
    """Return the value of const axis `axis`. Raises ValueError when it varies."""
    value = definition.axes[axis].value
    if value is None:
        raise ValueError(f"{definition.name}: axis {axis} varies")
    return value
