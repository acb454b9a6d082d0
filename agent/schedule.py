"""Schedule: which targets are worked on, in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.families.table import family_of
from kernelwright.profiles.target import Target


def plan_targets(
    targets: Sequence[Target],
    only: Sequence[str],
    definitions: Mapping[str, Definition],
    contracts: Mapping[str, SlotContract],
) -> list[Target]:
    """Return one target per definition, best first: decode at one token, reachable, with somebody who can write it.

    Ops come before the regions made of them: a region must beat the ops apart, so they have to be there first.
    `only` (if not empty) restricts the definitions and overrides an exclusion.
    """
    chosen: dict[str, Target] = {}
    for target in targets:
        if target.phase != "decode" or target.tokens != 1 or target.definition in chosen:
            continue
        wanted = target.definition in only if only else target.excluded is None
        if wanted and target.reachable and family_of(definitions[target.definition]):
            chosen[target.definition] = target
    return sorted(chosen.values(), key=lambda t: bool(contracts[t.definition].regions))
