"""Read GGUF weight files: memory-mapped, exact, and refusing what we do not know.

Format: the GGUF specification; block layouts as in ggml (kernels/blocks.py). Tensors of the quantised types in `KINDS`
keep their raw blocks, row by row, as int8; they are never re-quantised. Those of other quantised types become float32.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from kernelwright.kernels.ops.weights import QUANTISED
from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from gguf import GGUFReader
    from torch import Tensor

Kind = Literal["f32", "f16", "bf16", "q8_0", "q4_1", "q4_0", "q4_k", "q6_k"]
KINDS: dict[str, Kind] = {
    "F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0", "Q4_1": "q4_1", "Q4_0": "q4_0", "Q4_K": "q4_k",
    "Q6_K": "q6_k",
}  # fmt: skip
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of the file. `data` is [rows, columns] (or [columns]) in its own float type, or, for quantised kinds,
    raw blocks as int8 [rows, columns / block weights · block bytes]; it shares the mapped file's memory.
    """

    kind: Kind
    data: Tensor

    @property
    def num_rows(self) -> int:
        return self.data.shape[0]

    @property
    def num_columns(self) -> int:
        if self.kind in FLOATS:
            return self.data.shape[-1]
        blocks = QUANTISED[self.kind]
        return self.data.shape[-1] // blocks.block_bytes * blocks.block_weights

    @property
    def raw(self) -> Tensor:
        """The data as ops take it: bytes as int8 [rows, bytes of a row] for bfloat16, too."""
        import torch

        return self.data.view(torch.int8) if self.kind == "bf16" else self.data


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path
    metadata: Mapping[str, Any]
    """Key → value (str, int, float, bool or list of them)."""
    tensors: Mapping[str, Weight]


def read_gguf(path: Path) -> GgufFile:
    """Map a GGUF file and return its metadata and tensors.

    Raises BrokenInput when it is missing, truncated, corrupt or holds a tensor type we do not read.
    """
    reader, metadata = _read(Path(path))
    tensors = {tensor.name: _weight(Path(path), tensor) for tensor in reader.tensors}
    return GgufFile(path=Path(path), metadata=metadata, tensors=tensors)


def read_metadata(path: Path) -> Mapping[str, Any]:
    """Return the metadata of a GGUF file, without torch: what a tokenizer needs. Raises as `read_gguf`."""
    return _read(Path(path))[1]


def _read(path: Path) -> tuple[GGUFReader, dict[str, Any]]:
    if not path.is_file():
        remedy = "Give the path of a GGUF file or of a Hugging Face folder with --model"
        raise BrokenInput(f"there is no model file at {path}", remedy)
    try:
        reader = _open(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error) as error:
        # the whole vocabulary of what numpy, struct and the reader raise on bytes that are not what they claim to be
        remedy = "It may be cut short; fetch it again"
        raise BrokenInput(f"{path} is not a readable GGUF file ({error})", remedy) from error
    except OSError as error:
        raise BrokenInput(f"{path} cannot be read: {error.strerror or error}", "Check its permissions") from error
    if reader.byte_order != "I":
        raise BrokenInput(f"{path} is in the other byte order", "Convert it to this machine's byte order")
    return reader, metadata


def dequantize(weight: Weight) -> Tensor:
    """Return `weight` as float32, shaped [rows, columns] (or [columns]); bit-equal to ggml."""
    import torch

    if weight.kind in FLOATS:
        return weight.data.float()
    return cast("Tensor", QUANTISED[weight.kind].decode(weight.data, torch.float32))


def unpermute(weight: Weight, num_heads: int) -> Weight:
    """Return q or k rows in half-split (NeoX) order; GGUF stores them interleaved, for rotary pairs side by side.

    Whole rows move, so raw blocks survive. Inverse of the permutation in llama.cpp's converter: row (head, i, j) of
    [heads, D/2, 2] becomes row (head, j, i).
    """
    half = weight.num_rows // num_heads // 2
    rows = weight.data.view(num_heads, half, 2, -1).transpose(1, 2)
    return Weight(kind=weight.kind, data=rows.reshape(weight.data.shape))


def _weight(path: Path, tensor: Any) -> Weight:
    import torch

    kind = KINDS.get(tensor.tensor_type.name)
    if kind is None:
        return Weight("f32", torch.from_numpy(_unpack(path, tensor)))
    data = tensor.data
    if kind == "bf16":
        return Weight(kind, torch.from_numpy(data.view(np.int16)).view(torch.bfloat16))
    return Weight(kind, torch.from_numpy(data if kind in FLOATS else data.view(np.int8)))


def _unpack(path: Path, tensor: Any) -> np.ndarray:
    """Return a tensor of another quantised type as float32, as the package reads it: four bytes a weight in memory."""
    from gguf.quants import dequantize as unpack

    try:
        return np.ascontiguousarray(unpack(tensor.data, tensor.tensor_type), np.float32)
    except NotImplementedError as error:
        raise BrokenInput(
            f"{path}: tensor {tensor.name} has type {tensor.tensor_type.name}, which this engine does not read",
            f"Use a file whose tensors are {', '.join(KINDS)}, or quantised by ggml",
        ) from error


def _open(path: Path) -> GGUFReader:
    from gguf import GGUFReader, GGUFValueType

    class QuickReader(GGUFReader):
        """The package's reader, with two slow paths replaced: a vocabulary is 100 000 strings, and at a memmap slice
        or three for each the plain reader takes longer than the rest of the engine's start.
        """

        @property
        def data(self) -> Any:  # a plain array where the parent keeps a memmap
            return self._bytes

        @data.setter
        def data(self, mapped: Any) -> None:
            self._bytes = mapped.view(np.ndarray)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            head, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            item, start = GGUFValueType(head[0]), orig_offs + 12
            if item == GGUFValueType.STRING:
                parts, end = _read_strings(self._bytes, start, int(count[0]))
            elif item in self.gguf_scalar_to_np:
                parts = [self._get(start, self.gguf_scalar_to_np[item], int(count[0]))]
                if parts[0].size != count[0]:
                    raise ValueError(f"an array at byte {start} runs past the end of the file")
                end = start + parts[0].nbytes
            else:
                raise ValueError(f"an array of {item.name} at byte {start} is not supported")
            indices = list(range(2, 2 + len(parts)))
            return end - orig_offs, [head, count, *parts], indices, [GGUFValueType.ARRAY, item]

    # copy on write: tensors count as writable for torch, and a stray write can never reach the file
    return QuickReader(path, mode="c")


def _read_strings(data: np.ndarray, offset: int, count: int) -> tuple[list[Any], int]:
    view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer, its stubs do not say so
    strings: list[Any] = []
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", view, offset)
        end = offset + 8 + length
        if end > len(view):
            raise ValueError(f"a string at byte {offset} runs past the end of the file")
        strings.append(view[offset + 8 : end])
        offset = end
    return strings, offset
