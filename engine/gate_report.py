"""The gate's report: one HTML page with its ruling, its numbers beside their limits, and pictures. No scripts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from kernelwright.engine.gate_limits import FP32, Limits
from kernelwright.engine.gate_pictures import draw_divergence, draw_layers, draw_modes, draw_positions, draw_speed
from kernelwright.engine.gate_result import GateResult

STATES = {"pass": "It passes", "review": "A person has to decide", "refuse": "It is refused"}


def write_gate_report(result: GateResult, path: Path) -> None:
    """Write the report of `result` to `path`."""
    path.write_text(render_gate_report(result), encoding="utf-8")


def render_gate_report(result: GateResult, limits: Limits = FP32) -> str:
    """Return the page as text."""
    from jinja2 import Environment, StrictUndefined

    template = (files("kernelwright.engine") / "gate.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        verdict=STATES[result.state],
        result=result,
        pictures=list(_pictures(result, limits)),
        fidelity=[_fidelity_row(result, i, limits) for i in range(len(result.fidelity))],
        megabytes=[round(size / 1e6) for size in result.resident_bytes],
    )


def _pictures(result: GateResult, limits: Limits) -> Iterator[tuple[str, str]]:
    """Yield (SVG, caption)."""
    decode, prefill = result.decode, result.prefill
    shapes = (
        f"Decode: {decode.new_tokens} tokens behind {decode.prompt_tokens}; prefill: {prefill.prompt_tokens} tokens."
    )
    caption = f"Speed over HTTP, {decode.launches} launches: pairs, median and 95 % interval. {shapes}"
    yield draw_speed((decode, prefill)), caption
    caption = "Forced tokens by their divergence. Line: mean; dots: the incumbent against itself; dashes: limit."
    yield draw_divergence(result.fidelity, limits), caption
    if any(phase.by_position for phase in result.fidelity):
        yield draw_positions(result.fidelity, limits), "Divergence by position: means, and the largest as triangles."
    if result.hidden is not None:
        null = "Dots: the incumbent alone against the incumbent in a batch of eight."
        caption = f"Relative error of the residual stream behind each layer, {result.hidden.tokens} tokens. {null}"
        yield draw_layers(result.hidden), caption
    if result.modes:
        caption = "Each engine against itself under changes that may not matter; equal bits stand at the foot."
        yield draw_modes(result.modes), caption


def _fidelity_row(result: GateResult, index: int, limits: Limits) -> dict[str, Any]:
    phase = result.fidelity[index]
    return {
        "phase": phase,
        "state": result.rulings[phase.phase].state,
        "limit": max(limits.mean_kld[0], limits.null_factor * phase.null_kld),
    }
