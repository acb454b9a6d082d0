"""Schedule: which targets are worked on, in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.families.table import family_of
from kernelwright.profiles.target import Target


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
) -> Target | None:
    """Return the target with most left to gain; None when all are done.

    `uses` counts the slots of one forward pass by definition. Slots inside an accepted region have no more to gain:
    an op keeps the gain of its other uses, and comes last when it has none.
    """

    def rest(target: Target) -> tuple[float, float]:
        hidden = sum(uses[region] for region in accepted if target.definition in contracts[region].regions)
        saved = 1.0 - 1.0 / target.ceiling
        return saved * (uses[target.definition] - hidden) / uses[target.definition], saved

    return max((t for t in planned if t.definition not in done), key=rest, default=None)
