"""What the slots of a model are, and the weights behind each: for posing problems outside the serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.engine.checkpoint import open_checkpoint
from kernelwright.engine.config import ModelConfig
from kernelwright.engine.decoder import DecoderWeights
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.registry import op_of

if TYPE_CHECKING:
    from torch import Tensor


class ModelSlots:
    """The definitions of one model, where each is used, and its weights by layer. Its files stay mapped."""

    def __init__(self, model_path: Path, max_positions: int | None = None) -> None:
        """Raises BrokenInput when there is no model at the path that the engine runs."""
        checkpoint = open_checkpoint(model_path)
        self.config: ModelConfig = checkpoint.config
        self._weights = DecoderWeights(checkpoint, max_positions or self.config.context_length)
        self._places: dict[str, list[tuple[int, str]]] = {}
        self._definitions: dict[str, Definition] = {}
        for layer in range(self.config.num_layers + 1):
            for slot, definition in self._weights.definitions(layer).items():
                self._definitions[definition.name] = definition
                self._places.setdefault(definition.name, []).append((layer, slot))

    def definitions(self) -> dict[str, Definition]:
        """Return every definition of the model by name, regions included."""
        return dict(self._definitions)

    def contracts(self) -> dict[str, SlotContract]:
        """Return the contract of every definition by name."""
        return {name: op_of(definition).contract(definition) for name, definition in self._definitions.items()}

    def num_uses(self, name: str) -> int:
        """Return how many slots of one forward pass use the definition `name`."""
        return len(self._places[name])

    def weights(self, name: str) -> list[dict[str, Tensor]]:
        """Return the weights of `name`, one dict per slot that uses it, under the definition's input names."""
        return [self._weights.slot(layer, slot) for layer, slot in self._places[name]]
