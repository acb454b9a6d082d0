"""`rope_cache`: rotate q and k by their positions, return q, write k and v into the paged cache in place.

qkv [T, (HQ+2*HKV)*D] float32 (q heads, k heads, v heads), cos, sin [P, D/2], positions, slot_mapping [T] int64,
k_cache, v_cache [PAGES, 16, HKV, D] → q [T, HQ, D]; caches in place. Half-split (NeoX) form: (x1, x2) →
(x1 cos - x2 sin, x2 cos + x1 sin). Source: Su et al. 2021; page layout: docs/architecture.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw, rope_tables
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache):
    pages, page, kv_heads, dim = k_cache.shape
    heads = qkv.view(qkv.shape[0], -1, dim)
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    x1, x2 = heads[:, : heads.shape[1] - kv_heads].chunk(2, dim=-1)
    rotated = torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)
    q_heads = heads.shape[1] - 2 * kv_heads
    k_out, v_out = k_cache.clone(), v_cache.clone()
    k_out.view(pages * page, kv_heads, dim)[slot_mapping] = rotated[:, q_heads:]
    v_out.view(pages * page, kv_heads, dim)[slot_mapping] = heads[:, q_heads + kv_heads :]
    return rotated[:, :q_heads].contiguous(), k_out, v_out
"""
INCUMBENT = """
def run(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache):
    pages, page, kv_heads, dim = k_cache.shape
    heads = qkv.view(qkv.shape[0], -1, dim)
    rotary = heads.shape[1] - kv_heads
    q_heads = rotary - kv_heads
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    x1, x2 = heads[:, :rotary].chunk(2, dim=-1)
    rotated = torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)
    k_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, rotated[:, q_heads:])
    v_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, heads[:, rotary:])
    return (rotated[:, :q_heads].contiguous(),)
"""


def definition(*, q: int, kv: int, d: int, p: int = 16) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d` and pages of `p` tokens."""
    const = {"HQ": q, "HKV": kv, "D": d, "D2": d // 2, "PAGE": p, "QKV": (q + 2 * kv) * d}
    return Definition(
        name=name_of("rope_cache", q=q, kv=kv, d=d, p=p),
        op_type="rope_cache",
        axes=axes_of(const, ("T", "P", "PAGES")),
        inputs=tensors(
            "qkv[T,QKV] cos[P,D2] sin[P,D2] positions[T]:int64 slot_mapping[T]:int64"
            " k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
        ),
        outputs=tensors("q[T,HQ,D] k_cache_out[PAGES,PAGE,HKV,D] v_cache_out[PAGES,PAGE,HKV,D]"),
        reference=source_with(body=REFERENCE),
        tags=("rope", "cache"),
        description="rotary embedding of q and k, and the write of k and v to the paged cache",
        constraints=("slot_mapping holds distinct slots", "0 <= positions < P"),
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: tables are weights, caches are written in place."""
    return SlotContract(
        definition=definition.name,
        weights=("cos", "sin"),
        aliases={"k_cache_out": "k_cache", "v_cache_out": "v_cache"},
        token_axis="T",
    )


def incumbent(definition: Definition) -> Candidate:
    """Return one rotation of q and k together and two index_copy_."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`: qkv read and written once, one row of the tables."""
    t, qkv = axes["T"], const_of(definition, "QKV")
    rotated = (const_of(definition, "HQ") + const_of(definition, "HKV")) * const_of(definition, "D")
    return Cost(bytes=4 * t * (2 * qkv + const_of(definition, "D")) + 16 * t, flops=3 * t * rotated)


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return random qkv, real rope tables, random positions, distinct slots and random caches."""
    import torch

    t, positions = axes["T"], axes["P"]
    cache = definition.shape_of("k_cache", axes)
    cos, sin = rope_tables(positions, const_of(definition, "D2"))
    return {
        "qkv": draw((t, const_of(definition, "QKV")), generator, distribution),
        "cos": cos,
        "sin": sin,
        "positions": torch.randint(0, positions, (t,), generator=generator),
        "slot_mapping": torch.randperm(cache[0] * cache[1], generator=generator)[:t],
        "k_cache": draw(cache, generator, distribution),
        "v_cache": draw(cache, generator, distribution),
    }
