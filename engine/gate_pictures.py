"""Pictures of a gate: where the divergence lies, how it goes with the position, layer by layer, and the speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.engine.gate_fidelity import PhaseFidelity
from kernelwright.engine.gate_hidden import HiddenDrift
from kernelwright.engine.gate_limits import Limits
from kernelwright.engine.gate_modes import ModeDrift
from kernelwright.engine.gate_speed import EngineComparison
from kernelwright.profiles.drawing import BLUE, GREEN, INK, LINE, MUTED, ORANGE, PURPLE, RED, WIDTH, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"decode": BLUE, "decode_batch8": PURPLE, "prefill": ORANGE}
FLOOR = 1e-16
"""What is drawn for a divergence of nothing, on a logarithmic scale."""


def draw_divergence(phases: Sequence[PhaseFidelity], limits: Limits) -> str:
    """Draw how many tokens lie at which divergence, phase by phase, with the mean, the null and the limit."""
    with figure_of("gate-kl", WIDTH, 2.7) as (figure, finish):
        panels = figure.subplots(1, len(phases), sharey=True, squeeze=False).flat
        for axes, phase in zip(panels, phases, strict=True):
            axes.stairs(phase.histogram, phase.histogram_edges, fill=True, color=COLOURS[phase.phase], alpha=0.85)
            for value, dashes, colour in (
                (phase.mean_kld, "-", INK), (phase.null_kld, ":", INK), (limits.mean_kld[0], "--", RED),
            ):  # fmt: skip
                axes.axvline(max(value, FLOOR), color=colour, lw=1.3, linestyle=dashes)
            axes.set(xscale="log", yscale="log", xlabel="KL divergence of a token, nats")
            axes.set_title(f"{phase.phase}, {phase.tokens:,} tokens, mean {phase.mean_kld:.1e}", fontsize=9.5)
            axes.set_ylim(0.7, 2 * max(max(other.histogram) for other in phases))
        return finish()


def draw_positions(phases: Sequence[PhaseFidelity], limits: Limits) -> str:
    """Draw mean and largest divergence in ranges of positions that double."""
    with figure_of("gate-positions", WIDTH, 2.9) as (figure, finish):
        axes = figure.subplots()
        for phase in phases:
            middles = [math.sqrt(max(r.low, 8) * r.high) for r in phase.by_position]
            colour = COLOURS[phase.phase]
            axes.plot(
                middles, [max(r.mean_kld, FLOOR) for r in phase.by_position], "o-", color=colour, label=phase.phase
            )
            axes.plot(middles, [max(r.max_kld, FLOOR) for r in phase.by_position], "v", color=colour, alpha=0.5, ms=5)
        axes.axhline(limits.mean_kld[0], color=RED, lw=1.2, linestyle="--", label="limit of the mean")
        axes.set(xscale="log", yscale="log", xlabel="position in the context", ylabel="KL divergence, nats")
        axes.grid(axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return finish()


def draw_layers(hidden: HiddenDrift) -> str:
    """Draw the relative error of the hidden states behind every layer, and the null."""
    with figure_of("gate-layers", WIDTH, 2.6) as (figure, finish):
        axes = figure.subplots()
        for name, errors, colour, dashes in (
            ("decode", hidden.decode, BLUE, "-"),
            ("prefill", hidden.prefill, ORANGE, "-"),
            ("null", hidden.null, INK, ":"),
        ):
            axes.plot(
                range(len(errors)),
                [max(error, FLOOR) for error in errors],
                dashes,
                color=colour,
                marker=".",
                label=name,
            )
        axes.set(yscale="log", xlabel="layer", ylabel="relative error")
        axes.grid(axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return finish()


def draw_modes(modes: Sequence[ModeDrift]) -> str:
    """Draw each engine against itself, mode by mode."""
    with figure_of("gate-modes", WIDTH, 2.3) as (figure, finish):
        axes = figure.subplots()
        for shift, name, colour in ((-0.18, "incumbent", MUTED), (0.18, "patched", BLUE)):
            values = [max(getattr(mode, f"{name}_kld"), FLOOR) for mode in modes]
            axes.bar([i + shift for i in range(len(modes))], values, 0.34, bottom=FLOOR / 10, color=colour, label=name)
        axes.set_xticks(range(len(modes)), [mode.mode for mode in modes])
        axes.set(yscale="log", ylabel="mean KL divergence")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return finish()


def draw_speed(compared: Sequence[EngineComparison]) -> str:
    """Draw every pair's ratio, the median and its interval."""
    with figure_of("gate-speed", WIDTH, 0.75 + 0.55 * len(compared)) as (figure, finish):
        axes = figure.subplots()
        for row, measured in enumerate(compared):
            _draw_ratios(axes, row, measured)
        axes.axvline(1.0, color=LINE, lw=1.2)
        axes.set_yticks(range(len(compared)), [measured.kind for measured in compared])
        axes.set_ylim(len(compared) - 0.5, -0.5)
        axes.set(xscale="log", xlabel="times as fast as the incumbent")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}×")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        return finish()


def _draw_ratios(axes: Axes, row: int, measured: EngineComparison) -> None:
    ratios = [base / new for launch in measured.pairs for base, new in launch]
    axes.plot(ratios, [row] * len(ratios), "|", color=MUTED, ms=9)
    colour = GREEN if measured.low > 1 else RED if measured.high < 1 else MUTED
    axes.plot([measured.low, measured.high], [row, row], "-", color=colour, lw=5, alpha=0.5, solid_capstyle="butt")
    axes.plot(measured.ratio, row, "o", color=colour, ms=6)
    axes.annotate(
        f"{measured.ratio:.2f}× [{measured.low:.2f}, {measured.high:.2f}], n={measured.n}", (measured.ratio, row),
        textcoords="offset points", xytext=(0, 9), ha="center", fontsize=9, color=INK,
    )  # fmt: skip
