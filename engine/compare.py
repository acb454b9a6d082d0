"""Compare one live call of a kernel with the reference, on copies of its inputs.

Rows are judged each on its own, as the judge does: the error of a row (a token's values) over the row's largest value,
by the same limit as the check at load. A row that is nearly zero beside the others is measured by a thousandth of the
largest of them. Caches: the slots that had to be written are compared like rows, all else must not have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.engine.checks import RELATIVE_ERROR, exact_reference, reference
from kernelwright.engine.config import PAGE_SIZE

if TYPE_CHECKING:
    import random

    from torch import Tensor

    from kernelwright.engine.dispatch import KernelCall

BYSTANDERS = 4
"""Pages that are not of the step and are looked at all the same: nobody may write to them."""
LEAST_SCALE = 1e-3


@dataclass(frozen=True, slots=True)
class Copies:
    """Inputs of one call, by name, as they were before it. Caches are cut down to `pages`; indices into them fit."""

    inputs: dict[str, Any]
    pages: Tensor | None
    """[n] int64, ascending; None where no input is a cache."""


@dataclass(frozen=True, slots=True)
class Difference:
    text: str
    is_finite: bool = True
    """False when a value that had to be finite is none."""


def copy_inputs(planned: KernelCall, inputs: Sequence[Any], draw: random.Random) -> Copies:
    """Return copies of the inputs of one call, given in the order of its bound names."""
    named = dict(zip(planned.bound.names, inputs, strict=True))
    caches = _caches(planned, named)
    pages = None if not caches else _pages_of(named, named[caches[0]].shape[0], draw)
    copied: dict[str, Any] = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            copied[name] = value
        elif pages is None:
            copied[name] = value.clone()
        elif name in caches:
            copied[name] = value.index_select(0, pages)
        elif name == "block_table":
            copied[name] = torch.searchsorted(pages, value.long()).to(value.dtype)
        elif name == "slot_mapping":
            copied[name] = torch.searchsorted(pages, value // PAGE_SIZE) * PAGE_SIZE + value % PAGE_SIZE
        else:
            copied[name] = value.clone()
    return Copies(copied, pages)


def compare(
    planned: KernelCall, copies: Copies, weights: dict[str, Tensor], inputs: Sequence[Any], outputs: tuple[Tensor, ...]
) -> Difference | None:
    """Return what is wrong with `outputs` (and with the inputs after the call), or None.

    None also when the reference itself is not finite: the fault, if any, lies before this call.
    """
    definition = planned.site.definition
    changed = _changed_input(planned, copies, inputs)
    if changed is not None:
        return changed
    given = {name: weights[name] if name in weights else copies.inputs[name] for name in definition.inputs}
    first = _judge(planned, copies, inputs, outputs, reference(definition, given))
    if first is None:
        return None
    return _judge(planned, copies, inputs, outputs, exact_reference(definition, given))


def _judge(
    planned: KernelCall,
    copies: Copies,
    inputs: Sequence[Any],
    outputs: tuple[Tensor, ...],
    expected: tuple[Tensor, ...],
) -> Difference | None:
    contract, definition = planned.site.contract, planned.site.definition
    if not all(bool(torch.isfinite(want).all()) for want in expected):
        return None
    named = dict(zip(planned.bound.names, inputs, strict=True))
    fresh = iter(outputs)
    for name, want in zip(definition.outputs, expected, strict=True):
        if name in contract.aliases:
            slots = copies.inputs["slot_mapping"]
            assert copies.pages is not None
            got = named[contract.aliases[name]].index_select(0, copies.pages).flatten(0, 1).index_select(0, slots)
            want = want.flatten(0, 1).index_select(0, slots)
        else:
            got = next(fresh)
        difference = _rows_differ(name, got, want)
        if difference is not None:
            return difference
    return None


def _rows_differ(name: str, got: Tensor, want: Tensor) -> Difference | None:
    if got.shape != want.shape:
        return Difference(f"{name} has shape {tuple(got.shape)}, expected {tuple(want.shape)}")
    if not bool(torch.isfinite(got).all()):
        return Difference(f"{name} is not finite where the reference is", is_finite=False)
    rows, exact = got.double().reshape(got.shape[0], -1), want.double().reshape(want.shape[0], -1)
    size = exact.abs().amax(dim=1)
    scale = size.clamp(min=max(LEAST_SCALE * float(size.max()), 1e-30))
    errors = (rows - exact).abs().amax(dim=1) / scale
    worst = int(errors.argmax())
    if float(errors[worst]) <= RELATIVE_ERROR:
        return None
    return Difference(
        f"row {worst} of {name} is off by {float(errors[worst]):.1e} of its largest value, "
        f"{RELATIVE_ERROR:.0e} is the limit"
    )


def _changed_input(planned: KernelCall, copies: Copies, inputs: Sequence[Any]) -> Difference | None:
    """Return which input the call wrote to although it had not to; caches by the copied pages."""
    contract = planned.site.contract
    for name, now in zip(planned.bound.names, inputs, strict=True):
        before = copies.inputs[name]
        if not isinstance(now, torch.Tensor) or name in ("block_table", "slot_mapping"):
            continue
        if copies.pages is not None and _is_cache(planned, name):
            now = now.index_select(0, copies.pages)
        same = _bits(now) == _bits(before)
        if name in contract.aliases.values():
            same.flatten(0, 1)[copies.inputs["slot_mapping"]] = True
        if not bool(same.all()):
            return Difference(f"it wrote to {name} where it had not to")
    return None


def _bits(tensor: Tensor) -> Tensor:
    """Return a view in which equal means the same bits, what is not a number included."""
    return tensor.view(torch.int32) if tensor.dtype == torch.float32 else tensor


def _is_cache(planned: KernelCall, name: str) -> bool:
    return (planned.site.definition.inputs[name].shape or ("",))[0] == "PAGES"


def _caches(planned: KernelCall, named: dict[str, Any]) -> list[str]:
    return [name for name in named if _is_cache(planned, name)]


def _pages_of(named: dict[str, Any], num_pages: int, draw: random.Random) -> Tensor:
    """Return the pages that a call reads or writes, and a few more."""
    others = [torch.tensor(draw.sample(range(num_pages), min(BYSTANDERS, num_pages)))]
    if "block_table" in named:
        others.append(named["block_table"].flatten().long())
    if "slot_mapping" in named:
        others.append(named["slot_mapping"] // PAGE_SIZE)
    return torch.unique(torch.cat(others))  # type: ignore[no-any-return, no-untyped-call]
