"""What GPUs can do at best: dense peaks and memory bandwidth as their vendors publish them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel

from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.profile import Ceilings


class Device(BaseModel, frozen=True, extra="forbid"):
    """Peaks of one device as drivers count them: half of a module that they show as two."""

    name: str
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """Dense operations per second by number format: `fp32` (vector units), `tf32`, `bf16` (and fp16), `fp8`, `int8`,
    `fp4`. A format that is not here runs at the rate of the next wider one."""
    link_bytes_per_s: float | None = None
    """One direction of all links to other devices together."""
    source: str
    """Where the numbers are from."""

    def peak(self, number: str) -> tuple[str, float]:
        """Return the format whose units work on `number` (`fp16` on those of `bf16`) and their rate."""
        asked = {"fp16": "bf16", "e5m2": "fp8", "e4m3": "fp8", "fp64": "fp32"}.get(number, number)
        order = ["fp4", "fp8" if asked != "int8" else "int8", "bf16", "tf32", "fp32"]
        start = order.index(asked) if asked in order else len(order) - 1
        for name in order[start:]:
            if name in self.flops_per_s and not (name == "tf32" and asked == "fp32"):
                return name, self.flops_per_s[name]
        return "fp32", self.flops_per_s["fp32"]


def _tera(**rates: float) -> dict[str, float]:
    return {name: rate * 1e12 for name, rate in rates.items()}


_NV, _AMD = "NVIDIA data sheet", "AMD data sheet"
DEVICES: tuple[tuple[str, Device], ...] = tuple(
    (pattern, Device(name=name, memory_bytes_per_s=gb * 1e9, flops_per_s=rates, link_bytes_per_s=link, source=source))
    for pattern, name, gb, rates, link, source in (
        (r"B200", "B200", 8000, _tera(fp32=75, tf32=1125, bf16=2250, fp8=4500, int8=4500, fp4=9000), 900e9, _NV),
        (
            r"GH200.*144|(?<!G)H200", "H200", 4800,
            _tera(fp32=67, tf32=494.5, bf16=989.5, fp8=1979, int8=1979), 450e9, _NV,
        ),
        (r"GH200", "GH200 (HBM3)", 4000, _tera(fp32=67, tf32=494.5, bf16=989.5, fp8=1979, int8=1979), 450e9, _NV),
        (r"H20\b", "H20", 4000, _tera(fp32=44, tf32=74, bf16=148, fp8=296, int8=296), 450e9, _NV),
        (r"H100.*NVL", "H100 NVL", 3938, _tera(fp32=60, tf32=417.5, bf16=835.5, fp8=1671, int8=1671), 300e9, _NV),
        (r"H100.*PCIe", "H100 PCIe", 2039, _tera(fp32=51.2, tf32=378, bf16=756, fp8=1513, int8=1513), 300e9, _NV),
        (r"\bH[18]00\b", "H100 SXM", 3352, _tera(fp32=67, tf32=494.5, bf16=989.5, fp8=1979, int8=1979), 450e9, _NV),
        (r"A100.*80", "A100 80GB", 2039, _tera(fp32=19.5, tf32=156, bf16=312, int8=624), 300e9, _NV),
        (r"\bA[18]00\b", "A100 40GB", 1555, _tera(fp32=19.5, tf32=156, bf16=312, int8=624), 300e9, _NV),
        (r"\bA10G\b", "A10G", 600, _tera(fp32=35, tf32=35, bf16=70, int8=140), None, _NV),
        (r"\bA10\b", "A10", 600, _tera(fp32=31.2, tf32=62.5, bf16=125, int8=250), None, _NV),
        (r"\bA40\b", "A40", 696, _tera(fp32=37.4, tf32=74.8, bf16=149.7, int8=299.3), None, _NV),
        (r"RTX A6000", "RTX A6000", 768, _tera(fp32=38.7, tf32=77.4, bf16=154.8, int8=309.7), None, _NV),
        (r"L40S", "L40S", 864, _tera(fp32=91.6, tf32=183, bf16=362, fp8=733, int8=733), None, _NV),
        (r"L40\b", "L40", 864, _tera(fp32=90.5, tf32=90.5, bf16=181, fp8=362, int8=362), None, _NV),
        (r"\bL4\b", "L4", 300, _tera(fp32=30.3, tf32=60, bf16=121, fp8=242.5, int8=242.5), None, _NV),
        (r"V100", "V100 SXM2", 900, _tera(fp32=15.7, bf16=125), 150e9, _NV),
        (r"Tesla T4|\bT4\b", "T4", 320, _tera(fp32=8.1, bf16=65, int8=130), None, _NV),
        (
            r"RTX PRO 6000", "RTX PRO 6000 Blackwell", 1792,
            _tera(fp32=125, tf32=252, bf16=503.8, fp8=1007.6, int8=1007.6, fp4=2015), None, _NV,
        ),
        (
            r"RTX 5090", "RTX 5090", 1792,
            _tera(fp32=104.8, tf32=104.8, bf16=209.5, fp8=419, int8=838, fp4=1676), None, _NV,
        ),
        (r"RTX 4090", "RTX 4090", 1008, _tera(fp32=82.6, tf32=82.6, bf16=165.2, fp8=330.3, int8=660.6), None, _NV),
        (r"RTX 3090", "RTX 3090", 936, _tera(fp32=35.6, tf32=35.6, bf16=71.2, int8=284.7), None, _NV),
        (r"MI355X|gfx950", "MI355X", 8000, _tera(fp32=157.3, bf16=2516, fp8=5033, int8=5033, fp4=10066), 537.6e9, _AMD),
        (r"MI350X", "MI350X", 8000, _tera(fp32=144.2, bf16=2307, fp8=4614, int8=4614, fp4=9228), 537.6e9, _AMD),
        (r"MI325X", "MI325X", 6000, _tera(fp32=163.4, tf32=653.7, bf16=1307.4, fp8=2614.9, int8=2614.9), 448e9, _AMD),
        (
            r"MI300X|gfx942", "MI300X", 5300,
            _tera(fp32=163.4, tf32=653.7, bf16=1307.4, fp8=2614.9, int8=2614.9), 448e9, _AMD,
        ),
        (r"MI300A", "MI300A", 5300, _tera(fp32=122.6, tf32=490.3, bf16=980.6, fp8=1961.2, int8=1961.2), 384e9, _AMD),
        (r"MI250X", "MI250X (one of two)", 1638, _tera(fp32=23.9, bf16=191.5, int8=191.5), 200e9, _AMD),
        (r"MI250\b", "MI250 (one of two)", 1638, _tera(fp32=22.6, bf16=181, int8=181), 150e9, _AMD),
        (r"MI210|gfx90a", "MI210", 1638, _tera(fp32=22.6, bf16=181, int8=181), 150e9, _AMD),
        (r"MI100|gfx908", "MI100", 1229, _tera(fp32=23.1, bf16=184.6, int8=184.6), 138e9, _AMD),
    )
)  # fmt: skip
"""Patterns of the names that drivers give, the more special ones first. Dense rates at boost clock, without sparsity:
the highest that could be, so that time at the roofline is the least that could be."""


def find_device(name: str) -> Device | None:
    """Return the device that a driver calls `name`; None if the table has none."""
    return next((device for pattern, device in DEVICES if re.search(pattern, name, re.IGNORECASE)), None)


def name_device(name: str) -> Device:
    """Return the device a user names. Raises WrongUse with the names there are."""
    found = find_device(name)
    if found is None:
        known = ", ".join(device.name for _, device in DEVICES)
        raise WrongUse(f"no device called {name!r} is in the table", f"name one of: {known}")
    return found


def device_of(ceilings: Ceilings, name: str) -> Device:
    """Return this machine's processor as measured, for the traces of an engine that ran on it."""
    rates = {"fp32": ceilings.fp32_flops_per_s, "bf16": ceilings.bf16_flops_per_s, "int8": ceilings.int8_ops_per_s}
    return Device(
        name=name, memory_bytes_per_s=ceilings.dram_bytes_per_s,
        flops_per_s={number: rate for number, rate in rates.items() if rate},
        source=f"measured here, {ceilings.threads} threads",
    )  # fmt: skip
