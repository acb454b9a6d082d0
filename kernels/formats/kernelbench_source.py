"""Source text of the KernelBench adapters, and a KernelBench problem or solution written from one of ours."""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import TensorSpec
from kernelwright.kernels.ops.generic import int_range
from kernelwright.kernels.problem import Problem

FACTS = "_KW_FACTS"
FLAT = """
def _kw_flat(value):
    if isinstance(value, _kw_torch.Tensor):
        return (value,)
    if isinstance(value, dict):
        value = list(value.values())
    return tuple(t for item in value for t in _kw_flat(item)) if isinstance(value, (list, tuple)) else ()
"""
FUNCTIONAL = (
    """
import torch as _kw_torch

_KW_FACTS = {facts}
_kw_models = {{}}


def _kw_model(wide):
    if wide not in _kw_models:
        with _kw_torch.inference_mode(False), _kw_torch.random.fork_rng(devices=[]):
            _kw_torch.manual_seed(42)
            model = {entry}(*{init})
        if wide:
            model.double()
            for module in model.modules():
                for name, value in list(vars(module).items()):
                    if isinstance(value, _kw_torch.Tensor) and value.is_floating_point():
                        setattr(module, name, value.double())
        _kw_models[wide] = model
    return _kw_models[wide]
"""
    + FLAT.replace("{", "{{").replace("}", "}}")
    + """

def run({inputs}):
    _kw_given = dict(zip({names}, ({weights})))
    _kw_wide = any(t.dtype == _kw_torch.float64 for t in _kw_flat([{inputs}]))
    _kw_module = _kw_model(_kw_wide)
    _kw_before = _kw_torch.get_default_dtype()
    _kw_torch.set_default_dtype(_kw_torch.float64 if _kw_wide else _kw_before)
    try:
        _kw_state = {{**{{name: b.clone() for name, b in _kw_module.named_buffers()}}, **_kw_given}}
        with _kw_torch.no_grad():
            return _kw_flat(_kw_torch.func.functional_call(_kw_module, _kw_state, {arguments}))
    finally:
        _kw_torch.set_default_dtype(_kw_before)
"""
)
"""The reference: one module per precision, parameters given with each call, buffers as the constructor left them."""

BOUND = (
    """
import torch as _kw_torch

_KW_FACTS = {facts}
_kw_bound = {{}}


def _kw_bind(weights):
    with _kw_torch.inference_mode(False), _kw_torch.random.fork_rng(devices=[]):
        _kw_torch.manual_seed(42)
        model = {entry}(*{init})
    names, shapes = {names}, {shapes}
    own = dict(model.named_parameters())
    by_name = set(own) == set(names) and all(tuple(own[n].shape) == s for n, s in zip(names, shapes))
    targets = [own[n] for n in names] if by_name else list(own.values())
    if [tuple(p.shape) for p in targets] != shapes:
        raise TypeError(f"parameters {{ {{n: tuple(p.shape) for n, p in own.items()}} }} are not {{names}} {{shapes}}")
    for parameter, weight in zip(targets, weights):
        parameter.requires_grad_(False)
        parameter.data = weight
{buffers}    return model
"""
    + FLAT.replace("{", "{{").replace("}", "}}")
    + """

def run({inputs}):
    _kw_weights = ({weights})
    _kw_key = tuple(map(id, _kw_weights))
    if _kw_key not in _kw_bound:
        _kw_bound[_kw_key] = (_kw_bind(_kw_weights), _kw_weights)
    with _kw_torch.no_grad():
        return _kw_flat(_kw_bound[_kw_key][0]({call}))
"""
)
"""Incumbent and candidates: one module per weight set, bound once, as an engine would."""

BUFFERS = """    names = {{"__name__": "problem"}}
    exec(compile({source}, "problem.py", "exec"), names)
    with _kw_torch.inference_mode(False), _kw_torch.no_grad(), _kw_torch.random.fork_rng(devices=[]):
        _kw_torch.manual_seed(42)
        mine = dict(model.named_buffers())
        for name, value in names["Model"](*{init}).named_buffers():
            if name in mine and mine[name].shape == value.shape:
                mine[name].copy_(value)
"""
"""In a solution of a problem with buffers: those of equal name and shape get the values they have in Model."""


def model_source(problem: Problem) -> str:
    """Return a KernelBench problem file for `problem` at its timed shape."""
    definition = problem.definition
    _, inputs = _split(problem)
    body = _module("Model", problem, definition.reference, "run")
    made = "\n".join(f"    {name} = {_made(problem, name)}" for name in inputs)
    returned = ", ".join(inputs)
    return f"""{body}

def get_inputs():
{made}
    return [{returned}]


def get_init_inputs():
    return []
"""


def solution_source(problem: Problem, candidate: Candidate) -> str:
    """Return a KernelBench solution file that calls `candidate`, which must be python without packing."""
    return _module("ModelNew", problem, candidate.sources[0].content, candidate.entry_point)


def _module(entry: str, problem: Problem, source: str, function: str) -> str:
    weights, inputs = _split(problem)
    definition = problem.definition
    fields = "\n".join(f"        self.{name} = nn.Parameter({_initial(problem, name)})" for name in weights)
    arguments = ", ".join(f"self.{name}" if name in weights else name for name in definition.inputs)
    scalars = [name for name, spec in definition.inputs.items() if spec.shape is None]
    constants = "\n".join(f"        {name} = {scalar_text(problem, name)}" for name in scalars)
    returned = "results[0] if len(results) == 1 else results"
    return f"""{source.rstrip()}


import torch
import torch.nn as nn

_run = {function}


class {entry}(nn.Module):
    def __init__(self):
        super().__init__()
{fields}

    def forward(self, {", ".join(inputs)}):
{constants}
        results = _run({arguments})
        return {returned}

"""


def _split(problem: Problem) -> tuple[list[str], list[str]]:
    """Return weights and inputs of forward; scalars are neither."""
    tensors = [name for name, spec in problem.definition.inputs.items() if spec.shape is not None]
    weights = [
        name for name in tensors if name in problem.contract.weights and _is_float(problem.definition.inputs[name])
    ]
    return weights, [name for name in tensors if name not in weights]


def _is_float(spec: TensorSpec) -> bool:
    return "float" in spec.dtype


def _initial(problem: Problem, name: str) -> str:
    shape = problem.definition.shape_of(name, problem.timed_axes)
    scale = f" / {max(1, _product(shape[1:]))} ** 0.5" if len(shape) > 1 else ""
    return f"torch.randn({shape!r}).to(torch.{problem.definition.inputs[name].dtype}){scale}"


def _made(problem: Problem, name: str) -> str:
    definition = problem.definition
    shape, dtype = definition.shape_of(name, problem.timed_axes), definition.inputs[name].dtype
    if "float" in dtype:
        text = f"torch.randn({shape!r}).to(torch.{dtype})"
    else:
        low, high = problem.contract.int_ranges.get(name) or int_range(definition, name, problem.timed_axes)
        text = f"torch.randint({low}, {high + 1}, {shape!r}).to(torch.{dtype})"
    side = next((s for s in ("triu", "tril") if f"{s}({name})" in definition.constraints), "")
    return f"torch.{side}({text})" if side else text


def scalar_text(problem: Problem, name: str) -> str:
    """Return the value of a scalar input as python text: the first workload's, else a default."""
    for workload in problem.workloads:
        given = workload.inputs.get(name)
        if given is not None and given.type == "scalar":
            return repr(given.value)
    if "float" not in problem.definition.inputs[name].dtype:
        return "1"
    return "1e-05" if "eps" in name else "1.0"


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
