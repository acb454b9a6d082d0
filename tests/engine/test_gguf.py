"""Weights are read bit for bit; a file that is not what it claims to be is refused with what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, quants
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.engine.checkpoint import open_checkpoint
from kernelwright.engine.decoder import DecoderWeights
from kernelwright.engine.gguf import KINDS, Weight, dequantize, read_gguf, read_metadata, unpermute
from kernelwright.engine.gguf_config import read_config
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.score import ForcedSequence
from kernelwright.kernels.ops.weights import QUANTISED
from kernelwright.profiles.errors import BrokenInput, KernelwrightError

SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write_one(path: Path, values: np.ndarray, kind: str) -> np.ndarray:
    raw = quants.quantize(values, GGMLQuantizationType[kind])
    write_raw(path, raw, GGMLQuantizationType[kind])
    return raw


def write_raw(path: Path, raw: np.ndarray, kind: GGMLQuantizationType) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("_K")])
@SETTINGS
@given(rows=st.integers(1, 9), blocks=st.integers(1, 5), seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_every_type_is_read_bit_for_bit(
    tmp_path: Path, kind: str, rows: int, blocks: int, seed: int, scale: float
) -> None:
    values = (np.random.default_rng(seed).normal(size=(rows, 32 * blocks)) * scale).astype(np.float32)
    raw = write_one(tmp_path / "one.gguf", values, kind)
    weight = read_gguf(tmp_path / "one.gguf").tensors["w"]
    assert (weight.num_rows, weight.num_columns) == values.shape
    expected = quants.dequantize(raw, GGMLQuantizationType[kind])
    assert np.array_equal(dequantize(weight).numpy(), expected)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_blocks_that_the_package_reads_but_cannot_write_are_read_bit_for_bit(tmp_path: Path, kind: str) -> None:
    drawn = QUANTISED[kind.lower()].draw(7, 768, torch.Generator().manual_seed(2), "normal")
    assert isinstance(drawn, torch.Tensor)
    raw = drawn.numpy().view(np.uint8)
    write_raw(tmp_path / "one.gguf", raw, GGMLQuantizationType[kind])
    weight = read_gguf(tmp_path / "one.gguf").tensors["w"]
    assert (weight.kind, weight.num_rows, weight.num_columns) == (kind.lower(), 7, 768)
    assert np.array_equal(dequantize(weight).numpy(), quants.dequantize(raw, GGMLQuantizationType[kind]))


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "IQ4_XS", "IQ4_NL"])
def test_other_quantised_types_become_floats_as_the_package_reads_them(tmp_path: Path, kind: str) -> None:
    raw_type = GGMLQuantizationType[kind]
    block, size = GGML_QUANT_SIZES[raw_type]
    raw = np.random.default_rng(1).integers(0, 64, (3, 2 * size), np.uint8)  # scales that are finite
    write_raw(tmp_path / "one.gguf", raw, raw_type)
    weight = read_gguf(tmp_path / "one.gguf").tensors["w"]
    assert (weight.kind, weight.num_rows, weight.num_columns) == ("f32", 3, 2 * block)
    assert np.array_equal(dequantize(weight).numpy(), quants.dequantize(raw, raw_type))


def test_q4_0_is_what_ggml_says(tmp_path: Path) -> None:
    """18 bytes: an f16 scale d, then 16 bytes of nibbles, the low ones first; w = d · (q - 8)."""
    nibbles = np.arange(16, dtype=np.uint8)
    raw = np.concatenate((np.array([0.5], np.float16).view(np.uint8), nibbles | (15 - nibbles) << 4))[None]
    write_raw(tmp_path / "one.gguf", raw, GGMLQuantizationType.Q4_0)
    weight = read_gguf(tmp_path / "one.gguf").tensors["w"]
    expected = [0.5 * (q - 8) for q in (*range(16), *range(15, -1, -1))]
    assert dequantize(weight).tolist() == [expected]


def test_a_model_of_another_type_says_what_its_floats_say(make_tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    quantised = make_tiny_model(tmp_path / "q.gguf", kind="Q5_0", head="Q5_1")
    weights = {name: dequantize(weight) for name, weight in read_gguf(quantised).tensors.items()}
    plain = make_tiny_model(tmp_path / "f.gguf", kind="F32", head="F32")
    with plain.open("r+b") as file:
        from gguf import GGUFReader

        for tensor in GGUFReader(plain).tensors:
            file.seek(tensor.data_offset)
            file.write(weights[tensor.name].numpy().astype("<f4").tobytes())
    prompt = ForcedSequence(tuple(range(3, 40)))
    rows = [[row for *_, row in LLMEngine(path, num_pages=8).score([prompt], "prefill")] for path in (quantised, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*rows, strict=True))


@pytest.mark.parametrize("kind", QUANTISED)
def test_unpermuting_raw_blocks_is_unpermuting_their_values(kind: str) -> None:
    data = QUANTISED[kind].draw(6 * 8, 256, torch.Generator().manual_seed(0), "normal")
    assert isinstance(data, torch.Tensor)
    weight = Weight(KINDS[kind.upper()], data.view(torch.bfloat16) if kind == "bf16" else data)
    dense = Weight("f32", dequantize(weight))
    assert torch.equal(dequantize(unpermute(weight, 6)), unpermute(dense, 6).data)


def test_unpermuting_undoes_the_converters_permutation() -> None:
    original = torch.arange(4 * 8 * 3, dtype=torch.float32).view(32, 3)
    # llama.cpp's converter: halves side by side become pairs side by side
    stored = original.view(4, 2, 4, 3).transpose(1, 2).reshape(32, 3)
    assert torch.equal(unpermute(Weight("f32", stored), 4).data, original)
    assert not torch.equal(stored, original)


def test_a_write_to_a_mapped_tensor_does_not_reach_the_file(tiny_model: Path) -> None:
    before = tiny_model.read_bytes()
    read_gguf(tiny_model).tensors["token_embd.weight"].data.zero_()
    assert tiny_model.read_bytes() == before


def test_metadata_reads_as_the_package_reads_it(tiny_model: Path) -> None:
    from gguf import GGUFReader

    assert read_metadata(tiny_model) == {name: f.contents() for name, f in GGUFReader(tiny_model).fields.items()}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match=r"no model file at .*absent\.gguf"):
        read_gguf(tmp_path / "absent.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 50], ids=["empty", "magic only", "text"])
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(BrokenInput, match="not a readable GGUF"):
        read_gguf(tmp_path / "bad.gguf")


@SETTINGS
@given(share=st.floats(0, 0.999))
def test_a_truncated_file_is_refused(tiny_model: Path, tmp_path: Path, share: float) -> None:
    content = tiny_model.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(BrokenInput):
        read_gguf(tmp_path / "cut.gguf")


@settings(SETTINGS, max_examples=60)
@given(place=st.integers(0, 12_000), value=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_harmless(tiny_model: Path, tmp_path: Path, place: int, value: int) -> None:
    content = bytearray(tiny_model.read_bytes())
    content[place] = value
    (tmp_path / "flipped.gguf").write_bytes(content)
    try:
        LLMEngine(tmp_path / "flipped.gguf", num_pages=2)
    except KernelwrightError as error:
        assert error.message


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"llama.rope.scaling.type": "linear"}, "RoPE scaling"),
        ({"llama.rope.scaling.factor": 2.0}, "RoPE scaling"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}, "RoPE scaling"),
        ({"llama.attention.sliding_window": 16}, "unknown hyper-parameters attention.sliding_window"),
        ({"llama.expert_count": 8}, "unknown hyper-parameters expert_count"),
        ({"llama.rope.dimension_count": 16}, "rope.dimension_count is 16"),
        ({"llama.attention.head_count_kv": 3}, "impossible attention shape"),
        ({"llama.block_count": None}, "block_count is None"),
        ({"llama.block_count": 5}, "lacks tensors: blk.2"),
        ({"llama.block_count": 1}, "has unknown tensors: blk.1"),
        ({"llama.block_count": 2**31 - 1}, "claims 2147483647 layers and holds"),
        ({"llama.feed_forward_length": 128}, "wrongly shaped tensors"),
        ({"tokenizer.ggml.pre": "falcon"}, "unknown pre-tokenizer 'falcon'.*gpt-2, smollm, llama-bpe"),
        ({"tokenizer.ggml.pre": None}, "unknown pre-tokenizer None"),
        ({"tokenizer.ggml.model": "bert"}, "unknown tokenizer model"),
        ({"tokenizer.ggml.merges": ["q9 zz"]}, "merges do not fit"),
    ],
)
def test_what_is_not_understood_is_refused(
    make_tiny_model: Callable[..., Path], tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    path = make_tiny_model(tmp_path / "odd.gguf", metadata=change)
    with pytest.raises(BrokenInput) as refusal:
        LLMEngine(path, num_pages=4)
    assert re.search(match, str(refusal.value), re.DOTALL), str(refusal.value)


def test_an_explicit_absence_of_scaling_is_accepted(make_tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "plain.gguf", metadata={"llama.rope.scaling.type": "none"})
    assert LLMEngine(path, num_pages=4).config.head_dim == 32


def test_an_unknown_architecture_is_refused_naming_the_known_one(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match=r"unknown architecture 'mamba'.*\n.*llama"):
        read_config(tmp_path / "x.gguf", {"general.architecture": "mamba"}, 10)


def test_an_unread_tensor_type_is_refused(tmp_path: Path) -> None:
    write_raw(tmp_path / "one.gguf", np.ones((2, 32), np.int8), GGMLQuantizationType.I8)
    with pytest.raises(BrokenInput, match="type I8, which this engine does not read"):
        read_gguf(tmp_path / "one.gguf")


def test_a_tied_head_is_the_embedding(tiny_model: Path) -> None:
    file = read_gguf(tiny_model)
    weights = DecoderWeights(open_checkpoint(tiny_model), 16)
    config = weights.config
    assert "output.weight" not in file.tensors
    assert weights.definitions(config.num_layers)["head"].name == "q8_0_linear_n300_k64"
    assert torch.equal(weights.slot(config.num_layers, "head")["w"], file.tensors["token_embd.weight"].data)
    ids = torch.tensor([5, 0, 299])
    assert torch.equal(weights.embed(ids), dequantize(file.tensors["token_embd.weight"])[ids])
