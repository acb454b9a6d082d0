"""Pictures of a session report, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.profiles.drawing import BLUE, GREEN, INK, LINE, MUTED, ORANGE, PAPER, PURPLE, RED, WIDTH, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PHASES = {"decode": BLUE, "prefill": ORANGE}
OUTCOMES = {
    "faster": GREEN, "slower": ORANGE, "inconclusive": MUTED, "incorrect": RED, "suspect": PURPLE, "invalid": RED,
    "unmeasured": MUTED,
}  # fmt: skip
MAX_PANELS = 12
Report = Mapping[str, Any]


def draw_pictures(report: Report) -> dict[str, str]:
    """Return SVG text by name for every picture that `report` has the data for; a picture without data is left out."""
    drawn = {name: draw(report) for name, draw in PICTURES.items()}
    return {name: svg for name, svg in drawn.items() if svg is not None}


def draw_time(report: Report) -> str | None:
    """Draw the share of busy time of each slot, stacked by phase, and of the time outside every slot."""
    profile = report.get("profile") or {}
    slots, busy = profile.get("slots"), profile.get("busy_ns")
    if not slots or not busy:
        return None
    shares: dict[str, dict[str, float]] = {}
    for slot in slots:
        of_slot = shares.setdefault(slot["definition"], dict.fromkeys(PHASES, 0.0))
        of_slot[slot["phase"]] += 100 * slot["self_ns"] / busy
    names = sorted(shares, key=lambda name: sum(shares[name].values()))
    with figure_of("time", WIDTH, 0.9 + 0.32 * (len(names) + 1)) as (figure, finish):
        axes = figure.subplots()
        left = [0.0] * len(names)
        for phase, colour in PHASES.items():
            widths = [shares[name][phase] for name in names]
            axes.barh([i + 1 for i in range(len(names))], widths, 0.66, left=left, color=colour, label=phase)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        rest = 100 * (profile.get("unattributed_share") or 0.0)
        axes.barh([0], [rest], 0.66, color=LINE, label="outside every slot")
        for i, total in enumerate([rest, *left]):
            axes.annotate(f"{total:.1f} %", (total, i), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
        axes.set_yticks(range(len(names) + 1), ["outside every slot", *map(_plain, names)])
        axes.set_xlim(0, max([rest, *left]) * 1.14)
        axes.set_xlabel("share of the time inside engine steps, %")
        axes.tick_params(length=0)
        axes.legend(loc="lower right")
        return finish()


def draw_roofline(report: Report) -> str | None:
    """Draw the measured roofs and, under them, what each slot of the incumbent reaches; numbers refer to the key."""
    ceilings = report.get("ceilings")
    slots = [s for s in (report.get("profile") or {}).get("slots") or [] if _has_model(s)]
    if not ceilings or not slots:
        return None
    slots = sorted(slots, key=lambda s: -s["self_ns"])[:MAX_PANELS]
    points = [
        (s["flops_per_call"] / s["bytes_per_call"], s["flops_per_call"] * s["calls"] / s["self_ns"]) for s in slots
    ]
    peak = ceilings["fp32_flops_per_s"] / 1e9
    low = min(0.1, *(x for x, _ in points)) / 2
    high = max(peak / (ceilings["dram_bytes_per_s"] / 1e9) * 8, *(2 * x for x, _ in points))
    with figure_of("roofline", WIDTH, 4.3 + 0.1 * len(slots)) as (figure, finish):
        axes, key_axes = figure.subplots(2, 1, height_ratios=[4.0, 0.1 * len(slots) + 0.3])
        for key, name, dashes in (("dram", "memory", "-"), ("cache", "cache", "--")):
            bandwidth = ceilings[f"{key}_bytes_per_s"] / 1e9
            xs = sorted({low, min(max(peak / bandwidth, low), high), high})
            label = f"{name}, {bandwidth:.3g} GB/s"
            axes.plot(xs, [min(peak, bandwidth * x) for x in xs], color=MUTED, linestyle=dashes, lw=1.6, label=label)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(min(y for _, y in points) / 3, peak * 2.5))
        axes.set_xlabel("FLOPs per byte that must move")
        axes.set_ylabel(f"GFLOP/s (fp32 peak {peak:.3g})")
        axes.grid(True)
        axes.legend(loc="lower right")
        _number_points(axes, points, [PHASES[slot["phase"]] for slot in slots])
        for i, slot in enumerate(slots, 1):
            label = f"{i}  {_plain(slot['definition'])} ({slot['phase']}, {slot['tokens']})"
            key_axes.plot([], [], "o", ms=7, color=PHASES[slot["phase"]], label=label)
        key_axes.axis("off")
        key = key_axes.legend(loc="upper left", ncols=2, columnspacing=2.5, handletextpad=0.1, borderaxespad=0)
        key.set_in_layout(False)  # it may be wider than the plot and must not make it narrower
        return finish()


def draw_attempts(report: Report) -> str | None:
    """Draw, for each definition, the ratio of every attempt in order: hollow in search, filled in confirm."""
    log = report.get("attempt_log") or []
    if not any(row.get("ratio") for row in log):
        return None
    names = list(dict.fromkeys(row["definition"] for row in log))[:MAX_PANELS]
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    with figure_of("attempts", WIDTH, 0.9 + 1.75 * rows) as (figure, finish):
        panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
        for axes, name in zip(panels, names, strict=False):
            _draw_attempts_of(axes, [row for row in log if row["definition"] == name])
            axes.set_title(_plain(name, 30), fontsize=9.5)
        # the panels share their y axis: scaling one scales all
        _scale_ratios(panels[0], "y", [row[k] for row in log for k in ("ratio", "low", "high") if row.get(k)])
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        figure.supylabel("speed-up over the incumbent", color=MUTED, fontsize=10)
        figure.supxlabel("attempt", color=MUTED, fontsize=10)
        return finish()


def draw_pairs(report: Report) -> str | None:
    """Draw each accepted kernel's interval and, where they were kept, its paired ratios."""
    kernels = {k["definition"]: k for k in report.get("accepted") or [] if k.get("ratio") and k.get("interval")}
    if not kernels:
        return None
    ratios = {name: [math.exp(x) for x in (report.get("pairs") or {}).get(name) or []] for name in kernels}
    names = sorted(kernels, key=lambda name: kernels[name]["ratio"])
    with figure_of("pairs", WIDTH, 0.9 + 0.42 * len(names)) as (figure, finish):
        axes = figure.subplots()
        for i, name in enumerate(names):
            # a fixed spread by rank, not by chance: the same report gives the same picture
            heights = [i + 0.26 * math.sin(2.4 * k) for k in range(len(ratios[name]))]
            axes.plot(ratios[name], heights, "o", ms=4, color=BLUE, alpha=0.45, mew=0)
            interval = kernels[name]["interval"]
            axes.plot(interval, [i, i], color=INK, lw=1.6, marker="|", ms=15, mew=1.6, zorder=3)
            low, high = (f"{end:#.3g}".rstrip(".") for end in interval)
            right = max(*ratios[name], *interval)
            axes.annotate(f"[{low}, {high}]", (right, i), (7, 0), textcoords="offset points", va="center", fontsize=9)
        axes.axvline(1.0, color=RED, lw=1.2)
        counts = [kernels[name].get("n") or len(ratios[name]) for name in names]
        axes.set_yticks(range(len(names)), [f"{_plain(k)}  (n={n})" for k, n in zip(names, counts, strict=True)])
        shown = [x for name in names for x in (*ratios[name], *kernels[name]["interval"])]
        _scale_ratios(axes, "x", shown, room=0.22)
        axes.set_xlabel("incumbent time ÷ kernel time")
        axes.grid(True, axis="x")
        axes.tick_params(length=0)
        return finish()


