"""Small fixed problems that the selftest plays its corpus on, and the planted kernel whose speed-up is known.

Every incumbent is the definition's own reference run as it is, eager and without packed weights: slow enough that an
honest kernel, or a cheat that gets through, is clearly faster. Weights come from a fixed seed.
"""

from __future__ import annotations

import time
import timeit
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.writing import python_incumbent
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of

if TYPE_CHECKING:
    import torch

SETS = 4
SEED = 20_260_000
# what the reference returns as new caches has to stand in the old ones
IN_PLACE = """
reference = run


def run(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache):
    q, k, v = reference(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache)
    k_cache.copy_(k)
    v_cache.copy_(v)
    return (q,)
"""
PLANTED_STEPS = 110_000
"""Steps of the planted kernel, each waiting for the one before it: 20 ms per call where python takes 180 ns for one."""
PLANTED_S = 0.020
PLANTED = """
reference = run


def run(q, k_cache, v_cache, block_table, context_lens):
    state = 1
    for _ in range({steps}):
        state = (state * 1103515245 + 12345) & 0x3FFFFFFF
    (o,) = reference(q, k_cache, v_cache, block_table, context_lens)
    return (o + (state >> 30),)
"""


@dataclass(frozen=True, slots=True)
class SelftestProblem:
    """A problem and its weight sets, ready for `Bench(problem, weights=weights, ...)`."""

    problem: Problem
    weights: tuple[dict[str, torch.Tensor], ...]


def problems() -> dict[str, SelftestProblem]:
    """Return the fixed problems by name."""
    return {
        "linear": pose(define("q4_1_linear", n=256, k=512), {"T": 4}, {"T": (1, 6)}),
        # activations large enough that the timer re-scales them rather than drawing them anew
        "wide": pose(define("q4_1_linear", n=256, k=512), {"T": 48}, {"T": (1, 64)}),
        "norm": pose(define("add_rmsnorm", h=1024), {"T": 64}, {"T": (1, 96)}),
        "cache": pose(define("rope_cache", q=8, kv=2, d=64), {"T": 4, "P": 256, "PAGES": 64}, {"T": (1, 16)}),
        "attention": pose(define("decode_attention", q=8, kv=2, d=64), {"B": 4, "MB": 8, "PAGES": 32}, {"B": (1, 4)}),
        "mlp": pose(define("q4_1_gate_up_silu", f=192, h=384), {"T": 4}, {"T": (1, 6)}),
    }


def pose(definition: Definition, timed: dict[str, int], ranges: dict[str, tuple[int, int]]) -> SelftestProblem:
    """Return a problem whose incumbent is the reference itself."""
    import torch

    op = op_of(definition)
    contract = op.contract(definition)
    problem = Problem(
        target=None,
        definition=definition,
        contract=contract,
        incumbent=_run_reference(definition, contract),
        workloads=(),
        ranges={axis: AxisRange(low=low, high=high) for axis, (low, high) in ranges.items()},
        timed_axes=timed,
        num_weight_sets=SETS,
    )
    generator = torch.Generator().manual_seed(SEED)
    drawn = [op.generate(definition, timed, generator, "normal") for _ in range(SETS)]
    return SelftestProblem(problem, tuple({n: tensors[n] for n in contract.weights} for tensors in drawn))  # type: ignore[misc]


def count_planted_steps() -> int:
    """Return how many steps take this machine's python 20 ms, as the fastest of some runs in this process tells."""
    part, fastest = PLANTED_STEPS // 10, float("inf")
    for _ in range(20):
        fastest = min(fastest, *timeit.repeat(lambda: _walk(part), number=1, repeat=3))
        time.sleep(0.05)  # a machine may be half as fast for part of a second
    return max(round(PLANTED_S / fastest * part / 1000), 1) * 1000


def _walk(steps: int) -> int:
    """What the planted kernel does, to learn how long it takes."""
    state = 1
    for _ in range(steps):
        state = (state * 1103515245 + 12345) & 0x3FFFFFFF
    return state


def planted(percent: float, whole: int = PLANTED_STEPS) -> tuple[Problem, Candidate]:
    """Return a problem, and a candidate that does `percent` per cent less of the same work (more where negative).

    The incumbent takes `whole` steps.

    All the time goes into a chain of steps whose end is masked to 0, so the results are equal whatever its length and
    the true ratio is 1 / (1 - percent / 100). There are no weights: open the bench with `weights=[{}]`, one call per
    batch. Raises ValueError at 100 per cent or more.
    """
    if percent >= 100:
        raise ValueError(f"nothing would be left of the work: {percent} %")
    definition = define("decode_attention", q=1, kv=1, d=32)
    contract = op_of(definition).contract(definition)
    plain = _run_reference(definition, contract)
    problem = Problem(
        target=None,
        definition=definition,
        contract=contract,
        incumbent=_extend(plain, PLANTED.format(steps=whole), "incumbent"),
        workloads=(),
        ranges={"B": AxisRange(low=1, high=1)},
        timed_axes={"B": 1, "MB": 1, "PAGES": 1},
        num_weight_sets=1,
    )
    steps = round(whole * (1 - percent / 100))
    return problem, _extend(plain, PLANTED.format(steps=steps), f"planted {percent:g} %")


def _run_reference(definition: Definition, contract: SlotContract) -> Candidate:
    candidate = python_incumbent(definition, definition.reference)
    return _extend(candidate, IN_PLACE, candidate.author) if contract.aliases else candidate


def _extend(candidate: Candidate, more: str, author: str) -> Candidate:
    source = candidate.sources[0]
    longer = source.model_copy(update={"content": source.content + more})
    return candidate.model_copy(update={"sources": (longer,), "author": author})
