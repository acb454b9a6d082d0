"""Least work of the ops that servers bring with them."""

from __future__ import annotations

import json

import pytest

from kernelwright.profiles.cost import Cost
from kernelwright.profiles.costs import least_cost
from kernelwright.profiles.phases import parse_step

BF16, FP8, INT, LONG, BYTE = "c10::BFloat16", "c10::Float8_e4m3fn", "int", "long int", "unsigned char"


def inputs(*tensors: tuple[list[int], str]) -> str:
    return json.dumps([[shape for shape, _ in tensors], [kind for _, kind in tensors]])


A = ([4, 256], BF16)
NONE = ([], "")


@pytest.mark.parametrize(
    ("op", "given", "work"),
    [
        (  # 256 x 32 weights in four bits, eight to an int
            "_C::awq_gemm", inputs(A, ([256, 4], INT), ([2, 32], BF16), ([2, 4], INT), ([], "Scalar")),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 4096 + 128 + 256, "bf16"),
        ),
        (
            "_C::gptq_gemm", inputs(A, ([32, 32], INT), ([2, 4], INT), ([2, 32], BF16), ([256], INT)),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 4096 + 128 + 256, "bf16"),
        ),
        (
            "_C::marlin_gemm", inputs(A, NONE, ([16, 64], INT), NONE, ([2, 32], BF16), NONE, NONE),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 4096 + 128 + 256, "bf16"),
        ),
        (
            "aten::_weight_int4pack_mm", inputs(A, ([4, 8, 32, 1], INT), ([], "Scalar"), ([8, 32, 2], BF16)),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 4096 + 1024 + 256, "bf16"),
        ),
        (
            "aten::_weight_int8pack_mm", inputs(A, ([32, 256], "signed char"), ([32], BF16)),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 8192 + 64 + 256, "bf16"),
        ),
        (  # Q4_0: 18 bytes hold 32 weights
            "_C::ggml_mul_mat_a8", inputs(([32, 144], BYTE), A, ([], "Scalar"), ([], "Scalar")),
            Cost(2 * 4 * 32 * 256, 2 * 1024 + 32 * 144 + 256, "int8"),
        ),
        (
            "_C::cutlass_scaled_fp4_mm",
            inputs(([4, 32], BF16), ([4, 128], BYTE), ([32, 128], BYTE), ([128, 16], FP8), ([128, 16], FP8)),
            Cost(2 * 4 * 32 * 256, 256 + 512 + 4096 + 2 * 2048, "fp4"),
        ),
        (
            "sgl_kernel::fp8_scaled_mm", inputs(([4, 256], FP8), ([256, 32], FP8), ([4, 1], "float")),
            Cost(2 * 4 * 32 * 256, 1024 + 8192 + 128, "fp8"),
        ),
        (
            "aiter::gemm_a8w8", inputs(([4, 256], FP8), ([32, 256], FP8), ([4, 1], "float")),
            Cost(2 * 4 * 32 * 256, 1024 + 8192 + 16 + 128, "fp8"),
        ),
        (
            "_C::onednn_mm", inputs(([15, 960], BF16), ([15, 576], BF16), NONE, ([], LONG)),
            Cost(2 * 15 * 960 * 576, 2 * (15 * 960 + 15 * 576 + 960 * 576), "bf16"),
        ),
        (
            "_C_cache_ops::reshape_and_cache_flash",
            inputs(*[([8, 2, 64], BF16)] * 2, *[([100, 16, 2, 64], FP8)] * 2, ([8], LONG)),
            Cost(0, 2 * 2048 + 2 * 1024 + 64, "bf16"),
        ),
        (  # padded to 16 tokens, of which 8 have a slot
            "_C_cache_ops::reshape_and_cache",
            inputs(*[([16, 2, 64], BF16)] * 2, *[([100, 2, 64, 16], BF16)] * 2, ([8], LONG)),
            Cost(0, 4 * 2048 + 64, "bf16"),
        ),
        ("aiter::rmsnorm", inputs(A, A, ([256], BF16)), Cost(1024, 2 * 2048 + 512, "bf16")),
        (
            "_C::fused_add_rms_norm_static_fp8_quant", inputs(([4, 256], FP8), A, A, ([256], BF16), ([1], "float")),
            Cost(5 * 1024, 1024 + 3 * 2048 + 512, "bf16"),
        ),
        ("_C::static_scaled_fp8_quant", inputs(([4, 256], FP8), A, ([1], "float")), Cost(1024, 3076, "fp8")),
        (
            "_C::apply_repetition_penalties_", inputs(([2, 100], "float"), ([2, 100], "bool"), ([2, 100], "bool")),
            Cost(400, 2 * 800 + 2 * 200, "fp32"),
        ),
        ("aten::sort", inputs(([2, 100], "float")), Cost(200, 2 * 800 + 1600, "fp32")),
        ("aten::multinomial", inputs(([2, 100], "float")), Cost(200, 800, "fp32")),
        (
            "sgl_kernel::top_k_top_p_sampling_from_probs", inputs(([2, 100], "float"), ([2], INT), ([2], INT)),
            Cost(200, 800, "fp32"),
        ),
        (
            "aten::index_select", inputs(([1000, 8], BF16), ([], "Scalar"), ([3], LONG)),
            Cost(0, 24 + 2 * 3 * 8 * 2, "bf16"),
        ),
        ("aten::gather", inputs(([1000, 8], BF16), ([], "Scalar"), ([3, 8], LONG)), Cost(0, 192 + 2 * 24 * 2, "bf16")),
    ],
)  # fmt: skip
def test_least_cost(op: str, given: str, work: Cost) -> None:
    assert least_cost(op, given) == work


