"""`norm_rope_cache`: `rope_cache` with an RMS norm of each query and key head before the rotation.

qkv [T, (HQ+2*HKV)*D] float32 (q heads, k heads, v heads), q_weight, k_weight [D] (one gain for all heads of a kind),
eps double, cos, sin [P, D/2], positions, slot_mapping [T] int64, k_cache, v_cache [PAGES, 16, HKV, D] → q [T, HQ, D];
caches in place. v is neither normed nor rotated. Source: the attention of Qwen3 and Gemma 3; Henry et al. 2020;
rotation as in rope_cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops import rope_cache
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw_norm_weight
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(qkv, q_weight, k_weight, eps, cos, sin, positions, slot_mapping, k_cache, v_cache):
    pages, page, kv_heads, dim = k_cache.shape
    heads = qkv.view(qkv.shape[0], -1, dim)
    q_heads = heads.shape[1] - 2 * kv_heads
    both = heads[:, : q_heads + kv_heads]
    gains = torch.cat((q_weight.expand(q_heads, dim), k_weight.expand(kv_heads, dim)))
    both = both * torch.rsqrt(both.square().mean(dim=-1, keepdim=True) + eps) * gains
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    x1, x2 = both.chunk(2, dim=-1)
    rotated = torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)
    k_out, v_out = k_cache.clone(), v_cache.clone()
    k_out.view(pages * page, kv_heads, dim)[slot_mapping] = rotated[:, q_heads:]
    v_out.view(pages * page, kv_heads, dim)[slot_mapping] = heads[:, q_heads + kv_heads :]
    return rotated[:, :q_heads].contiguous(), k_out, v_out
"""
INCUMBENT = """
def run(qkv, q_weight, k_weight, eps, cos, sin, positions, slot_mapping, k_cache, v_cache):
    pages, page, kv_heads, dim = k_cache.shape
    heads = qkv.view(qkv.shape[0], -1, dim)
    rotary = heads.shape[1] - kv_heads
    q_heads = rotary - kv_heads
    q = F.rms_norm(heads[:, :q_heads], (dim,), q_weight, eps)
    k = F.rms_norm(heads[:, q_heads:rotary], (dim,), k_weight, eps)
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    x1, x2 = torch.cat((q, k), dim=1).chunk(2, dim=-1)
    rotated = torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)
    k_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, rotated[:, q_heads:])
    v_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, heads[:, rotary:])
    return (rotated[:, :q_heads].contiguous(),)
"""


def definition(*, q: int, kv: int, d: int, p: int = 16) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d` and pages of `p` tokens."""
    const = {"HQ": q, "HKV": kv, "D": d, "D2": d // 2, "PAGE": p, "QKV": (q + 2 * kv) * d}
    return Definition(
        name=name_of("norm_rope_cache", q=q, kv=kv, d=d, p=p),
        op_type="norm_rope_cache",
        axes=axes_of(const, ("T", "P", "PAGES")),
        inputs=tensors(
            "qkv[T,QKV] q_weight[D] k_weight[D] eps cos[P,D2] sin[P,D2] positions[T]:int64 slot_mapping[T]:int64"
            " k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
        ),
        outputs=tensors("q[T,HQ,D] k_cache_out[PAGES,PAGE,HKV,D] v_cache_out[PAGES,PAGE,HKV,D]"),
        reference=source_with(body=REFERENCE),
        tags=("norm", "rope", "cache"),
        description="RMS norm and rotary embedding of q and k by head, and the write of k and v to the paged cache",
        constraints=("slot_mapping holds distinct slots", "0 <= positions < P"),
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: gains and tables are weights, caches are written in place."""
    return SlotContract(
        definition=definition.name,
        weights=("q_weight", "k_weight", "cos", "sin"),
        aliases={"k_cache_out": "k_cache", "v_cache_out": "v_cache"},
        token_axis="T",
    )


def incumbent(definition: Definition) -> Candidate:
    """Return two fused norms, one rotation of q and k together and two index_copy_."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`: those of rope_cache, the gains, and four operations a normed value."""
    bare, dim = rope_cache.cost(definition, axes), const_of(definition, "D")
    normed = axes["T"] * (const_of(definition, "HQ") + const_of(definition, "HKV")) * dim
    return Cost(bytes=bare.bytes + 8 * dim, flops=bare.flops + 4 * normed)


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return rope_cache's inputs, two gains and eps."""
    dim = const_of(definition, "D")
    inputs = rope_cache.generate(definition, axes, generator, distribution, weights)
    inputs["q_weight"], inputs["k_weight"] = draw_norm_weight(dim, generator), draw_norm_weight(dim, generator)
    inputs["eps"] = 1e-5
    return {name: inputs[name] for name in definition.inputs}
