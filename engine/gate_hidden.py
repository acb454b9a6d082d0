"""Hidden states behind every layer: where in the model does a patched engine part from the incumbent?

Relative error of a layer: ‖h_patched − h_incumbent‖ ÷ ‖h_incumbent‖ of the residual stream, root mean square over the
tokens. The null is the incumbent alone against the incumbent in a batch of eight, layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from kernelwright.engine.gate_limits import State
from kernelwright.engine.gate_texts import Library, probes

if TYPE_CHECKING:
    from kernelwright.engine.gate_score import Scorer

FORCED = 8
LEAST, NULL_FACTOR, STEP = 1e-5, 4.0, 10.0
"""An error below LEAST or NULL_FACTOR times the null's is none; one STEP times beyond that is refused."""

States = dict[tuple[int, int], "NDArray[np.float32]"]


class HiddenDrift(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Relative error of the residual stream behind each layer."""

    tokens: int
    decode: tuple[float, ...]
    """By layer, patched against incumbent, a batch of eight through decode."""
    prefill: tuple[float, ...]
    null: tuple[float, ...]
    """Incumbent alone against incumbent in a batch of eight."""


def measure_hidden(library: Library, incumbent: Scorer, patched: Scorer, num_layers: int, longest: int) -> HiddenDrift:
    """Score eight short windows on both and compare what is behind each layer."""
    windows = probes(library, FORCED, longest)
    together = [(window.prompt, window.forced) for window in windows]
    base, new = (_ask(engine, together, "decode") for engine in (incumbent, patched))
    alone: States = {}
    for i, pair in enumerate(together):
        alone |= {(i, position): state for (_, position), state in _ask(incumbent, [pair], "decode").items()}
    whole = [((*prompt, *forced), ()) for prompt, forced in together[:4]]
    base_prefill, new_prefill = (_ask(engine, whole, "prefill") for engine in (incumbent, patched))
    return HiddenDrift(
        tokens=len(base) + len(base_prefill),
        decode=layer_errors(base, new, num_layers),
        prefill=layer_errors(base_prefill, new_prefill, num_layers),
        null=layer_errors(base, alone, num_layers),
    )


def _ask(engine: Scorer, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], phase: str) -> States:
    rows = engine.score(sequences, phase, what="hidden")  # type: ignore[arg-type]
    return {(row.sequence, row.position): row.logits for row in rows}


def layer_errors(base: States, new: States, num_layers: int) -> tuple[float, ...]:
    """Return the relative error of each layer over all tokens; infinite where a state is not finite."""
    a = np.stack([base[key] for key in base]).astype(np.float64).reshape(len(base), num_layers, -1)
    b = np.stack([new[key] for key in base]).astype(np.float64).reshape(len(base), num_layers, -1)
    size, error = (a**2).sum(axis=-1), ((a - b) ** 2).sum(axis=-1)
    ratios = np.sqrt((error / size).mean(axis=0))
    return tuple(float(ratio) if np.isfinite(ratio) else 1e300 for ratio in ratios)


def judge_hidden(hidden: HiddenDrift) -> list[tuple[State, str]]:
    """Return (state, reason) for the first layer of each phase behind which the states are off."""
    found: list[tuple[State, str]] = []
    for phase, errors in (("decode", hidden.decode), ("prefill", hidden.prefill)):
        allowed = [max(LEAST, NULL_FACTOR * null) for null in hidden.null]
        off = [i for i, error in enumerate(errors) if error > allowed[i]]
        if off:
            worst = max(errors[i] / allowed[i] for i in off)
            state: State = "refuse" if worst > STEP else "review"
            layer = off[0]
            sizes = f"{errors[layer]:.1e} there, {errors[-1]:.1e} at the end, null {hidden.null[layer]:.1e}"
            found.append((state, f"{phase}: hidden states are off from layer {layer} on ({sizes})"))
    return found
