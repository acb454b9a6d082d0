"""Regions: fused slots that the incumbent never calls, in no trace. They have the share of what they hide."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.kernels.definition import SlotContract
from kernelwright.profiles.target import Target


def add_regions(
    targets: Iterable[Target], contracts: Iterable[SlotContract], uses: dict[str, int]
) -> tuple[Target, ...]:
    """Return the ranked targets with one more per region, decode only, ranked by the same rule.

    `uses` counts the slots of one forward pass by definition: an op used outside the region too (a norm, a linear
    layer of the same shape) gives the region only its part. Roofline time and ceiling are summed from the parts.
    """
    ranked = list(targets)
    lone = {t.definition: t for t in ranked if t.phase == "decode" and t.tokens == 1}
    for contract in contracts:
        parts = [(lone[name], uses[contract.definition] / uses[name]) for name in contract.regions if name in lone]
        if contract.regions and len(parts) == len(contract.regions):
            ranked.append(_region(contract.definition, parts))
    return tuple(sorted(ranked, key=lambda t: (t.excluded is not None, 1.0 / t.ceiling)))


def _region(name: str, parts: list[tuple[Target, float]]) -> Target:
    share = sum(t.share * fraction for t, fraction in parts)
    now = sum(t.ns_per_call for t, _ in parts)
    # A part without a model counts with its whole time: nothing is promised for it.
    least = sum(t.roofline_ns if t.roofline_ns is not None else t.ns_per_call for t, _ in parts)
    saved = share * (1.0 - least / now)
    first = parts[0][0]
    return Target(
        profile=first.profile,
        definition=name,
        phase="decode",
        tokens=1,
        share=share,
        ns_per_call=now,
        headroom=now / least,
        roofline_ns=least,
        bound="memory",
        ceiling=1.0 / max(1.0 - saved, 1e-9),
        reachable=True,
    )
