"""WeightBox: every weight set a runner may bind, in one sealed, read-only memory file shared by both arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelwright.sandbox.mailbox import Layout, Mailbox, Place

if TYPE_CHECKING:
    import torch


class WeightBox:
    """Weight sets [{name: tensor}] written once and sealed. `places[i]` says where set i lies."""

    def __init__(self, sets: Sequence[Mapping[str, torch.Tensor]]) -> None:
        layout = Layout()
        self.places: list[dict[str, Place]] = []
        seen: dict[int, Place] = {}
        for weights in sets:
            placed = {}
            for name, tensor in weights.items():
                # a tensor shared by all sets (the rope tables) is stored once
                key = tensor.data_ptr() if tensor.numel() else id(tensor)
                if key not in seen or seen[key].shape != tuple(tensor.shape):
                    seen[key] = layout.place(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                placed[name] = seen[key]
            self.places.append(placed)
        self._box = Mailbox("weights", layout.end)
        for weights, placed in zip(sets, self.places, strict=True):
            for name, tensor in weights.items():
                self._box.write(placed[name], tensor)
        self._box.seal_contents()

    @property
    def fd(self) -> int:
        return self._box.fd

    def close(self) -> None:
        self._box.close()
