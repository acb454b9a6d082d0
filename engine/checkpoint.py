"""Checkpoint: a model on disk as the engine takes it, from a GGUF file or a Hugging Face folder alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.engine import hf_folder
from kernelwright.engine.architectures import OPTIONAL, expected_shapes
from kernelwright.engine.config import ModelConfig
from kernelwright.engine.gguf import Weight, read_gguf, read_metadata
from kernelwright.engine.gguf_config import read_config
from kernelwright.engine.hf_config import is_tied, read_hf_config
from kernelwright.engine.weights import file_digest
from kernelwright.profiles.errors import BrokenInput


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    config: ModelConfig
    tensors: Mapping[str, Weight]
    """By the names GGUF files use, whatever the checkpoint calls them; mapped, not read."""
    tokenizer: Mapping[str, Any]
    """What `build_tokenizer` takes."""
    interleaved: bool = False
    """Query and key rows stand in the order of rotary pairs side by side, and must be brought into halves."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the checkpoint itself calls a tensor, where it is another name."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a GGUF file or a Hugging Face folder and check that its tensors are those of its architecture.

    Raises BrokenInput when it is missing, broken, or not fully understood.
    """
    path = Path(path)
    checkpoint = _open_folder(path) if path.is_dir() else _open_gguf(path)
    _check(checkpoint)
    return checkpoint


def read_tokenizer(path: Path) -> dict[str, Any]:
    """Return what `build_tokenizer` takes, without torch; plain lists, strings and numbers. Raises BrokenInput."""
    return hf_folder.tokenizer_data(path) if path.is_dir() else _tokenizer_part(read_metadata(path))


def model_files(path: Path) -> tuple[Path, ...]:
    """Return the files that a model is made of: the GGUF file, or those of the folder that this engine reads."""
    return hf_folder.folder_files(path) if path.is_dir() else (path,)


def model_digest(path: Path) -> str:
    """Return 64 hex digits that name a model's content: a file's SHA-256, or that of a folder's files and their names.

    A folder's is the SHA-256 of lines `<digest>  <name>`, as `sha256sum` prints them, in order of the names.
    """
    if not path.is_dir():
        return file_digest(path)
    lines = [f"{file_digest(part)}  {part.name}\n" for part in model_files(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def model_bytes(path: Path) -> int:
    """Return the bytes of a model's weights on disk."""
    files = hf_folder.weight_files(path) if path.is_dir() else (path,)
    return sum(part.stat().st_size for part in files)


def _open_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise BrokenInput(f"{path} holds no token embedding", "Give the path of a language model")
    config = read_config(path, file.metadata, embedding.num_rows)
    return Checkpoint(path, config, file.tensors, _tokenizer_part(file.metadata), config.traits.interleaved)


def _open_folder(path: Path) -> Checkpoint:
    raw = hf_folder.read_json(path / hf_folder.CONFIG)
    config = read_hf_config(path / hf_folder.CONFIG, raw, folder_name(path))
    tensors = hf_folder.read_tensors(path)
    names = hf_folder.file_names(config.traits, min(config.num_layers, len(tensors)))
    renamed = hf_folder.rename(tensors, names, config.traits, is_tied(raw))
    if not is_tied(raw) and "output.weight" not in renamed:
        raise BrokenInput(f"{path} lacks tensors: {names['output.weight']}", hf_folder.AGAIN)
    return Checkpoint(path, config, renamed, hf_folder.tokenizer_data(path), names=names)


def folder_name(path: Path) -> str:
    """Return a folder's name; for a snapshot in Hugging Face's cache (models--ORG--NAME/snapshots/HASH) the model's."""
    path = path.resolve()
    cached = path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")
    return path.parent.parent.name.split("--")[-1] if cached else path.name


def _tokenizer_part(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}


def _check(checkpoint: Checkpoint) -> None:
    path, config, tensors = checkpoint.path, checkpoint.config, checkpoint.tensors
    if config.num_layers > len(tensors):  # or a flipped byte would have us name 16 million of them
        raise BrokenInput(
            f"{path} claims {config.num_layers} layers and holds {len(tensors)} tensors",
            "The file may be corrupt; fetch it again",
        )
    expected = expected_shapes(config)
    found = {name: (*w.data.shape[:-1], w.num_columns) for name, w in tensors.items()}
    missing = sorted(set(expected) - set(found) - OPTIONAL)
    unknown = sorted(set(found) - set(expected))
    wrong = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    for what, names in (("lacks", missing), ("has unknown", unknown), ("has wrongly shaped", wrong)):
        if names:
            told = [checkpoint.names.get(name, name) for name in names]
            more = f" and {len(told) - 3} more" if len(told) > 3 else ""
            raise BrokenInput(
                f"{path} {what} tensors: {', '.join(told[:3])}{more}",
                f"They are not those of a plain {config.traits.hugging_face}; fetch it again or use another model",
            )
