"""Cost of one call of a slot: what its roofline is made of."""

from __future__ import annotations

from pydantic import BaseModel


class Cost(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    bytes: int
    """Least bytes moved: each weight, input and output once."""
    flops: int
    """Floating-point operations; a fused multiply-add counts as two."""
