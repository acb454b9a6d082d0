"""The kinds of weights that are packed in tiles of rows, and what their families share.

A tile is one row per lane of a vector, so that no sum runs across lanes; weights are decoded in registers. `decode`,
where a kind has a choice: Q4_0 makes q - 8 by two shifts or looks it up in a table of 16 lanes; Q4_K makes w = d q + m
(direct), or folds d and m into the sum of a part (only at one token, else direct).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.families.rendering import SCHEDULES, Point, Space
from kernelwright.kernels.ops.weights import BF16, Q4_0, Q4_K, Q6_K, Q8_0, WeightKind

RANGES = {"T": AxisRange(low=1, high=8)}


@dataclass(frozen=True, slots=True)
class TiledKind:
    weights: WeightKind
    parts: tuple[str, ...]
    """The files that tell what a packed block is."""
    part: int
    """Columns that share a scale."""
    block: int
    """Parts of a packed block."""
    block_bytes: int
    """Bytes of a packed block per row."""
    decodes: tuple[str, ...] = ()
    """Ways to decode, the plain one first; none: there is but one."""

    @property
    def name(self) -> str:
        return self.weights.name

    def space(self, tiles: tuple[int, ...]) -> Space:
        """Return the parameters and their values: tiles of rows at once, accumulators, bytes ahead, …"""
        decode: Space = {"decode": self.decodes} if self.decodes else {}
        return decode | {"tiles": tiles, "chains": (1, 2, 4), "prefetch": (0, 512, 2048), "schedule": SCHEDULES}

    def default_point(self, tiles: int) -> Point:
        """Return the plain starting point."""
        decode: Point = {"decode": self.decodes[0]} if self.decodes else {}
        return decode | {"tiles": tiles, "chains": 1, "prefetch": 0, "schedule": "static"}

    def allows(self, point: Point, columns: int, lanes: int) -> bool:
        """Return whether accumulators fit the registers, rows are whole parts, and a table is one vector."""
        if columns % self.part or int(point["tiles"]) * int(point["chains"]) > 8:
            return False
        return point.get("decode") != "table" or lanes == 16

    def constants(self, point: Point) -> dict[str, int]:
        """Return the constants that the C++ parts read, for one point."""
        decode = point.get("decode")
        return {
            "TILES": int(point["tiles"]),
            "CHAINS": int(point["chains"]),
            "PREFETCH": int(point["prefetch"]),
            "DECODE_FOLD": int(decode == "fold"),
            "DECODE_TABLE": int(decode == "table"),
            "MIN_GROUPS": 4,
        }

    def packed_bytes(self, tiles_needed: int, columns: int, lanes: int, tiles: int) -> int:
        """Return the bytes of `tiles_needed` tiles, rounded up to groups of `tiles`, over `columns`."""
        groups, blocks = -(-tiles_needed // tiles), -(-columns // (self.part * self.block))
        return groups * tiles * blocks * self.block_bytes * lanes


KINDS = {
    kind.name: kind
    for kind in (
        TiledKind(Q4_0, ("q4_nibbles.cpp", "q4_0_tiles.cpp"), 32, 2, 36, ("shift", "table")),
        TiledKind(Q8_0, ("q8_0_tiles.cpp",), 32, 1, 34),
        TiledKind(Q4_K, ("q4_nibbles.cpp", "q4_k_tiles.cpp"), 32, 8, 148, ("direct", "fold")),
        TiledKind(Q6_K, ("q6_k_tiles.cpp",), 16, 16, 212),
        TiledKind(BF16, ("bf16_tiles.cpp",), 32, 1, 64),
    )
}
"""Kind's name → how it is packed."""