def test_experts_move_the_weights_that_even_choices_ask_for() -> None:
    """8 experts of 16 x 4 and 8 x 16 numbers, of which each of 2 tokens asks for 2."""
    tokens, ids = ([2, 4], BF16), ([2, 2], INT)
    work = least_cost(
        "vllm::fused_experts", inputs(tokens, ([8, 16, 4], FP8), ([8, 4, 8], FP8), ([2, 2], "float"), ids)
    )
    assert work is not None
    assert (work.flops, work.number) == (2 * 2 * 2 * 4 * (16 + 8), "fp8")
    assert work.bytes == pytest.approx(2 * 16 + (1 - (1 - 2 / 8) ** 2) * (8 * 64 + 8 * 32))


def test_packed_experts_compute_in_the_type_of_the_tokens() -> None:
    """Two numbers of four bits a byte: hidden size 8, inner size 16."""
    given = inputs(([2, 8], BF16), ([4, 32, 4], BYTE), ([4, 8, 8], BYTE), ([2, 1], "float"), ([2, 1], INT))
    work = least_cost("sglang::outplace_fused_experts", given)
    assert work is not None and (work.flops, work.number) == (2 * 2 * 8 * (32 + 16), "bf16")


def test_a_cpu_cache_has_its_heads_before_its_tokens() -> None:
    step = parse_step("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk100sqsq2sqsk100)")
    given = inputs(([2, 9, 64], BF16), *[([364, 3, 128, 64], BF16)] * 2, ([2, 9, 64], BF16))
    work = least_cost("_C::cpu_attention_with_kv_cache", given, step)
    assert work == Cost(4 * 9 * 64 * 100, 2 * 2 * (2 * 9 * 64) + 100 * 2 * 3 * 64 * 2, "bf16")


@pytest.mark.parametrize(
    "op", ["flash_attn::fwd", "aten::_flash_attention_forward", "aten::_efficient_attention_forward"]
)
def test_where_heads_come_last_they_are_no_tokens(op: str) -> None:
    """[batch, tokens, heads, size]: 10 tokens see 55 pairs, 4 heads share 2 of keys."""
    given = inputs(([1, 10, 4, 8], BF16), ([1, 10, 2, 8], BF16), ([1, 10, 2, 8], BF16))
    assert least_cost(op, given) == Cost(4 * 4 * 8 * 55, 2 * (2 * 320 + 160 + 160), "bf16")
    assert least_cost("flash_attn::fwd_kvcache", given) is None


@pytest.mark.parametrize("version", [1, 2])
def test_paged_attention_writes_before_it_is_asked(version: int) -> None:
    step = parse_step("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk100sqsq2sqsk100)")
    out, query = ([2, 8, 64], BF16), ([2, 8, 64], BF16)
    sums = [([2, 8, 4], "float"), ([2, 8, 4], "float"), ([2, 8, 4, 64], BF16)] if version == 2 else []
    caches = [([90, 2, 8, 16, 8], BF16), ([90, 2, 64, 16], BF16)]
    work = least_cost(f"_C::paged_attention_v{version}", inputs(out, *sums, query, *caches), step)
    assert work == Cost(4 * 8 * 64 * 100, 2 * 2 * (2 * 8 * 64) + 100 * 2 * 2 * 64 * 2, "bf16")


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("_C::awq_gemm", inputs(A, ([256, 4], INT))),  # without scales nobody knows how wide the weight is
        ("_C::awq_gemm", inputs(A, ([256, 4], INT), ([2, 512], BF16))),  # a quarter of a bit each
        ("_C::ggml_mul_mat_a8", inputs(([32, 4], BYTE), A)),
        ("_C::cutlass_scaled_fp4_mm", inputs(([4, 33], BF16), ([4, 128], BYTE), ([32, 128], BYTE), A, A)),
        ("_C::onednn_mm", inputs(([15, 960], BF16), ([14, 576], BF16))),
        ("vllm::fused_experts", inputs(([2, 4], BF16), ([8, 16, 4], FP8), ([8, 5, 8], FP8), A, A)),
        ("vllm::fused_moe", inputs(([2, 4], BF16), ([2, 8], BF16))),  # vllm::moe_forward: no weights among its inputs
        ("_C_cache_ops::reshape_and_cache", inputs(([0, 2, 64], BF16), ([0, 2, 64], BF16), A, A, ([0], LONG))),
        ("aten::gather", inputs(A)),
        ("aten::index_select", inputs(([], "float"), ([], "Scalar"), ([1], LONG))),
        ("aten::mul", inputs(([10**200, 10**200], BF16), ([1], BF16))),
        ("aten::mul", inputs(([-1, 4], BF16))),
    ],
)
def test_what_does_not_fit_has_no_model(op: str, given: str) -> None:
    assert least_cost(op, given) is None
