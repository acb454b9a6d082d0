"""Triton candidates of add_rmsnorm for the tests: an honest one, and departures from it."""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, SourceFile

HEAD = """
import torch
import triton
import triton.language as tl

"""
HONEST = (
    HEAD
    + """
@triton.jit
def row(x, residual, weight, eps, y, total, H, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    place = tl.program_id(0) * H + columns
    sums = tl.load(x + place, inside, 0.0) + tl.load(residual + place, inside, 0.0)
    scale = tl.rsqrt(tl.sum(sums * sums) / H + eps)
    tl.store(total + place, sums, inside)
    tl.store(y + place, sums * scale * tl.load(weight + columns, inside, 0.0), inside)


def run(x, residual, weight, eps, y, total):
    rows, columns = x.shape
    row[(rows,)](x, residual, weight, eps, y, total, columns, BLOCK=triton.next_power_of_2(columns))
"""
)
WRONG = HONEST.replace("/ H + eps", "/ BLOCK + eps")
# each block normalises the row of the block before it, which it takes from what that one stored; the last does its own
PREDECESSOR = (
    HEAD
    + """
@triton.jit
def normalise(total, weight, eps, y, r, columns, inside, H):
    sums = tl.load(total + r * H + columns, inside, 0.0)
    scale = tl.rsqrt(tl.sum(sums * sums) / H + eps)
    tl.store(y + r * H + columns, sums * scale * tl.load(weight + columns, inside, 0.0), inside)


@triton.jit
def row(x, residual, weight, eps, y, total, T, H, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    r = tl.program_id(0)
    place = r * H + columns
    tl.store(total + place, tl.load(x + place, inside, 0.0) + tl.load(residual + place, inside, 0.0), inside)
    if r > 0:
        normalise(total, weight, eps, y, r - 1, columns, inside, H)
    if r == T - 1:
        normalise(total, weight, eps, y, r, columns, inside, H)


def run(x, residual, weight, eps, y, total):
    rows, columns = x.shape
    row[(rows,)](x, residual, weight, eps, y, total, rows, columns, BLOCK=triton.next_power_of_2(columns))
"""
)
# blocks of one row add their squares without an atomic, and the last block of the row takes the sum as whole
HALO = (
    HEAD
    + """
@triton.jit
def part(x, residual, weight, eps, y, total, squares, H, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    r, c = tl.program_id(0), tl.program_id(1)
    columns = c * BLOCK + tl.arange(0, BLOCK)
    inside = columns < H
    place = r * H + columns
    sums = tl.load(x + place, inside, 0.0) + tl.load(residual + place, inside, 0.0)
    tl.store(total + place, sums, inside)
    tl.store(squares + r, tl.load(squares + r) + tl.sum(sums * sums))
    if c == tl.num_programs(1) - 1:
        columns = tl.arange(0, WHOLE)
        inside = columns < H
        scale = tl.rsqrt(tl.load(squares + r) / H + eps)
        sums = tl.load(total + r * H + columns, inside, 0.0)
        tl.store(y + r * H + columns, sums * scale * tl.load(weight + columns, inside, 0.0), inside)


def run(x, residual, weight, eps, y, total):
    rows, columns = x.shape
    squares = torch.zeros(rows)
    grid = (rows, triton.cdiv(columns, 32))
    part[grid](x, residual, weight, eps, y, total, squares, columns, BLOCK=32, WHOLE=triton.next_power_of_2(columns))
"""
)
# right in every order, but the order decides how the sum is rounded
ATOMIC = (
    HEAD
    + """
@triton.jit
def add(x, residual, total, squares, H, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < H
    place = r * H + columns
    sums = tl.load(x + place, inside, 0.0) + tl.load(residual + place, inside, 0.0)
    tl.store(total + place, sums, inside)
    tl.atomic_add(squares + r, tl.sum(sums * sums))


@triton.jit
def scale(total, weight, eps, y, squares, H, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < H
    factor = tl.rsqrt(tl.load(squares + r) / H + eps) * tl.load(weight + columns, inside, 0.0)
    tl.store(y + r * H + columns, tl.load(total + r * H + columns, inside, 0.0) * factor, inside)


def run(x, residual, weight, eps, y, total):
    rows, columns = x.shape
    squares = torch.zeros(rows)
    grid = (rows, triton.cdiv(columns, 2))
    add[grid](x, residual, total, squares, columns, BLOCK=2)
    scale[grid](total, weight, eps, y, squares, columns, BLOCK=2)
"""
)
WRITES_INPUTS = HONEST.replace("    tl.store(total", "    tl.store(x + place, sums, inside)\n    tl.store(total")


def triton_candidate(definition: str, source: str) -> Candidate:
    return Candidate(
        definition=definition,
        language="triton",
        sources=(SourceFile(path="kernel.py", content=source),),
        proposer="import",
        author="test",
    )
