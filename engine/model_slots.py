"""What the slots of a model are, and the weights behind each: for posing problems outside the serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.engine.config import ModelConfig, read_config
from kernelwright.engine.gguf import read_gguf
from kernelwright.engine.llama import LlamaWeights
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from torch import Tensor


class ModelSlots:
    """The definitions of one GGUF model, where each is used, and its weights by layer. The file stays mapped."""

    def __init__(self, model_path: Path, max_positions: int | None = None) -> None:
        """Raises BrokenInput when the file is no model that the engine runs."""
        file = read_gguf(model_path)
        embedding = file.tensors.get("token_embd.weight")
        if embedding is None:
            raise BrokenInput(f"{model_path} holds no token embedding", "Give the path of a language model")
        self.config: ModelConfig = read_config(model_path, file.metadata, embedding.num_rows)
        self._weights = LlamaWeights(file, self.config, max_positions or self.config.context_length)
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
