"""Problem: a Target made checkable. Definition, contract, workloads, incumbent and precision policy."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.definition import Definition, SlotContract, Workload


class PrecisionPolicy(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What a candidate may do to precision; everything is off unless declared here.

    Each field changes the judge's gates by a stated amount: docs/architecture.md, "Numbers".
    """

    accumulate: Literal["float32", "float64"] = "float32"
    """The accumulator sums must be as good as; `float64` asks for more than the output's own format."""
    allow_tf32: bool = False
    """Inputs of products may be rounded to 10 bits of mantissa: adds a relative error of 2^-10."""
    allow_fast_math: bool = False
    """Approximate reciprocals, roots and exponentials: adds a relative error of 2^-17."""
    allow_flush_to_zero: bool = False
    """Denormals may count as zero: results may be off by 2^10 times the smallest normal number."""
    allow_int8_activations: bool = False
    """Activations may be quantised to 8 bits with one scale per row: adds a relative error of 2^-4."""


class Problem(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    target: str | None
    """Digest of the Target; None for a problem posed by hand."""
    definition: Definition
    contract: SlotContract
    incumbent: Candidate
    """Python candidate in plain torch: what the engine runs with no pack."""
    workloads: tuple[Workload, ...]
    """Public workloads, captured from the engine and generated. Hidden ones are drawn inside `ranges` at confirm."""
    ranges: dict[str, AxisRange]
    """Ranges of the `var` axes that matter for this problem; hidden shapes are drawn inside, ends included."""
    timed_axes: dict[str, int]
    """The axis values at which speed is judged."""
    num_weight_sets: int
    """Layers of the model that use this slot: the ring of weights one timed batch walks."""
    distributions: tuple[str, ...] = ()
    """Distributions on which the reference is finite, where some are not (a logarithm of negatives); () means all."""
    precision: PrecisionPolicy = PrecisionPolicy()