def draw_kl(report: Report) -> str | None:
    """Draw how the KL divergence of single tokens is spread, per phase, on a logarithmic scale."""
    histograms = {p: h for p, h in (report.get("kl_histogram") or {}).items() if h and sum(h["counts"])}
    if not histograms:
        return None
    with figure_of("kl", WIDTH, 2.7) as (figure, finish):
        panels = figure.subplots(1, len(histograms), sharey=True, squeeze=False).flat
        for axes, (phase, histogram) in zip(panels, histograms.items(), strict=True):
            edges = list(histogram["edges"])
            if edges[0] <= 0.0:
                edges[0] = edges[1] / 10  # a bin that starts at 0 has no left end on a logarithmic axis
            axes.stairs(histogram["counts"], edges, fill=True, color=PHASES.get(phase, PURPLE), alpha=0.85)
            facts = (report.get("fidelity") or {}).get(phase) or {}
            told = [f"{phase}, {sum(histogram['counts']):,} tokens"]
            for key, name, dashes in (("mean_kld", "mean", "-"), ("null_kld", "null", ":")):
                if facts.get(key):
                    axes.axvline(facts[key], color=INK, lw=1.4, linestyle=dashes)
                    told.append(f"{name} {facts[key]:.1e}")
            axes.set(xscale="log", yscale="log")
            axes.set_title(" · ".join(told), fontsize=9.5)
            axes.set_ylim(0.7, 2 * max(max(h["counts"]) for h in histograms.values()))
            axes.set_xlabel("KL divergence of a token, nats")
        return finish()


