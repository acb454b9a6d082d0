"""Schedule: which targets are worked on, in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.families.table import family_of
from kernelwright.profiles.target import Target

LEAST_SECONDS = 40.0
"""A problem gets at least this: one search and a confirm take about as long."""


def plan_targets(
    targets: Sequence[Target],
    only: Sequence[str],
    definitions: Mapping[str, Definition],
) -> list[Target]:
    """Return one target per definition, best first: decode at one token, reachable, with somebody who can write it.

    Best is what the step would gain at the target's roofline. `only` (if not empty) restricts the definitions and
    overrides an exclusion.
    """
    chosen: dict[str, Target] = {}
    for target in targets:
        if target.phase != "decode" or target.tokens != 1 or target.definition in chosen:
            continue
        wanted = target.definition in only if only else target.excluded is None
        if wanted and target.reachable and family_of(definitions[target.definition]):
            chosen[target.definition] = target
    return sorted(chosen.values(), key=lambda t: t.ceiling, reverse=True)


def next_target(
    planned: Sequence[Target],
    done: Collection[str],
    accepted: Collection[str],
    contracts: Mapping[str, SlotContract],
    uses: Mapping[str, int],
    left_s: float,
) -> tuple[Target, float] | None:
    """Return the target with most left to gain and the seconds it may take; None when none has anything to gain.

    `uses` counts the slots of one forward pass by definition. A slot inside a region that is accepted or still to be
    tried has nothing to gain of its own; it comes up again when the region fails. Of the `left_s` seconds every
    target that is still to come has LEAST_SECONDS; the rest is shared out in proportion to what could be gained.
    """
    regions = {t.definition for t in planned if t.definition not in done} | set(accepted)

    def gain(target: Target) -> float:
        hidden = sum(uses[region] for region in regions if target.definition in contracts[region].regions)
        return (1.0 - 1.0 / target.ceiling) * max(0, uses[target.definition] - hidden) / uses[target.definition]

    gains = [(gain(target), target) for target in planned if target.definition not in done]
    coming = [(value, target) for value, target in gains if value > 0]
    if not coming:
        return None
    best, target = max(coming, key=lambda pair: pair[0])
    spare = max(0.0, left_s - LEAST_SECONDS * len(coming))
    return target, min(left_s, LEAST_SECONDS + spare * best / sum(value for value, _ in coming))
