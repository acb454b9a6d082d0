"""The part of reading that executes somebody's problem code; run in a cage, never in the tool's own process.

`python -P -m kernelwright.kernels.formats.probing` reads `job.json` in its working directory and writes `found.json`.
What it writes comes from beside untrusted code: the reader parses it strictly and takes it for a claim about shapes.
"""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.kernels.definition import DTYPES, Definition
from kernelwright.kernels.formats.imported import identifier

if TYPE_CHECKING:
    import torch

SEED = 42
"""KernelBench's own."""
LITERALS = (int, float, bool, str, type(None))


class Refused(Exception):
    """Something in the problem that cannot be carried over; its text is the reason."""


def main() -> None:
    """Answer one job."""
    job = json.loads(Path("job.json").read_text(encoding="utf-8"))
    try:
        found: dict[str, Any] = PROBES[job.pop("kind")](**job)
    except Refused as refusal:
        found = {"error": str(refusal)}
    except BaseException as error:  # whatever somebody's code raises, SystemExit too
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = {"error": f"{type(error).__name__}: {error} (line {last.lineno} of {Path(last.filename).name})"}
    Path("found.json").write_text(json.dumps(found), encoding="utf-8")


def probe_kernelbench(source: str) -> dict[str, Any]:
    """Return arguments, parameters, outputs and init arguments of a KernelBench problem."""
    import torch

    module = load(source, "problem.py")
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if name not in module:
            raise Refused(f"it does not define {name}")
    torch.manual_seed(SEED)
    init = list(module["get_init_inputs"]())
    torch.manual_seed(SEED)
    model = module["Model"](*init)
    inputs = list(module["get_inputs"]())
    taken: list[str] = ["run", "output"]
    names = _argument_names(model.forward, len(inputs))
    expressions, leaves = [], {}
    for name, value in zip(names, inputs, strict=True):
        expression, found = flatten(value, name, taken)
        expressions.append(expression)
        leaves.update(found)
    with torch.no_grad():
        results = [leaf.detach() for leaf in tensors_in(model(*inputs))]
    return {
        "init": ", ".join(_literal(value, "get_init_inputs") for value in init),
        "call": ", ".join(expressions),
        "inputs": {name: describe(name, leaf) for name, leaf in leaves.items()},
        "parameters": _parameters(model, taken),
        "buffers": [name for name, _ in model.named_buffers()],
        "outputs": [describe(f"output {i}", leaf, bounds=False) for i, leaf in enumerate(results)],
    }


def probe_solution(source: str, init: str, entry: str) -> dict[str, Any]:
    """Return the parameters of `entry` (ModelNew) of a KernelBench solution, in order."""
    import torch

    module = load(source, "solution.py")
    if entry not in module:
        raise Refused(f"it does not define {entry}")
    torch.manual_seed(SEED)
    model = module[entry](*eval(f"({init}{',' if init else ''})"))
    return {"parameters": {n: list(p.shape) for n, p in model.named_parameters()}}


