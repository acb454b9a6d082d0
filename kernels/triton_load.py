"""Load a triton candidate into Triton's interpreter, and say in which order it runs the blocks of a grid.

The engine's tensors lie in CPU memory, so a triton candidate is interpreted wherever it is loaded: that says whether it
is right, never how fast it is. Its host code is destination passing, as native code is: `run(inputs…, outputs…)`, and
`prepare(weights…, packed…)` where it declares one. The interpreter runs blocks one after the other in ascending order,
which hides what races on a GPU; `set_block_order` makes it take another order.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import random
import sys
import types
from collections.abc import Callable
from typing import Any

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks


def has_triton() -> bool:
    """Return whether triton is installed; nothing is imported."""
    return importlib.util.find_spec("triton") is not None


def load_triton(candidate: Candidate, definition: Definition, contract: SlotContract) -> dict[str, Callable[..., None]]:
    """Return the candidate's host functions by name; inputs they may not write are shown to them as copies.

    Raises EnvironmentLacks without triton or where it was imported without its interpreter, and BrokenInput when the
    source does not define the functions.
    """
    _import_interpreter()
    name = f"candidate_{candidate.definition}"
    source = candidate.sources[0]
    path = f"<{name}/{source.path}>"
    # the interpreter reads the source of each kernel again, through linecache
    linecache.cache[path] = (len(source.content), None, source.content.splitlines(keepends=True), path)
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source.content, path, "exec"), module.__dict__)  # the module is the candidate's own
    wanted = [candidate.entry_point, *([candidate.prepare] if candidate.prepare else [])]
    missing = [each for each in wanted if not callable(module.__dict__.get(each))]
    if missing:
        raise BrokenInput(f"{candidate.definition}: the source does not define {', '.join(missing)}", "define it")
    functions = {each: module.__dict__[each] for each in wanted}
    num_outputs = sum(output not in contract.aliases for output in definition.outputs)
    aliased = [name in contract.aliases.values() for name in _argument_names(candidate, definition, contract)]
    functions[candidate.entry_point] = _shielded(functions[candidate.entry_point], aliased + [True] * num_outputs)
    if candidate.prepare:
        num_fresh = sum(t.name not in contract.weights for t in candidate.packed)
        writable = [False] * len(contract.weights) + [True] * num_fresh
        functions[candidate.prepare] = _shielded(functions[candidate.prepare], writable)
    return functions


def set_block_order(order: str) -> None:
    """Make the interpreter run the blocks of every grid in `order`: forward, reverse, or random:SEED.

    Raises EnvironmentLacks without the interpreter; an unknown order is refused at the first grid (BrokenInput).
    """
    _import_interpreter()
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    # the interpreter counts through the grid itself; where it says which block comes next, another one is put
    grids: dict[tuple[int, ...], list[int]] = {}
    plain = type(builder).set_grid_idx

    def set_grid_idx(x: int, y: int, z: int) -> None:
        grid = tuple(int(size) for size in builder.grid_dim)
        if grid not in grids:
            grids[grid] = arrange_blocks(order, grid[0] * grid[1] * grid[2])
        place = grids[grid][(x * grid[1] + y) * grid[2] + z]
        plain(builder, place // (grid[1] * grid[2]), place // grid[2] % grid[1], place % grid[2])

    builder.set_grid_idx = set_grid_idx


def arrange_blocks(order: str, count: int) -> list[int]:
    """Return the numbers 0…count-1 in `order`. Raises BrokenInput on an unknown one."""
    kind, _, seed = order.partition(":")
    blocks = list(range(count))
    if kind == "reverse":
        blocks.reverse()
    elif kind == "random":
        random.Random(seed).shuffle(blocks)
    elif kind != "forward":
        raise BrokenInput(f"unknown block order {order!r}", "name forward, reverse or random:SEED")
    return blocks


def _import_interpreter() -> None:
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # triton's own library is made for one or the other as it is imported
    try:
        import triton
    except ImportError:
        raise EnvironmentLacks("triton is not installed", "install it: pip install 'kernelwright[triton]'") from None
    if not triton.knobs.runtime.interpret:
        raise EnvironmentLacks("triton was imported without its interpreter", "set TRITON_INTERPRET=1 before it is")


def _argument_names(candidate: Candidate, definition: Definition, contract: SlotContract) -> list[str]:
    if not candidate.prepare:
        return list(definition.inputs)
    others = [name for name in definition.inputs if name not in contract.weights]
    return [*others, *(tensor.name for tensor in candidate.packed)]


def _shielded(function: Callable[..., Any], writable: list[bool]) -> Callable[..., None]:
    """Return `function` with copies for what it may not write: the interpreter writes back all that it was given.

    It raises RuntimeError when a copy comes back changed.
    """
    import torch

    def call(*arguments: Any) -> None:
        given = [
            value.clone() if isinstance(value, torch.Tensor) and not may_write else value
            for value, may_write in zip(arguments, writable, strict=True)
        ]
        function(*given)
        for mine, theirs, may_write in zip(arguments, given, writable, strict=True):
            if isinstance(mine, torch.Tensor) and not may_write and not _same_bytes(mine, theirs):
                raise RuntimeError("the candidate wrote to one of its inputs")

    return call


def _same_bytes(a: Any, b: Any) -> bool:
    import torch

    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
