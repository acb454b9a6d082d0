"""The op of every definition that is not one of ours: the definition itself says all there is to know.

Beside shapes and dtypes three facts are read from it, so that nothing else has to travel with a definition:

- tags `weight:NAME`: the input never changes after load;
- constraints `NAME >= 0`, `NAME <= 9`, `NAME < AXIS`: the range of an integer or Boolean input;
- constraints `NAME == 1e-05`: the value of a scalar; `triu(NAME)`, `tril(NAME)`: a triangular input.

Constraints are expressions in FlashInfer-Trace's own style; those that say something else are left alone.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import DTYPES, Definition, SlotContract, TensorSpec
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw
from kernelwright.kernels.ops.writing import python_incumbent
from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    import torch

WEIGHT_TAG = "weight:"
DEFAULT_RANGES = {"int8": (-128, 127), "bool": (0, 1)}
"""Range of an integer input that no constraint bounds; (0, 1) for the wider types, which are mostly indices."""
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
}  # fmt: skip


def definition(**consts: int) -> Definition:
    """Raise WrongUse: a generic definition comes from a file, never from constants."""
    raise WrongUse("a generic definition cannot be made from constants", "read it from a file")


def contract(definition: Definition) -> SlotContract:
    """Return the contract that tags and constraints declare; the token axis is the first var axis, or ''."""
    var = [name for name, axis in definition.axes.items() if axis.value is None]
    sizes = {name: axis.value for name, axis in definition.axes.items() if axis.value is not None}
    ranges = {}
    for name, spec in definition.inputs.items():
        if spec.shape is not None and not _is_float(spec) and _is_bounded(definition, name):
            ranges[name] = int_range(definition, name, sizes)
    return SlotContract(
        definition=definition.name,
        weights=tuple(name for name in definition.inputs if WEIGHT_TAG + name in definition.tags),
        token_axis=var[0] if var else "",
        int_ranges=ranges,
    )


def incumbent(definition: Definition) -> Candidate:
    """Return the definition's own reference as a python candidate."""
    return python_incumbent(definition, definition.reference)


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return the bytes of inputs and outputs, each once; flops are unknown and count as 0."""
    specs = {**definition.inputs, **definition.outputs}
    sizes = (math.prod(definition.shape_of(name, axes)) * DTYPES[spec.dtype] for name, spec in specs.items())
    return Cost(bytes=sum(sizes), flops=0)


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return all inputs: floats of `distribution`, integers uniform in their ranges, scalars as constraints say.

    With `weights` false those tagged as weights are left out. Weights are scaled by the root of their fan-in, so that
    outputs stay of order one; vectors and single numbers lie around one, away from what layers begin with.
    """
    drawn: dict[str, torch.Tensor | float] = {}
    for name, spec in definition.inputs.items():
        is_weight = WEIGHT_TAG + name in definition.tags
        if is_weight and not weights:
            continue
        shape = definition.shape_of(name, axes)
        if spec.shape is None:
            drawn[name] = _scalar(definition, name, spec)
        elif not _is_float(spec):
            drawn[name] = _draw_integers(definition, name, spec, shape, axes, generator)
        else:
            values = _draw_weight(shape, generator) if is_weight else _draw_floats(shape, generator, distribution)
            drawn[name] = _triangular(definition, name, values).to(_torch_dtype(spec))
    return drawn


def int_range(definition: Definition, name: str, axes: dict[str, int]) -> tuple[int, int]:
    """Return the lowest and highest value of integer or Boolean input `name`, both included.

    `axes` gives the values of axes that bounds name; a bound whose axis has no value yet is left out.
    """
    spec = definition.inputs[name]
    lows, highs = [], []
    for operator, bound in _bounds(definition, name, axes):
        if operator in (ast.GtE, ast.Gt, ast.Eq):
            lows.append(math.ceil(bound) if operator is not ast.Gt else math.floor(bound) + 1)
        if operator in (ast.LtE, ast.Lt, ast.Eq):
            highs.append(math.floor(bound) if operator is not ast.Lt else math.ceil(bound) - 1)
    low, high = DEFAULT_RANGES.get(spec.dtype, (0, 1))
    low = max(lows) if lows else min(low, min(highs, default=low))
    high = min(highs) if highs else max(high, low)
    return low, max(low, high)


def _bounds(definition: Definition, name: str, axes: dict[str, int]) -> list[tuple[type[ast.cmpop], float]]:
    """Return (comparison, bound) for every comparison of `name` with a number or an axis, `name` on the left."""
    sizes = {n: a.value for n, a in definition.axes.items() if a.value is not None} | axes
    found = []
    for constraint in definition.constraints:
        for left, operator, right in _comparisons(constraint):
            if isinstance(left, ast.Name) and left.id == name and (bound := _number(right, sizes)) is not None:
                found.append((operator, bound))
            elif isinstance(right, ast.Name) and right.id == name and (bound := _number(left, sizes)) is not None:
                found.append((_MIRRORED[operator], bound))
    return found


def _comparisons(constraint: str) -> list[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Return each `a OP b` of a constraint, chains taken apart; nothing for text that is no comparison."""
    try:
        body = ast.parse(constraint, mode="eval").body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(body, ast.Compare):
        return []
    terms = [body.left, *body.comparators]
    pairs = zip(terms, body.ops, terms[1:], strict=False)
    return [(left, type(op), right) for left, op, right in pairs if type(op) in _MIRRORED]


def _number(node: ast.expr, sizes: dict[str, int]) -> float | None:
    """Return the value of a number or a known axis, plus or minus a number; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return sizes.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand, sizes)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _number(node.left, sizes), _number(node.right, sizes)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def _is_bounded(definition: Definition, name: str) -> bool:
    return bool(_bounds(definition, name, {}))


def _scalar(definition: Definition, name: str, spec: TensorSpec) -> float:
    given = [bound for operator, bound in _bounds(definition, name, {}) if operator is ast.Eq]
    value = given[0] if given else (1e-6 if "eps" in name else 1)
    return float(value) if _is_float(spec) else int(value)


def _draw_integers(
    definition: Definition, name: str, spec: TensorSpec, shape: tuple[int, ...], axes: dict[str, int],
    generator: torch.Generator,
) -> torch.Tensor:  # fmt: skip
    import torch

    low, high = int_range(definition, name, axes)
    values = torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64)
    return _triangular(definition, name, values).to(_torch_dtype(spec))


def _draw_floats(shape: tuple[int, ...], generator: torch.Generator, distribution: str) -> torch.Tensor:
    import torch

    if 0 in shape:
        return torch.empty(shape)
    return draw(shape or (1,), generator, distribution).reshape(shape)


def _draw_weight(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    normal = torch.randn(shape, generator=generator)
    return 1 + 0.25 * normal if len(shape) < 2 else normal * max(1, math.prod(shape[1:])) ** -0.5


def _triangular(definition: Definition, name: str, values: torch.Tensor) -> torch.Tensor:
    import torch

    said = {constraint.replace(" ", "") for constraint in definition.constraints}
    if f"triu({name})" in said:
        return torch.triu(values)
    return torch.tril(values) if f"tril({name})" in said else values


def _is_float(spec: TensorSpec) -> bool:
    return "float" in spec.dtype


def _torch_dtype(spec: TensorSpec) -> torch.dtype:
    import torch

    return getattr(torch, spec.dtype)  # type: ignore[no-any-return]
