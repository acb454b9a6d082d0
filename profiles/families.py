"""Kernel symbols → operation families and the libraries they are of."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

Operation = Literal[
    "collective", "attention", "moe", "quantised gemm", "gemm", "convolution", "norm", "rope", "kv cache", "sampling",
    "quantise", "softmax", "embedding", "activation", "reduction", "sort", "copy", "elementwise", "memory", "other",
]  # fmt: skip
OPERATIONS: tuple[str, ...] = get_args(Operation)
Library = Literal[
    "cuBLAS", "hipBLASLt", "CUTLASS", "cuDNN", "MIOpen", "oneDNN", "NCCL", "RCCL", "FlashAttention", "FlashInfer",
    "TensorRT-LLM", "DeepGEMM", "AITER", "Composable Kernel", "vLLM", "SGLang", "PyTorch", "Inductor", "Triton", "CUB",
    "rocPRIM", "kernelwright", "unknown",
]  # fmt: skip
VENDOR: frozenset[str] = frozenset({"cuBLAS", "hipBLASLt", "cuDNN", "MIOpen", "oneDNN", "NCCL", "RCCL"})
"""Closed or shipped as a whole: what calls them can be rewritten, they cannot."""


class Family(NamedTuple):
    operation: Operation
    library: Library


_LIBRARIES: tuple[tuple[Library, str], ...] = (
    ("NCCL", r"\bnccl|multimem_all_reduce|symm_mem"),
    ("RCCL", r"\brccl"),
    ("DeepGEMM", r"deep_gemm"),
    ("TensorRT-LLM", r"tensorrt_llm|trtllm|^bmm_.*_sm\d+|^fmhaSm\d+"),
    ("FlashInfer", r"flashinfer"),
    (
        "FlashAttention",
        r"flash_fwd|flash_bwd|FlashAttn|\bflash::|device_kernel<.*flash|fmha_(?:fwd|bwd|cutlass)|aotriton",
    ),
    ("AITER", r"\baiter|\bwv_?splitk"),
    ("Composable Kernel", r"\bck::|\bck_tile\b|kentry<|kernel_gemm_xdl|gridwise_gemm"),
    ("hipBLASLt", r"^Cijk_|^Custom_Cijk|rocblas|gemvn_|gemvt_"),
    ("cuDNN", r"cudnn|xmma_fprop|xmma_dgrad|xmma_wgrad|implicit_convolve|implicit_gemm_conv|winograd|_convolve_"),
    ("MIOpen", r"miopen|igemm_(?:fwd|bwd|wrw)|naive_conv"),
    (
        "cuBLAS",
        r"cublas|^nvjet|^(?:volta|turing|ampere|hopper|sm\d+_xmma|sm\d+)_\w*gemm|s\d+gemm|gemmSN|gemmk1|gemv2[TN]"
        r"|^gemv|splitKreduce|cutlass_\d+_(?:tensorop|simt|wmma)_",
    ),
    ("oneDNN", r"mkldnn|onednn|dnnl"),
    ("SGLang", r"\bsgl|sglang"),
    ("vLLM", r"\bvllm::|^_(?:moe_)?C(?:_\w+)?::"),
    ("CUTLASS", r"cutlass|\bcute::"),
    ("CUB", r"\bcub::|thrust::"),
    ("rocPRIM", r"rocprim|hipcub"),
    ("PyTorch", r"^aten::|\bat::|\bc10::|caffe2::|_internal_convert|fbgemm"),
    ("Inductor", r"^## Call CompiledFxGraph|^triton_(?:poi|red|per|tem|for|mm|spl)_|^cpp_fused_|^triton_fused"),
    ("kernelwright", r"^kernelwright"),
)  # fmt: skip
_OPERATIONS: tuple[tuple[Operation, str], ...] = (
    (
        "collective",
        r"\bnccl|\brccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_ring|sendrecv|cross_device_reduce"
        r"|custom_all_?reduce|oneshot_|twoshot_|multimem",
    ),
    (
        "kv cache",
        r"reshape_and_cache|concat_and_cache|(?:store|write|set|update)_?(?:kv_?)?cache|append_paged|copy_blocks|cache_update"
        r"|swap_blocks",
    ),
    ("rope", r"rotary|\brope|_rope|mrope"),
    (
        "attention",
        r"fmha|flash|attention|\battn|_attn|paged_att|mha_|_mla|mla_|decode_kernel.*kv|batchprefill|batchdecode"
        r"|singleprefill|singledecode|merge_state|softmax_lse|reduce_segments|scaled_dot_product",
    ),
    (
        "moe",
        r"\bmoe|_moe|moe_|expert|grouped_gemm|group_gemm|topk_?gating|topk_forward|routing|_matmul_ogs|swiglu_ogs"
        r"|moesort|finalize_?scale|permute_?tokens|expand_?input_?rows|combined_routing|_p_matmul",
    ),
    (
        "convolution",
        r"conv(?:olve|olution|\d|_depthwise)|_conv_|fprop|dgrad|wgrad|winograd|igemm_(?:fwd|bwd|wrw)|im2col",
    ),
    (
        "quantised gemm",
        r"marlin|awq|gptq|\bq\d_|mmq|mmvq|w8a8|w4a|scaled_mm|mxfp|nvfp4|fp8_?gemm|int8_?gemm|gemm.*(?:fp8|e4m3|int8|i8i8)"
        r"|(?:fp8|e4m3|e2m1|int8).*gemm|blockscale|dequantize_?gemm|bitsandbytes|mul_mat_q|q_linear|qlinear",
    ),
    (
        "gemm",
        r"gemm|gemv|nvjet|^Cijk_|cublas|matmul|(?<![a-z])mm(?![a-z])|addmm|\bbmm|splitk|wvsplit|\bdot_kernel|linear_|_linear|xdlops",
    ),
    ("norm", r"rms_?norm|layer_?norm|batch_?norm|group_?norm|bn_(?:fw|bw)|\bnorm_kernel|_norm_|rmsnorm2d|l2norm"),
    (
        "sampling",
        r"arg_?max|argmin|top_?k|top_?p|multinomial|sampl|logits|penalt|min_p|exponential_kernel|distribution_|philox",
    ),
    (
        "quantise",
        r"quant|cvt_fp|to_fp8|convert_fp8|mxfp4|downcast|upcast_",
    ),
    ("softmax", r"softmax"),
    ("embedding", r"embedding|vocab"),
    ("activation", r"silu|gelu|relu|swiglu|sigmoid|act_and_mul|tanh_kernel|mish|_glu"),
    ("sort", r"sort|scan|radix|unique|nonzero|compact|select_if|histogram"),
    (
        "memory",
        r"^aten::(?:empty|new_empty|resize|zero|fill)|memset|memcpy|fill_?(?:kernel|functor)|fillbuffer|copybuffer",
    ),
    (
        "copy",
        r"^aten::(?:to|t|view|as_strided|select|narrow|chunk|split\w*|reshape|expand\w*|(?:un)?squeeze|flatten|unbind|movedim"
        r"|detach|alias|item|_local_scalar_dense)_?$|copy|transpose|cat_?array|concat|\bcat_|index_?(?:select|put|kernel|elementwise)|gather|scatter|slice|permute"
        r"|_to_copy|convert|nchw|nhwc|pad_kernel|triu_tril|roll_",
    ),
    (
        "reduction",
        r"^aten::(?:sum|mean|prod|max|min|amax|amin|any|all|var|std)$|reduce|reduction|\bsum_|_sum|\bmean|_red_|welford",
    ),
    (
        "elementwise",
        r"^aten::(?:add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|abs|cos|sin|where|clamp|lt|gt|le|ge|eq|ne)_?$"
        r"|elementwise|pointwise|_poi_|functor|unrolled|vectorized|\badd_|_add|\bmul_|_mul|where|clamp|arange|compare"
        r"|pow_|exp_|sqrt|range_kernel|bitwise|masked_fill|\bfused_",
    ),
)  # fmt: skip
_COMPILED_LIBRARIES = tuple((name, re.compile(pattern)) for name, pattern in _LIBRARIES)
_COMPILED_OPERATIONS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _OPERATIONS)
_LENGTH = re.compile(r"\d+(?=[A-Za-z_])")
_TRITON = re.compile(r"^_?[A-Za-z]\w*$")
_CAST = re.compile(r"^(?:void|float|int|bool|double)\s+|\(anonymous namespace\)::|\{lambda[^}]*\}|\(\w+\)(?=\d)")


@lru_cache(maxsize=65536)
def classify(kernel: str, op: str = "") -> Family:
    """Return the family of the kernel named `kernel`; `op`, the op that launched it, speaks where the name does not.

    A name is read as far as its first argument list: what follows says what a kernel is called with, not what it does.
    """
    name = _CAST.sub("", kernel)
    if name.startswith("_Z"):  # a mangled symbol: lengths stand before its words
        name = _LENGTH.sub(" ", name)
    library = next((found for found, pattern in _COMPILED_LIBRARIES if pattern.search(name)), None)
    if library is None:
        library = "Triton" if _TRITON.match(name) and name.count("_") >= 1 else "unknown"
    operation = _operation(_heading(name)) or _operation(name) or _operation(op.rpartition("::")[2])
    return Family(operation or "other", library)


def _heading(name: str) -> str:
    """Return the symbol without its template arguments and parameters: `at::native::reduce_kernel`."""
    depth = 0
    kept: list[str] = []
    for letter in name:
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth = max(depth - 1, 0)
        elif letter == "(" and not depth:
            break
        elif not depth:
            kept.append(letter)
    return "".join(kept).strip()


def _operation(text: str) -> Operation | None:
    if not text or text.endswith(
        ("elementwise_kernel", "elementwise_kernel_with_index", "unrolled_elementwise_kernel")
    ):
        return None
    return next((found for found, pattern in _COMPILED_OPERATIONS if pattern.search(text)), None)
