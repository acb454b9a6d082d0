"""Kernel symbols and the families and libraries they are of."""

from __future__ import annotations

import pytest

from kernelwright.profiles.families import classify


@pytest.mark.parametrize(
    ("kernel", "operation", "library"),
    [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "gemm", "cuBLAS"),
        ("ampere_sgemm_128x64_tn", "gemm", "cuBLAS"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3", "gemm", "cuBLAS"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(X::Params)",
            "gemm",
            "cuBLAS",
        ),
        (
            "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, cublasGemvParamsEx<int>>(T13)",
            "gemm",
            "cuBLAS",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_AS_SAV_MT64x16x64_MI16x16x16x1_SN", "gemm", "hipBLASLt"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", "norm", "PyTorch"),
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, float, int)", "norm", "vLLM"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "rope", "vLLM"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(int)", "kv cache", "vLLM"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &(vllm::silu_kernel)>(int)", "activation", "vLLM"),
        (
            "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>(flash::Flash_fwd_params)",
            "attention",
            "FlashAttention",
        ),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<x>(y)", "attention", "FlashInfer"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", "attention", "FlashAttention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective", "NCCL"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)", "collective", "vLLM"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(x)",
            "reduction",
            "PyTorch",
        ),
        ("triton_poi_fused_add_mul_3", "elementwise", "Inductor"),
        ("triton_red_fused_mean_pow_1", "reduction", "Inductor"),
        ("_fwd_kernel_attn_stage1", "attention", "Triton"),
        ("fused_moe_kernel", "moe", "Triton"),
        ("void marlin::Marlin<__nv_bfloat16, 4>(int)", "quantised gemm", "unknown"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
            "elementwise",
            "PyTorch",
        ),
        ("Memset (Device)", "memory", "unknown"),
        ("mystery", "other", "unknown"),
        ("_C::onednn_mm", "gemm", "oneDNN"),
        ("_C::rotary_embedding", "rope", "vLLM"),
        ("_C_cache_ops::reshape_and_cache_flash", "kv cache", "vLLM"),
        ("_moe_C::topk_softmax", "moe", "vLLM"),
        ("aten::mul_", "elementwise", "PyTorch"),
        ("aten::sum", "reduction", "PyTorch"),
        ("aten::split_with_sizes", "copy", "PyTorch"),
        ("aten::unsqueeze_", "copy", "PyTorch"),
        ("aten::softmax", "softmax", "PyTorch"),
        ("aten::empty_strided", "memory", "PyTorch"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEEvPT0_", "norm", "AITER"),
        (
            "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_4EEE",
            "attention",
            "Composable Kernel",
        ),
        ("igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16", "convolution", "MIOpen"),
    ],
)
def test_symbols(kernel: str, operation: str, library: str) -> None:
    assert classify(kernel) == (operation, library)


def test_the_op_speaks_where_the_name_does_not() -> None:
    assert classify("mystery", "aten::addmm").operation == "gemm"
    assert classify("mystery", "aten::nothing_known").operation == "other"