def probe_gpu_mode(source: str, specs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, for every spec of a GPU MODE task, the inputs and outputs. `source` defines `_kw_main` (reference.py)."""
    main = load(source, "reference.py")["_kw_main"]
    for name in ("generate_input", "ref_kernel"):
        if not hasattr(main, name):
            raise Refused(f"reference.py does not define {name}")
    cases = []
    for spec in specs:
        taken: list[str] = ["run", "output"]
        data = main.generate_input(**spec)
        expression, leaves = flatten(data, "data", taken, numbers=True)
        tensors = {n: v for n, v in leaves.items() if not isinstance(v, LITERALS)}
        before = {name: (leaf._version, leaf.clone()) for name, leaf in tensors.items()}
        described = {n: describe(n, v) for n, v in tensors.items()}
        results = list(tensors_in(main.ref_kernel(data)))
        written = [n for n, t in tensors.items() if t._version != before[n][0] or not same(before[n][1], t)]
        results = results or [tensors[name] for name in written]
        if not results:
            raise Refused("ref_kernel returns no tensor and writes none of its inputs")
        cases.append(
            {
                "call": expression, "inputs": described, "written": written,
                "scalars": {n: v for n, v in leaves.items() if isinstance(v, LITERALS)},
                "outputs": [describe(f"output {i}", leaf, bounds=False) for i, leaf in enumerate(results)],
            }
        )  # fmt: skip
    return {"cases": cases}


def examine(definition: str, axes: dict[str, int], distributions: list[str]) -> dict[str, Any]:
    """Return what running the reference on drawn inputs shows; see `formats.probe.Examined`."""
    import torch

    from kernelwright.kernels.ops import generic

    posed = Definition.model_validate_json(definition)
    run = load(posed.reference, "reference.py")["run"]

    def call(distribution: str, seed: int, wide: bool = False) -> tuple[torch.Tensor, ...]:
        drawn = generic.generate(posed, axes, torch.Generator().manual_seed(seed), distribution)
        with torch.inference_mode():
            return tuple(run(**{n: _wide(v) if wide else v for n, v in drawn.items()}))

    fractions = {}
    for distribution in distributions:
        results = call(distribution, 1)
        _check_outputs(posed, axes, results)
        fractions[distribution] = max((non_finite(r) for r in results), default=0.0)
    plain = min(fractions, key=lambda name: (fractions[name] > 0.01, distributions.index(name)))
    first, again, other = call(plain, 1), call(plain, 1), call(plain, 2)
    try:
        wide, trouble = call(plain, 1, wide=True), ""
    except Exception as error:  # whatever somebody's code raises on float64
        wide, trouble = (), f"{type(error).__name__}: {error}"
    narrow = [n for n, r in zip(posed.outputs, wide, strict=False) if r.is_floating_point() and r.itemsize < 8]
    return {
        "non_finite": fractions,
        "deterministic": all(same(a, b) for a, b in zip(first, again, strict=True)),
        "fp64_trouble": trouble,
        "fp64_narrow": narrow,
        "weak": weakness(first, other),
    }


def weakness(first: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> str:
    """Return why results could be guessed without computing them, or ''. Rules: robust-kbench's task filters."""
    floats = [r.double() for r in first if r.is_floating_point() and r.numel()]
    if all(same(a, b) for a, b in zip(first, other, strict=True)):
        return "its result does not depend on its inputs"
    if floats and all(float(r.nan_to_num().abs().max()) <= 0.01 for r in floats):
        return "its result lies within ±0.01"
    if floats and all(r.numel() > 1 and float(r.nan_to_num().std()) < 1e-6 for r in floats):
        return "its result is constant"
    return ""


def flatten(value: Any, name: str, taken: list[str], numbers: bool = False) -> tuple[str, dict[str, Any]]:
    """Return a python expression that builds `value` again from its tensors, and those tensors by name.

    `taken` grows by the names given. With `numbers`, ints and floats become named leaves too. Raises Refused.
    """
    import torch

    if isinstance(value, torch.Tensor) or (numbers and type(value) in (int, float)):
        unique = identifier(name, taken)
        taken.append(unique)
        return unique, {unique: value}
    if isinstance(value, list | tuple):
        parts = [flatten(item, f"{name}_{i}", taken, numbers) for i, item in enumerate(value)]
        inside = ", ".join(expression for expression, _ in parts)
        leaves = {k: v for _, found in parts for k, v in found.items()}
        comma = "," if len(parts) == 1 else ""
        return (f"[{inside}]" if isinstance(value, list) else f"({inside}{comma})"), leaves
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = {key: flatten(item, key, taken, numbers) for key, item in value.items()}
        inside = ", ".join(f"{key!r}: {expression}" for key, (expression, _) in pairs.items())
        return f"{{{inside}}}", {k: v for _, found in pairs.values() for k, v in found.items()}
    return _literal(value, name), {}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested tuples, lists and dicts, in order; what is no tensor is passed over."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def describe(name: str, tensor: torch.Tensor, bounds: bool = True) -> dict[str, Any]:
    """Return shape and dtype, range of integers, and whether a matrix is triangular. Raises Refused on the dtype."""
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise Refused(f"{name} is {dtype}, which no format here knows")
    facts: dict[str, Any] = {"shape": list(tensor.shape), "dtype": dtype}
    if bounds and tensor.numel() and not tensor.is_floating_point():
        facts |= {"low": int(tensor.min()), "high": int(tensor.max())}
    if bounds and tensor.dim() >= 2 and min(tensor.shape[-2:]) > 2:
        for side, take in (("triu", torch.triu), ("tril", torch.tril)):
            if torch.equal(take(tensor), tensor) and bool(tensor.any()):
                facts["triangle"] = side
    return facts


def load(source: str, name: str) -> dict[str, Any]:
    """Execute `source` and return its names."""
    import types

    module = types.ModuleType(name.removesuffix(".py"))
    exec(compile(source, name, "exec"), module.__dict__)
    return module.__dict__


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two results are equal, NaN being equal to NaN."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())


def non_finite(tensor: torch.Tensor) -> float:
    """Return the share of elements that are NaN or infinite."""
    return float((~tensor.isfinite()).double().mean()) if tensor.numel() else 0.0


def _parameters(model: torch.nn.Module, taken: list[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, parameter in model.named_parameters():
        taken.append(unique := identifier(name, taken))
        found[unique] = {"of": name, **describe(name, parameter.detach(), bounds=False)}
    return found


def _argument_names(forward: Callable[..., Any], count: int) -> list[str]:
    parameters = list(inspect.signature(forward).parameters.values())
    if len(parameters) < count and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise Refused(f"get_inputs gives {count} arguments, forward takes {len(parameters)}")
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*named, *(f"argument_{i}" for i in range(len(named), count))][:count]


def _literal(value: Any, where: str) -> str:
    """Return `value` as python text. Raises Refused when it is more than numbers, strings and containers of them."""
    if isinstance(value, LITERALS) and value == value and value not in (float("inf"), float("-inf")):
        return repr(value)
    if isinstance(value, list | tuple):
        inside = [_literal(item, where) for item in value]
        return f"[{', '.join(inside)}]" if isinstance(value, list) else f"({''.join(i + ', ' for i in inside)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k, where)}: {_literal(v, where)}' for k, v in value.items())}}}"
    raise Refused(f"{where} holds a {type(value).__name__}, which cannot be written down")


def _wide(value: Any) -> Any:
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _check_outputs(definition: Definition, axes: dict[str, int], results: tuple[torch.Tensor, ...]) -> None:
    if len(results) != len(definition.outputs):
        raise Refused(f"the reference returns {len(results)} tensors, the definition has {len(definition.outputs)}")
    for (name, spec), result in zip(definition.outputs.items(), results, strict=True):
        shape, dtype = definition.shape_of(name, axes), str(result.dtype).removeprefix("torch.")
        if tuple(result.shape) != shape or dtype != spec.dtype:
            raise Refused(f"{name} is {tuple(result.shape)} {dtype}, the definition says {shape} {spec.dtype}")


PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    "kernelbench": probe_kernelbench,
    "solution": probe_solution,
    "gpu_mode": probe_gpu_mode,
    "examine": examine,
}

if __name__ == "__main__":
    main()
