"""Definition and Workload, with FlashInfer-Trace's field names so that files exchange one to one.

Format: FlashInfer-Trace (definitions/*.json, workloads/*.jsonl). Our extra facts about a definition
(which inputs are weights, what is written in place) are in `SlotContract`, a sidecar, never in new top-level keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

DTYPES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1,
}  # fmt: skip


class Axis(BaseModel, frozen=True, extra="forbid"):
    type: Literal["const", "var"]
    value: int | None = None
    description: str | None = None

    @model_validator(mode="after")
    def _const_has_value(self) -> Axis:
        if (self.type == "const") != (self.value is not None):
            raise ValueError("a const axis needs a value and a var axis must not have one")
        return self


class TensorSpec(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    shape: tuple[str, ...] | None
    """Axis names; None for a scalar."""
    dtype: str
    description: str | None = None

    @model_validator(mode="after")
    def _dtype_is_known(self) -> TensorSpec:
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        return self


class Definition(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    name: str
    op_type: str
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    """In the order of the entry point's arguments."""
    outputs: dict[str, TensorSpec]
    reference: str
    """Python source with a top-level `run(**inputs) -> tuple` in plain torch. Its floating-point work happens in the
    dtype of its floating inputs: given float64 inputs it is the fp64 reference."""
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_are_consistent(self) -> Definition:
        both = set(self.inputs) & set(self.outputs)
        if both:
            raise ValueError(f"names are both input and output: {', '.join(sorted(both))}")
        for name, spec in {**self.inputs, **self.outputs}.items():
            for axis in spec.shape or ():
                if axis not in self.axes:
                    raise ValueError(f"{name}: shape names an unknown axis {axis!r}; known: {', '.join(self.axes)}")
        return self

    def shape_of(self, name: str, axes: dict[str, int]) -> tuple[int, ...]:
        """Return the concrete shape of input or output `name`; `()` for a scalar. Raises KeyError on a missing axis."""
        spec = self.inputs.get(name) or self.outputs[name]
        return tuple(self.axes[a].value if self.axes[a].value is not None else axes[a] for a in spec.shape or ())  # type: ignore[misc]


class RandomInput(BaseModel, frozen=True, extra="forbid"):
    type: Literal["random"] = "random"


class ScalarInput(BaseModel, frozen=True, extra="forbid"):
    type: Literal["scalar"] = "scalar"
    value: float | int | bool


class StoredInput(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    type: Literal["safetensors"] = "safetensors"
    path: str
    """Relative to the problem folder."""
    tensor_key: str


WorkloadInput = Annotated[RandomInput | ScalarInput | StoredInput, Field(discriminator="type")]


class Workload(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    uuid: str
    axes: dict[str, int]
    """Values of the `var` axes."""
    inputs: dict[str, WorkloadInput]


class SlotContract(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What the engine promises about a slot beyond its Definition. Stored as `contract.json` beside it."""

    definition: str
    weights: tuple[str, ...] = ()
    """Inputs that never change after load; what `prepare` may see."""
    aliases: dict[str, str] = {}
    """Output name → input name written in place. An aliased output is not passed to the entry point."""
    token_axis: str
    """The axis that counts tokens (or sequences) of a step; the step bucket."""
    linear: bool = False
    """Whether the outputs are linear in the activations, so that exact {0,1} cases apply."""
    reduction_axis: str | None = None
    """Axis summed over, K of the a-priori error bound."""
    int_ranges: dict[str, tuple[int, int]] = {}
    """Integer or Boolean input → lowest and highest value it may take, both included; indices stay inside."""
    regions: tuple[str, ...] = ()
    """Definitions this one hides when it is live (for a fused region)."""
