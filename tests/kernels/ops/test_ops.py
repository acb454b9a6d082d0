"""Every op: its incumbent agrees with its fp64 reference, its names and costs are what the engine counts on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.ops.draws import DISTRIBUTIONS, draw
from kernelwright.kernels.ops.paging import draw_block_table, draw_contexts
from kernelwright.kernels.registry import OPS, define, op_named, op_of
from kernelwright.profiles.digest import digest_of

sys.path.append(str(Path(__file__).parents[1]))
from slots import SMALL, draw_inputs, load_incumbent, max_error, reference_outputs, slot_outputs, small

NAMES = {
    "add_rmsnorm_h576": ("add_rmsnorm", {"h": 576}),
    "q4_1_linear_n960_k576": ("q4_1_linear", {"n": 960, "k": 576}),
    "q8_0_linear_n49152_k576": ("q8_0_linear", {"n": 49152, "k": 576}),
    "q4_1_gate_up_silu_f1536_h576": ("q4_1_gate_up_silu", {"f": 1536, "h": 576}),
    "rope_cache_q9_kv3_d64_p16": ("rope_cache", {"q": 9, "kv": 3, "d": 64}),
    "decode_attention_q9_kv3_d64_p16": ("decode_attention", {"q": 9, "kv": 3, "d": 64}),
    "prefill_attention_q9_kv3_d64_p16": ("prefill_attention", {"q": 9, "kv": 3, "d": 64}),
    "q4_1_mlp_block_f1536_h576": ("q4_1_mlp_block", {"f": 1536, "h": 576}),
    "q4_1_attention_block_h576_q9_kv3_d64_p16": ("q4_1_attention_block", {"h": 576, "q": 9, "kv": 3, "d": 64}),
}


def test_every_op_is_in_the_table_of_small_shapes() -> None:
    assert set(SMALL) == set(OPS)


@pytest.mark.parametrize("name", NAMES)
def test_names_come_from_the_constants(name: str) -> None:
    op_type, consts = NAMES[name]
    first, second = define(op_type, **consts), define(op_type, **consts)
    assert first.name == name
    assert digest_of(first) == digest_of(second)


def test_an_unknown_op_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known: add_rmsnorm"):
        op_named("softmax")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("op_type", OPS)
def test_incumbent_agrees_with_the_fp64_reference(op_type: str, distribution: str) -> None:
    definition = small(op_type)
    incumbent = load_incumbent(definition)
    for tokens in (1, 2, 7):
        inputs = draw_inputs(definition, tokens, distribution, seed=tokens)
        want, got = reference_outputs(definition, inputs), slot_outputs(incumbent, inputs)
        for name, tensor in want.items():
            assert tensor.dtype == torch.float64, f"{name}: the reference left the dtype of its inputs"
            assert got[name].shape == tensor.shape
            assert max_error(got[name], tensor) <= 2e-5 * max(float(tensor.abs().max()), 1e-30), name


@pytest.mark.parametrize("op_type", ["q4_1_linear", "q8_0_linear", "f32_linear"])
def test_exact_cases_are_exact_in_float32(op_type: str) -> None:
    definition = define(op_type, n=64, k=1536)
    inputs = draw_inputs(definition, 3, "exact")
    assert torch.equal(
        slot_outputs(load_incumbent(definition), inputs)["y"].double(), reference_outputs(definition, inputs)["y"]
    )


@pytest.mark.parametrize("op_type", OPS)
def test_inputs_have_the_shapes_and_dtypes_of_the_definition(op_type: str) -> None:
    definition = small(op_type)
    inputs = draw_inputs(definition, 4, "normal")
    assert list(inputs) == list(definition.inputs)
    for name, spec in definition.inputs.items():
        if spec.shape is None:
            assert isinstance(inputs[name], float)
        else:
            assert str(inputs[name].dtype) == f"torch.{spec.dtype}", name
            assert inputs[name].dim() == len(spec.shape), name


@pytest.mark.parametrize("op_type", OPS)
def test_cost_grows_with_tokens_and_is_not_less_than_the_weights(op_type: str) -> None:
    definition = small(op_type)
    op = op_of(definition)
    one, many = (op.cost(definition, {"T": t, "B": t, "MB": 5}) for t in (1, 8))
    assert 0 < one.flops < many.flops
    assert 0 < one.bytes < many.bytes
    inputs = draw_inputs(definition, 1, "normal")
    contract = op.contract(definition)
    held = sum(inputs[w].numel() * inputs[w].element_size() for w in contract.weights if w not in ("cos", "sin"))
    assert one.bytes >= held


def test_the_head_streams_its_blocks() -> None:
    definition = define("q8_0_linear", n=49152, k=576)
    assert op_of(definition).cost(definition, {"T": 1}).bytes == 49152 * 18 * 34 + 4 * (49152 + 576)


def test_contexts_mix_ends_of_pages_and_tables_share_no_page() -> None:
    generator = torch.Generator().manual_seed(0)
    contexts = draw_contexts(400, 4, generator)
    assert {1, 15, 16, 17, 31, 32, 33, 64} <= set(contexts.tolist())
    assert int(contexts[0]) > 48
    table = draw_block_table(contexts[:20], 4, 80, generator)
    used = [int(p) for row, length in zip(table, contexts[:20], strict=True) for p in row[: -(-int(length) // 16)]]
    assert len(used) == len(set(used))


def test_too_few_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="B\\*MB pages"):
        draw_block_table(torch.tensor([64, 64]), 4, 7, torch.Generator())


def test_an_unknown_distribution_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known: normal"):
        draw((2, 2), torch.Generator(), "cauchy")


def test_prefill_sees_earlier_tokens_and_never_later_ones() -> None:
    definition = small("prefill_attention")
    inputs = draw_inputs(definition, 12, "normal", seed=5)
    incumbent = load_incumbent(definition)
    before = slot_outputs(incumbent, inputs)["o"]
    length, page = int(inputs["context_lens"][0]), 16
    last = int(inputs["block_table"][0, (length - 1) // page]), (length - 1) % page
    inputs["v_cache"][last] += 100.0
    after = slot_outputs(incumbent, inputs)["o"]
    end = int(inputs["query_start"][1])
    assert torch.equal(before[: end - 1], after[: end - 1])
    assert not torch.equal(before[end - 1], after[end - 1])
