"""Draw inputs from a secret key: every tensor of every call is a function of (key, case, call) and nothing else.

The key is 256 bits of OS entropy taken after the candidate has loaded; its hash is recorded before, the key after the
verdict, so that any case can be drawn again. Source of the scheme: commit, load, reveal.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.registry import op_of

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor | float"]


@dataclass(frozen=True, slots=True)
class Key:
    """A secret stream of inputs."""

    secret: bytes

    @staticmethod
    def draw() -> Key:
        return Key(os.urandom(32))

    @property
    def commitment(self) -> str:
        """SHA-256 of the key, safe to publish before it."""
        return hashlib.sha256(self.secret).hexdigest()

    def seed(self, *parts: str | int) -> int:
        """Return 63 bits that depend on the key and every part."""
        text = "/".join(str(p) for p in parts).encode()
        return int.from_bytes(hashlib.blake2b(text, key=self.secret, digest_size=8).digest(), "little") >> 1

    def generator(self, *parts: str | int) -> torch.Generator:
        import torch

        return torch.Generator().manual_seed(self.seed(*parts))


def draw_activations(
    definition: Definition,
    contract: SlotContract,
    axes: Mapping[str, int],
    distribution: str,
    generator: torch.Generator,
) -> Tensors:
    """Return fresh inputs that are not weights, for one call."""
    drawn = op_of(definition).generate(definition, dict(axes), generator, distribution, weights=False)
    return {name: value for name, value in drawn.items() if name not in contract.weights}


def draw_weights(
    definition: Definition,
    contract: SlotContract,
    axes: Mapping[str, int],
    distribution: str,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Return one generated weight set."""
    drawn = op_of(definition).generate(definition, dict(axes), generator, distribution)
    return {name: drawn[name] for name in contract.weights}  # type: ignore[misc]
