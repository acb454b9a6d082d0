"""The gate's rules beside those of the distribution: speed, collapse, liveness, isolation."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.engine.gate_generate import GenerationCheck
from kernelwright.engine.gate_limits import State
from kernelwright.engine.gate_liveness import LiveKernel
from kernelwright.engine.gate_speed import NOT_SLOWER, EngineComparison
from kernelwright.sandbox.isolation import Level
from kernelwright.sandbox.stats import LEAST_GAIN

CACHED_DRIFT = 1e-3


def worst(states: Sequence[State]) -> State:
    """Return the hardest of the states; pass when there is none."""
    return "refuse" if "refuse" in states else "review" if "review" in states else "pass"


def judge_speed(decode: EngineComparison, prefill: EngineComparison) -> list[tuple[State, str]]:
    """Return (state, reason) of each speed rule that is broken.

    The one that is to gain must beat 1 + max(1 %, this host's floor); the other must not be slower: its interval must
    not lie below 0.97, and an interval that reaches below what the incumbent against itself shows in this very run
    (1 - floor) is a case for review.
    """
    found: list[tuple[State, str]] = []
    gains = [c for c in (decode, prefill) if c.low > 1 + max(LEAST_GAIN, c.floor)]
    if not gains:
        found.append(("refuse", f"not faster: decode {_ratio(decode)}, prefill {_ratio(prefill)}"))
    for comparison in (decode, prefill):
        if comparison.high < NOT_SLOWER:
            found.append(("refuse", f"{comparison.kind} is slower: {_ratio(comparison)}"))
        elif comparison.low < min(NOT_SLOWER, 1 - comparison.floor):
            found.append(("review", f"{comparison.kind} may be slower: {_ratio(comparison)}"))
    return found


def judge_rest(kernels: list[LiveKernel], generation: GenerationCheck, isolation: Level) -> list[tuple[State, str]]:
    """Return (state, reason) for generations that collapsed, answers that the prefix cache changes, a pack that did
    nothing, and a cage that is too weak.
    """
    found: list[tuple[State, str]] = [("refuse", f"collapse: {alarm}") for alarm in generation.alarms]
    calm, drift = generation.cached_drift or (0.0, 0.0)
    if drift > max(CACHED_DRIFT, 4 * calm):
        found.append(("review", f"a prompt found in the prefix cache changes log-probabilities by {drift:.1e}"))
    if not any(kernel.hits for kernel in kernels):
        found.append(("refuse", "no kernel of the pack is live: not one of them was called"))
    if isolation not in ("L3", "L4"):
        found.append(("review", f"isolation {isolation}: a patch needs L3"))
    return found


def _ratio(comparison: EngineComparison) -> str:
    return f"{comparison.ratio:.3f} [{comparison.low:.3f}, {comparison.high:.3f}]"
