"""The stated matrix: which distributions each type of op is judged on, and how each of its outputs is made.

docs/architecture.md, "Numbers", prints the same table; a test compares the two. A distribution is left out where the
op's own arithmetic leaves float32 on it: then the incumbent would fail as well, and nothing would be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelwright.sandbox.fidelity import Kind

SEARCH = ("normal", "outliers", "shifted")
COMMON = (
    "uniform", "laplace", "exponential", "lognormal", "shifted", "outliers", "needle", "large", "small", "constant",
    "sorted", "alternating", "zeros",
)  # fmt: skip
"""Once each in confirm, over the hidden shapes in turn; `normal` comes at every hidden shape."""
ZERO_MEAN = (
    "normal", "uniform", "laplace", "outliers", "large", "small", "alternating", "vast",
)  # fmt: skip
"""Inputs on which Gate B must hold outright."""
AT_LEAST_SHAPE = ("denormal", "tiny")
"""Drawn at the smallest shape: processors are slow at denormals."""
NONFINITE = {"nan": float("nan"), "+inf": float("inf"), "-inf": float("-inf")}
"""Normal with one such value at a random place."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What one type of op is judged on. `kinds`: output → how it is made; one not named is `conditioned`."""

    extreme: tuple[str, ...]
    """Confirm only, after COMMON: sizes near both ends of float32, denormals, and values that are not finite."""
    why: str
    """Why these extremes and no others."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    search: tuple[str, ...] = SEARCH

    @property
    def confirm(self) -> tuple[str, ...]:
        return (*COMMON, *self.extreme)

    def kind_of(self, output: str) -> Kind:
        return self.kinds.get(output, "conditioned")


LINEAR = Matrix(
    ("vast", "denormal", "nan"),
    "one product with a weight: 2^80 leaves room for the scales of a packed block; Inf times a stored 0 is NaN "
    "or not as d, q and m are multiplied out, which the contract leaves open",
    {"y": "matmul"},
)
GATED = Matrix(
    ("huge", "tiny", "nan"),
    "two sums are multiplied: 2^48 squared fits, and results of 2^-64 squared are denormal; Inf as for linear",
)
ATTENTION = Matrix(
    ("denormal", "nan"),
    "scores of `large` are beyond exp's range already, and larger ones only make ties; a mask may be -Inf or a branch, "
    "so Inf in a score is left open; searched without outliers, whose one column holds all of the error there is",
    search=("normal", "exponential", "shifted"),
)
NORM = Matrix(
    ("huge", "denormal", "nan", "+inf", "-inf"),
    "it squares: 2^48 squared and summed fits, 2^80 does not; a denormal total shows in both outputs, as "
    "eps keeps the root from zero",
    {"y": "elementwise", "residual_out": "elementwise"},
)
MLP = Matrix(
    ("huge", "denormal", "nan"),
    "it squares, as add_rmsnorm; denormals show in residual_out, as y underflows to 0; Inf as for linear",
    {"residual_out": "elementwise"},
)
MATRICES = {
    "add_rmsnorm": NORM,
    "rmsnorm": replace(NORM, kinds={"y": "elementwise"}),
    "rope_cache": Matrix(
        ("vast", "denormal", "nan", "+inf", "-inf"),
        "a rotation: one product with a cosine; v is copied bit for bit",
        {"q": "rotation", "k_cache_out": "rotation", "v_cache_out": "copy"},
    ),
    "norm_rope_cache": Matrix(
        ("huge", "denormal", "nan"),
        "it squares, as add_rmsnorm, and rotates; v is copied bit for bit",
        {"v_cache_out": "copy"},
    ),
    "decode_attention": ATTENTION,
    "prefill_attention": ATTENTION,
    "sliding_decode_attention": ATTENTION,
    "sliding_prefill_attention": ATTENTION,
    "q4_1_attention_block": Matrix(
        ("denormal", "nan"), "as attention; denormals show in residual_out", {"residual_out": "elementwise"}
    ),
}
OF_ANY_WEIGHTS = {"_linear": LINEAR, "_gate_up_silu": GATED, "_gate_up_gelu": GATED, "_mlp_block": MLP}
"""By the end of the op's name: weights of every kind are multiplied out to the same numbers."""
DEFAULT = Matrix(("denormal", "nan"), "nothing is known of how far its arithmetic reaches")


def matrix_of(op_type: str) -> Matrix:
    """Return the matrix of `op_type`; the default one where none is stated."""
    for ending, matrix in OF_ANY_WEIGHTS.items():
        if op_type.endswith(ending):
            return matrix
    return MATRICES.get(op_type, DEFAULT)
