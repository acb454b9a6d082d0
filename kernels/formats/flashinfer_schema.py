"""FlashInfer-Trace's records as pydantic models of our own, and what we keep beside them.

Fields a file has beyond its schema are kept by the models, so that readers can say what they leave out.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from kernelwright.kernels.candidate import SourceFile
from kernelwright.kernels.definition import Workload

THEIR_DTYPES = {
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64", "int32", "int16",
    "int8", "bool",
}  # fmt: skip


class TheirAxis(BaseModel, frozen=True, extra="allow"):
    type: Literal["const", "var"]
    value: int | None = None
    description: str | None = None


class TheirTensor(BaseModel, frozen=True, extra="allow"):
    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class TheirDefinition(BaseModel, frozen=True, extra="allow"):
    name: str = Field(min_length=1)
    op_type: str = Field(min_length=1)
    axes: dict[str, TheirAxis]
    inputs: dict[str, TheirTensor]
    outputs: dict[str, TheirTensor]
    reference: str = Field(min_length=1)
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()


class BuildSpec(BaseModel, frozen=True, extra="allow"):
    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: tuple[str, ...]
    entry_point: str
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    binding: Literal["tvm-ffi", "torch"] | None = None


class Solution(BaseModel, frozen=True, extra="allow"):
    name: str = Field(min_length=1)
    definition: str
    author: str
    spec: BuildSpec
    sources: tuple[SourceFile, ...] = Field(min_length=1)
    description: str | None = None


class Trace(BaseModel, frozen=True, extra="allow"):
    definition: str
    solution: str | None = None
    workload: Workload
    evaluation: dict[str, Any] | None = None


class DefinitionSidecar(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What a problem has beside its definition and workloads."""

    file: str
    """Digest of the definition's file."""
    problem: dict[str, Any]
    """The Problem without definition and workloads."""


class CandidateSidecar(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    file: str
    """Digest of the solution's file."""
    candidate: dict[str, Any]
    """The Candidate without its sources."""
