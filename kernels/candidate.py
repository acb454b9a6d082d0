"""Candidate: one proposed implementation of a Definition; its identity is the digest of its content."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, field_validator, model_validator

from kernelwright.kernels.definition import DTYPES

Language = Literal["cpp", "python", "triton", "cuda"]
Isa = Literal["x86-64-v4", "x86-64-v3", "x86-64-v2", "armv8.2", "any"]


class SourceFile(BaseModel, frozen=True, extra="forbid"):
    path: str
    content: str

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not path:
            raise ValueError(f"source path must be relative and stay inside its folder: {path!r}")
        return path


class PackedTensor(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One buffer that `prepare` fills from the weights, once per load."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @field_validator("dtype")
    @classmethod
    def _dtype_is_known(cls, dtype: str) -> str:
        if dtype not in DTYPES:
            raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
        return dtype


class AxisRange(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Inclusive range of a `var` axis for which an implementation claims to be right."""

    low: int
    high: int

    @model_validator(mode="after")
    def _ordered(self) -> AxisRange:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"not a range: {self.low}..{self.high}")
        return self


class Candidate(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    definition: str
    language: Language
    sources: tuple[SourceFile, ...]
    """For cpp the first file is the translation unit."""
    entry_point: str = "run"
    """Symbol called. Arguments: see docs/architecture.md, "Entry points"."""
    prepare: str | None = None
    """Symbol that packs the weights, called once per load with (weights…, packed…)."""
    packed: tuple[PackedTensor, ...] = ()
    ranges: dict[str, AxisRange] = {}
    """Per `var` axis, where this candidate claims to be right; an axis not named is unrestricted."""
    isa: Isa = "any"
    compile_flags: tuple[str, ...] = ()
    proposer: Literal["templates", "model", "import", "incumbent"]
    author: str
    """Who wrote it: a family name, a model name, a person."""
    parent: str | None = None
    """Digest of the candidate it was derived from."""
    parameters: dict[str, int | str] = {}
    """The point of its family, for templates."""
    notes: str = ""

    @model_validator(mode="after")
    def _prepare_goes_with_packed(self) -> Candidate:
        if (self.prepare is None) != (not self.packed):
            raise ValueError("`prepare` and `packed` go together: name both or neither")
        if not self.sources:
            raise ValueError("a candidate needs at least one source file")
        return self

    def covers(self, axes: dict[str, int]) -> bool:
        """Return whether every axis value lies in the claimed ranges."""
        return all(r.low <= axes[a] <= r.high for a, r in self.ranges.items() if a in axes)
