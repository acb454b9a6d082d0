"""Rank targets: which slots are worth work, by what they could save of the phases that matter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.profile import Phase, Profile, SlotTime
from kernelwright.profiles.roofline import time_at_roofline
from kernelwright.profiles.target import Target

WEIGHTS: Mapping[Phase, float] = {"decode": 0.75, "prefill": 0.25}
"""Decode dominates the time a user waits; prefill must not be forgotten."""
MIN_HEADROOM = 1.05
"""Below this a slot is called done: the rest is within the spread of the ceilings themselves."""
MIN_CEILING = 1.002
"""Below this no engine-level measurement on a shared machine could show the gain."""


def check_fresh(profile: Profile, configuration: str) -> None:
    """Raise WrongUse when `profile` was taken with another engine configuration than the digest `configuration`."""
    if profile.configuration != configuration:
        raise WrongUse(
            f"the profile is stale: it was taken with engine configuration {profile.configuration[:12]}, "
            f"the engine now runs {configuration[:12]}",
            "profile the engine again with its present configuration",
        )


def rank_targets(
    profile: Profile,
    reachable: Collection[str] | Callable[[str], bool],
    weights: Mapping[Phase, float] = WEIGHTS,
) -> tuple[Target, ...]:
    """Return every slot of `profile` as a Target, best first, the excluded ones last with their reason.

    The order is by weight of the phase × share × (1 - 1/headroom): the part of the weighted step time that the slot
    gives back at its roofline. It grows with the Amdahl ceiling 1 ÷ (1 - saved) of the phase; without a model of bytes
    and FLOPs the whole share counts as saved, so that an unknown slot is never hidden. `reachable` names the
    definitions for which a candidate can be put in place.
    """
    is_reachable = reachable if callable(reachable) else set(reachable).__contains__
    digest = digest_of(profile)
    targets = [_measure(slot, profile, digest, is_reachable(slot.definition), weights) for slot in profile.slots]

    def key(target: Target) -> tuple[bool, float, str, str, int]:
        worth = weights.get(target.phase, 0.0) * (1.0 - 1.0 / target.ceiling)
        return (target.excluded is not None, -worth, target.definition, target.phase, target.tokens)

    return tuple(sorted(targets, key=key))


def _measure(slot: SlotTime, profile: Profile, digest: str, reachable: bool, weights: Mapping[Phase, float]) -> Target:
    step_ns = max(profile.step_ns.get(slot.phase, 0), 1)
    share = slot.self_ns / step_ns
    per_call = slot.self_ns / max(slot.calls, 1)
    headroom, roofline_ns, bound = None, None, "unknown"
    if profile.ceilings is not None and slot.bytes_per_call is not None and slot.flops_per_call is not None:
        roofline_ns, bound = time_at_roofline(slot.bytes_per_call, slot.flops_per_call, profile.ceilings)
        headroom = per_call / roofline_ns
    saved = share if headroom is None else share * (1.0 - 1.0 / max(headroom, 1.0))
    # a slot that is the whole step still leaves 1 ns: the ceiling stays finite
    ceiling = 1.0 / max(1.0 - saved, 1.0 / step_ns)
    return Target(
        profile=digest,
        definition=slot.definition,
        phase=slot.phase,
        tokens=slot.tokens,
        share=share,
        ns_per_call=per_call,
        headroom=headroom,
        roofline_ns=roofline_ns,
        bound=bound,  # type: ignore[arg-type]
        ceiling=ceiling,
        reachable=reachable,
        excluded=_exclude(slot.phase, reachable, weights.get(slot.phase, 0.0), headroom, ceiling),
    )


def _exclude(phase: Phase, reachable: bool, weight: float, headroom: float | None, ceiling: float) -> str | None:
    """Return why a slot is not worked on, None if it is."""
    if not reachable:
        return "no slot through which a candidate could be put in place"
    if weight <= 0.0:
        return f"{phase} has no weight in this session"
    if headroom is not None and headroom < MIN_HEADROOM:
        return f"already as fast as can be: {headroom:.2f}x the least time of a call, under {MIN_HEADROOM:.2f}x"
    if ceiling < MIN_CEILING:
        return f"too small: at its roofline the phase would be {ceiling:.4f}x as fast, under {MIN_CEILING:.3f}x"
    return None