PICTURES: Mapping[str, Callable[[Report], str | None]] = {
    "time": draw_time, "roofline": draw_roofline, "attempts": draw_attempts, "pairs": draw_pairs, "kl": draw_kl,
}  # fmt: skip


def _draw_attempts_of(axes: Axes, log: Sequence[Report]) -> None:
    from matplotlib.ticker import MaxNLocator

    best, xs, bests = 0.0, [], []
    axes.axhline(1.0, color=LINE, lw=1.2)
    for i, row in enumerate(log, 1):
        colour, ratio = OUTCOMES.get(row.get("outcome") or "", MUTED), row.get("ratio")
        confirmed = row.get("phase") == "confirm"
        if not ratio:
            # no ratio was measured: a tick on the lower edge, so that failures are seen too
            axes.plot([i], [0.03], "|", ms=6, color=colour, transform=axes.get_xaxis_transform())
            continue
        axes.plot([i], [ratio], "o", ms=6 if confirmed else 4, mfc=colour if confirmed else "none", mec=colour)
        if confirmed and row.get("low") and row.get("high"):
            axes.plot([i, i], [row["low"], row["high"]], color=colour, lw=1.4)
        if confirmed and row.get("outcome") == "faster":
            best = max(best, ratio)
            xs.append(i)
            bests.append(best)
    if xs:
        axes.step([*xs, len(log) + 0.5], [*bests, bests[-1]], where="post", color=GREEN, lw=1.2)
    axes.set_xlim(0.3, len(log) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(True, axis="y")


def _number_points(axes: Axes, points: Sequence[tuple[float, float]], colours: Sequence[str]) -> None:
    """Draw `points` where they lie and number them from 1, the numbers pushed apart where points crowd."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    width, height = 560.0, 250.0  # points of the plot, near enough to keep numbers apart
    taken: list[tuple[float, float]] = []
    for i, ((x, y), colour) in enumerate(zip(points, colours, strict=True), 1):
        axes.plot([x], [y], "o", ms=8, color=colour, mec=PAPER, mew=1.0, zorder=3)
        left = math.log(x / x0) / math.log(x1 / x0) * width
        up = math.log(y / y0) / math.log(y1 / y0) * height
        spots = [(dx, dy) for reach in (0, 12, 24, 36, 48) for dx, dy in ((11, -reach), (11, reach), (-16, -reach))]
        free = (s for s in spots if all(abs(left + s[0] - a) > 11 or abs(up + s[1] - b) > 10 for a, b in taken))
        dx, dy = next(free, spots[0])
        taken += [(left + dx, up + dy), (left, up)]
        leader = {"arrowstyle": "-", "color": MUTED, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            str(i), (x, y), (dx, dy), textcoords="offset points", va="center", ha="left", fontsize=9.5,
            arrowprops=None if (dx, dy) == spots[0] else leader,
        )  # fmt: skip


def _scale_ratios(axes: Axes, which: str, ratios: Sequence[float], room: float = 0.06) -> None:
    """Show `ratios` and 1 on a logarithmic axis with labels such as 1.5×; `room` stays free at the upper end."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = math.log(min(1.0, *ratios)), math.log(max(1.0, *ratios))
    spread = max(high - low, 0.02)
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    limits = math.exp(low - 0.06 * spread), math.exp(high + room * spread)
    axes.set_xlim(*limits) if which == "x" else axes.set_ylim(*limits)
    axis = axes.xaxis if which == "x" else axes.yaxis
    # over a narrow range a logarithm is a straight line, and its own ticks would leave the axis bare
    axis.set_major_locator(MaxNLocator(5) if spread < 0.7 else LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}×"))
    axis.set_minor_formatter(NullFormatter())


def _has_model(slot: Report) -> bool:
    return bool(slot.get("bytes_per_call") and slot.get("flops_per_call") and slot.get("self_ns"))


def _plain(name: str, length: int = 60) -> str:
    """Return `name` cut to `length`, its dollar signs kept from starting a formula."""
    return (name if len(name) <= length else name[: length - 1] + "…").replace("$", r"\$")
