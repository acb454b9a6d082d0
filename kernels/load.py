"""Turn a built candidate into the callable that both the engine and the runner use; the only place that does.

So the path that is judged is the path that is served. Native candidates are called through TVM-FFI with torch tensors
as they are (DLPack, nothing is copied); python candidates are executed in a module of their own; triton candidates run
in Triton's interpreter (`triton_load.py`).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.isa import detect_isa, supports
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks

if TYPE_CHECKING:
    import torch

Value = Any
"""A torch.Tensor or a number."""


class BoundSlot:
    """One implementation with one layer's weights.

    `call(*inputs)` takes the inputs that are not weights, in the definition's order, allocates the outputs that are not
    aliased and returns them as a tuple; `call_into(outputs, *inputs)` writes into tensors the caller made.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        call: Callable[..., tuple[torch.Tensor, ...]],
        call_into: Callable[..., None],
        packed_bytes: int,
    ) -> None:
        self.names = names
        """Names of the inputs `call` takes, in order."""
        self.call = call
        self.call_into = call_into
        self.packed_bytes = packed_bytes
        """Bytes that `prepare` made."""

    def __call__(self, **inputs: Value) -> tuple[torch.Tensor, ...]:
        """Return the outputs for inputs given by name. Raises KeyError naming the first one that is missing."""
        return self.call(*[inputs[name] for name in self.names])


class Implementation:
    """A loaded candidate: `bind` it to each layer's weights."""

    def __init__(
        self, candidate: Candidate, definition: Definition, contract: SlotContract, functions: dict[str, Any]
    ) -> None:
        self.candidate = candidate
        self.definition = definition
        self.contract = contract
        self._functions = functions

    def bind(self, weights: dict[str, torch.Tensor]) -> BoundSlot:
        """Run `prepare` on one layer's weights and return the slot. Raises KeyError on a missing weight."""
        own = {name: weights[name] for name in self.definition.inputs if name in self.contract.weights}
        if self.candidate.language == "python":
            return _bind_python(self.candidate, self.definition, own, self._functions)
        return _bind_native(self.candidate, self.definition, self.contract, own, self._functions)


def load_implementation(
    candidate: Candidate, binary: Path | None, definition: Definition, contract: SlotContract, compiled: bool = False
) -> Implementation:
    """Load `candidate`; `binary` is its shared object, None for python and triton. `compiled`: by torch.compile, which
    is for python only.

    Raises BrokenInput when definition, binary or symbols do not belong together, and EnvironmentLacks when this host
    does not have the candidate's instruction set level (checked before anything is loaded).
    """
    if not candidate.definition == definition.name == contract.definition:
        raise BrokenInput(
            f"candidate is for {candidate.definition}, definition is {definition.name}, contract is for "
            f"{contract.definition}",
            "give the definition and contract the candidate was made for",
        )
    if candidate.language == "python":
        functions = _load_python(candidate)
        if compiled:
            import torch

            functions[candidate.entry_point] = torch.compile(functions[candidate.entry_point])
        return Implementation(candidate, definition, contract, functions)
    if candidate.language == "triton":
        from kernelwright.kernels.triton_load import load_triton

        return Implementation(candidate, definition, contract, dict(load_triton(candidate, definition, contract)))
    if binary is None:
        raise BrokenInput(
            f"{candidate.definition}: a {candidate.language} candidate needs its binary", "build it first"
        )
    if not supports(candidate.isa):
        raise EnvironmentLacks(
            f"{candidate.definition}: needs {candidate.isa}, this host has {detect_isa()}",
            "optimise on this machine, or serve with --no-packs",
        )
    return Implementation(candidate, definition, contract, _load_native(candidate, binary))


def _load_python(candidate: Candidate) -> dict[str, Any]:
    module = types.ModuleType(f"candidate_{candidate.definition}")
    source = candidate.sources[0]
    exec(compile(source.content, source.path, "exec"), module.__dict__)  # the module is the candidate's own
    wanted = [candidate.entry_point, *([candidate.prepare] if candidate.prepare else [])]
    missing = [name for name in wanted if not callable(module.__dict__.get(name))]
    if missing:
        raise BrokenInput(f"{candidate.definition}: the source does not define {', '.join(missing)}", "define it")
    return {name: module.__dict__[name] for name in wanted}


def _load_native(candidate: Candidate, binary: Path) -> dict[str, Any]:
    import torch  # noqa: F401  loads libgomp first, which the kernel then shares
    import tvm_ffi

    module = tvm_ffi.load_module(str(binary))
    wanted = [candidate.entry_point, *([candidate.prepare] if candidate.prepare else [])]
    functions: dict[str, Any] = {}
    for name in wanted:
        try:
            functions[name] = module.get_function(name)
        except AttributeError:
            raise BrokenInput(
                f"{candidate.definition}: {binary.name} does not export __tvm_ffi_{name}",
                f"export it with KW_{name.upper()}",
            ) from None
    return functions


def _bind_python(
    candidate: Candidate, definition: Definition, weights: dict[str, torch.Tensor], functions: dict[str, Any]
) -> BoundSlot:
    run = functions[candidate.entry_point]
    names = tuple(name for name in definition.inputs if name not in weights)
    packed_bytes = 0
    if candidate.prepare:
        constants = tuple(functions[candidate.prepare](**weights))
        held = {tensor.data_ptr() for tensor in weights.values()}
        packed_bytes = sum(c.numel() * c.element_size() for c in constants if c.data_ptr() not in held)
        arrange = _arrange(len(names), [*range(len(names) + len(constants))])
    else:
        constants = tuple(weights.values())
        arrange = _arrange(len(names), _interleaved(definition, weights))
    call = _joined(run, constants, arrange)

    def call_into(outputs: tuple[torch.Tensor, ...], *inputs: Value) -> None:
        for mine, theirs in zip(outputs, call(*inputs), strict=True):
            mine.copy_(theirs)

    return BoundSlot(names, call, call_into, packed_bytes)


