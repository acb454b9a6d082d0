"""In-process timing of kernel families against the incumbent: a developer's tool, not a verdict and not a headline.

    python benchmarks/families.py                             # every family, its default and a few random points
    python benchmarks/families.py q4_1_linear --points 12 --tokens 4
    python benchmarks/families.py q4_1_mlp_block --only tiles=4 --rounds 30

Everything runs in this process, which has loaded the candidates, so nothing printed here may go into a report.
Candidate and incumbent take turns, each walking a ring of weight sets as a decode step walks the layers; the ratio is
the median of the paired ratios. GB/s are the least bytes of a call over the candidate's median time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernels.build import build_cached
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families.rendering import Point
from kernelwright.kernels.families.table import FAMILIES, family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.load import BoundSlot, load_implementation
from kernelwright.kernels.registry import define, op_of

SLOTS: dict[str, list[dict[str, int]]] = {
    "add_rmsnorm": [{"h": 576}],
    "q4_1_linear": [{"n": 960, "k": 576}, {"n": 576, "k": 576}, {"n": 576, "k": 1536}],
    "q8_0_linear": [{"n": 49152, "k": 576}],
    "q4_1_gate_up_silu": [{"f": 1536, "h": 576}],
    "rope_cache": [{"q": 9, "kv": 3, "d": 64}],
    "decode_attention": [{"q": 9, "kv": 3, "d": 64}],
    "q4_1_mlp_block": [{"f": 1536, "h": 576}],
    "q4_1_attention_block": [{"h": 576, "q": 9, "kv": 3, "d": 64}],
}
"""The shapes of SmolLM2-135M."""


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), help="op types; all of them when none is named")
    parser.add_argument("--tokens", type=int, default=1, help="tokens or sequences per call")
    parser.add_argument("--blocks", type=int, default=13, help="cache blocks of 16 tokens per sequence")
    parser.add_argument("--points", type=int, default=5, help="points per family, the default among them")
    parser.add_argument("--only", action="append", default=[], help="parameter=value that points must have")
    parser.add_argument("--ring", type=int, default=30, help="weight sets walked, as layers are")
    parser.add_argument("--rounds", type=int, default=15, help="pairs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", default=detect_isa())
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "kernelwright-benchmark")
    return parser.parse_args()


def make_ring(definition: Definition, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the weight sets and activations of one walk; the head is one layer of its own size."""
    tokens, blocks = arguments.tokens, arguments.blocks
    count = 1 if definition.op_type == "q8_0_linear" else arguments.ring
    axes = {"T": tokens, "B": tokens, "MB": blocks, "PAGES": tokens * blocks, "P": 16 * blocks}
    generator = torch.Generator().manual_seed(0)
    return [op_of(definition).generate(definition, axes, generator, "normal") for _ in range(count)]


def walk(slots: list[BoundSlot], calls: list[list[Any]]) -> float:
    """Return microseconds per call of one walk over the ring."""
    start = time.perf_counter()
    for slot, inputs in zip(slots, calls, strict=True):
        slot.call(*inputs)
    return (time.perf_counter() - start) / len(calls) * 1e6


def choose_points(definition: Definition, arguments: argparse.Namespace) -> list[Point]:
    family = family_of(definition)
    assert family is not None
    wanted = dict(only.split("=", 1) for only in arguments.only)
    points = family.points(definition, arguments.isa)
    points = [point for point in points if all(str(point.get(key)) == value for key, value in wanted.items())]
    others = random.Random(0).sample(points[1:], min(arguments.points - 1, len(points) - 1)) if points else []
    return points[:1] + others


def time_family(definition: Definition, arguments: argparse.Namespace) -> None:
    op, family = op_of(definition), family_of(definition)
    assert family is not None
    contract, ring = op.contract(definition), make_ring(definition, arguments)
    incumbent = load_implementation(op.incumbent(definition), None, definition, contract)
    theirs = [incumbent.bind(inputs) for inputs in ring]
    tokens = arguments.tokens
    cost = op.cost(definition, {"T": tokens, "B": tokens, "MB": arguments.blocks})
    for point in choose_points(definition, arguments):
        candidate = family.render(definition, point, arguments.isa)
        built = build_cached(candidate, arguments.cache)
        if built.binary is None:
            print(f"{definition.name}: {built.status}\n{built.log}", file=sys.stderr)
            continue
        mine = [load_implementation(candidate, built.binary, definition, contract).bind(inputs) for inputs in ring]
        calls = [[inputs[name] for name in mine[0].names] for inputs in ring]
        walk(theirs, calls), walk(mine, calls)
        pairs = [(walk(theirs, calls), walk(mine, calls)) for _ in range(arguments.rounds)]
        ratio = statistics.median(their / my for their, my in pairs)
        my = statistics.median(my for _, my in pairs)
        their = statistics.median(their for their, _ in pairs)
        shown = " ".join(f"{key}={value}" for key, value in point.items())
        print(
            f"{definition.name:34} {their:9.1f} us → {my:8.1f} us  {ratio:6.2f}x  {cost.bytes / my / 1e3:5.1f} GB/s"
            f"  built {built.seconds:4.1f} s  {shown}",
            flush=True,
        )


def main() -> None:
    arguments = read_arguments()
    torch.set_grad_enabled(False)
    torch.set_num_threads(arguments.threads)
    print(f"in-process, {arguments.threads} threads, {arguments.isa}, {arguments.tokens} tokens", file=sys.stderr)
    for op_type in arguments.families:
        for consts in SLOTS[op_type]:
            time_family(define(op_type, **consts), arguments)


if __name__ == "__main__":
    main()