def _joined(
    run: Callable[..., Any],
    constants: tuple[Value, ...],
    arrange: Callable[[tuple[Value, ...]], tuple[Value, ...]] | None,
) -> Callable[..., Any]:
    """Return a function of the inputs that calls `run` with inputs and constants in the order it wants."""
    if not constants:
        return run
    if arrange is None:
        return lambda *inputs: run(*inputs, *constants)
    return lambda *inputs: run(*arrange(inputs + constants))


def _interleaved(definition: Definition, weights: dict[str, torch.Tensor]) -> list[int]:
    """Return, for each input of the definition, its place in (non-weights, then weights)."""
    order = [name for name in definition.inputs if name not in weights] + list(weights)
    return [order.index(name) for name in definition.inputs]


def _arrange(given: int, places: list[int]) -> Callable[[tuple[Value, ...]], tuple[Value, ...]] | None:
    """Return what puts (inputs, constants) into order, or None when they are in order already."""
    if places == [*range(len(places))] or len(places) <= given:
        return None
    return operator.itemgetter(*places)


def _allocate(packed: tuple[PackedTensor, ...]) -> tuple[torch.Tensor, ...]:
    import torch

    return tuple(torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)) for tensor in packed)


def _bind_native(
    candidate: Candidate,
    definition: Definition,
    contract: SlotContract,
    weights: dict[str, torch.Tensor],
    functions: dict[str, Any],
) -> BoundSlot:
    run = functions[candidate.entry_point]
    names = tuple(name for name in definition.inputs if name not in weights)
    arrange, packed_bytes = None, 0
    if candidate.prepare:
        # a packed tensor with a weight's name stands for that weight, handed on as it is
        fresh = dict(
            zip(
                (tensor.name for tensor in candidate.packed if tensor.name not in weights),
                _allocate(tuple(tensor for tensor in candidate.packed if tensor.name not in weights)),
                strict=True,
            )
        )
        functions[candidate.prepare](*weights.values(), *fresh.values())
        constants = tuple(fresh[t.name] if t.name in fresh else weights[t.name] for t in candidate.packed)
        packed_bytes = sum(tensor.numel() * tensor.element_size() for tensor in fresh.values())
    else:
        constants = tuple(weights.values())
        arrange = _arrange(len(names), _interleaved(definition, weights))
    allocate = _output_allocator(definition, contract, names)

    if arrange is None:

        def call_into(outputs: tuple[torch.Tensor, ...], *inputs: Value) -> None:
            run(*inputs, *constants, *outputs)

        def call(*inputs: Value) -> tuple[torch.Tensor, ...]:
            outputs = allocate(inputs)
            run(*inputs, *constants, *outputs)
            return outputs

    else:

        def call_into(outputs: tuple[torch.Tensor, ...], *inputs: Value) -> None:
            run(*arrange(inputs + constants), *outputs)

        def call(*inputs: Value) -> tuple[torch.Tensor, ...]:
            outputs = allocate(inputs)
            run(*arrange(inputs + constants), *outputs)
            return outputs

    return BoundSlot(names, call, call_into, packed_bytes)


def _output_allocator(
    definition: Definition, contract: SlotContract, names: tuple[str, ...]
) -> Callable[[tuple[Value, ...]], tuple[torch.Tensor, ...]]:
    """Return a function from inputs to fresh outputs; shapes are kept per value of the axes that vary."""
    import torch

    empty = torch.empty
    outputs = [spec for name, spec in definition.outputs.items() if name not in contract.aliases]
    varying = [a for spec in outputs for a in spec.shape or () if definition.axes[a].value is None]
    axes = tuple(dict.fromkeys(varying))
    where = [_find_axis(definition, names, axis) for axis in axes]
    plans: dict[Any, list[tuple[tuple[int, ...], torch.dtype]]] = {}

    def plan(sizes: tuple[int, ...]) -> list[tuple[tuple[int, ...], torch.dtype]]:
        values = dict(zip(axes, sizes, strict=True))
        shapes = [tuple(definition.axes[a].value or values[a] for a in spec.shape or ()) for spec in outputs]
        return [(shape, getattr(torch, spec.dtype)) for shape, spec in zip(shapes, outputs, strict=True)]

    if len(where) == 1:
        ((index, dim),) = where

        def allocate_by_one(inputs: tuple[Value, ...]) -> tuple[torch.Tensor, ...]:
            size = inputs[index].shape[dim]
            if size not in plans:
                plans[size] = plan((size,))
            return tuple([empty(shape, dtype=dtype) for shape, dtype in plans[size]])

        return allocate_by_one

    def allocate(inputs: tuple[Value, ...]) -> tuple[torch.Tensor, ...]:
        sizes = tuple(inputs[index].shape[dim] for index, dim in where)
        if sizes not in plans:
            plans[sizes] = plan(sizes)
        return tuple([empty(shape, dtype=dtype) for shape, dtype in plans[sizes]])

    return allocate


def _find_axis(definition: Definition, names: tuple[str, ...], axis: str) -> tuple[int, int]:
    """Return (input, dimension) where the value of a varying axis can be read."""
    for index, name in enumerate(names):
        shape = definition.inputs[name].shape or ()
        if axis in shape:
            return index, shape.index(axis)
    raise BrokenInput(f"{definition.name}: no input has the axis {axis} of its outputs", "mend the definition")
