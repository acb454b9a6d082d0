"""EngineCard: the gate's evidence. Speed over HTTP, fidelity against its limits, and which kernels were hit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.engine.gate_limits import FP32
from kernelwright.tui.palette import DIM, FAINT, GREEN, GROUND, RED, TEXT, YELLOW
from kernelwright.tui.plots import bar
from kernelwright.tui.view import Fidelity, GateView, SessionView, Speed
from kernelwright.tui.widgets.headline import colour_of, speed_plot
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import percent, size, span, times, tiny

_WAITING = "The gate starts when every target was tried or the time is up."
_NEVER = "The session ended before the gate did, so nothing was measured on the engine."
_RULINGS = {
    "pass": ("passed", GREEN),
    "review": ("sent to review, nothing committed", YELLOW),
    "refuse": ("refused", RED),
}


class EngineCard(ViewWidget):
    def draw(self, view: SessionView, width: int) -> RenderableType:
        gate = view.gate
        if not gate.speed and not gate.fidelity:
            return Group(_decision(gate), Text(_WAITING if view.standing == "live" else _NEVER, DIM))
        parts: list[RenderableType] = [_decision(gate)]
        for phase, speed in gate.speed.items():
            compiled = gate.compiled_tok_s if phase == "decode" else None
            parts += [Text(""), _speed(phase, speed, compiled, width)]
        if gate.fidelity:
            parts += [Text(""), _fidelity(gate.fidelity)]
        if gate.accepted:
            parts += [Text(""), _kernels(gate, width)]
        return Group(*parts)


def _decision(gate: GateView) -> Text:
    if gate.passed is None:
        return Text("Gate  not finished", DIM)
    words, colour = _RULINGS["pass" if gate.passed else gate.state or "refuse"]
    line = Text.assemble(("Gate  ", f"bold {TEXT}"), (words, colour))
    if gate.reason:
        line.append(f"  {gate.reason}", TEXT)
    if gate.commit:
        line.append(f"  {gate.branch} at {gate.commit[:12]}", DIM)
    return line


def _speed(phase: str, speed: Speed, compiled: float | None, width: int) -> RenderableType:
    head = Text.assemble(
        (phase.ljust(10), f"bold {TEXT}"), (times(speed.ratio), f"bold {colour_of(speed)}"),
        (f" {span(*(speed.interval or (None, None)))}  ", DIM), speed_plot(speed, max(12, min(36, width - 62))),
        (f"  {_basis(speed)}", DIM),
    )  # fmt: skip
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=13)
    table.add_column(justify="right", no_wrap=True, min_width=11)
    table.add_column(no_wrap=True)
    rows = [
        ("incumbent", speed.incumbent_tok_s, DIM),
        ("torch.compile", compiled, DIM),
        ("patched", speed.patched_tok_s, colour_of(speed)),
    ]
    most = max((value for _, value, _ in rows if value), default=0.0)
    for name, value, colour in rows:
        if value:
            table.add_row(
                Text(name, DIM),
                Text(f"{value:.1f} tok/s", TEXT),
                bar(value / most, max(10, min(60, width - 36)), colour, GROUND),
            )
    return Group(head, table)


def _basis(speed: Speed) -> str:
    if speed.n is None:
        return ""
    return f"n {speed.n}, {speed.launches} launches" + (
        f", floor {percent(speed.floor)}" if speed.floor is not None else ""
    )


def _fidelity(fidelity: dict[str, Fidelity]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=14, no_wrap=True)
    for _ in fidelity:
        table.add_column(justify="right", no_wrap=True, min_width=9)
    table.add_column(no_wrap=True)
    records = list(fidelity.values())
    table.add_row(
        Text("fidelity", f"bold {TEXT}"),
        *(Text(phase.replace("_", " "), DIM) for phase in fidelity),
        Text("limit", DIM),
    )
    rows = [
        ("mean KLD", [Text(tiny(r.mean_kld), _kld_colour(r)) for r in records], "≤ 1e-8 or 4 × null"),
        ("null KLD", [Text(tiny(r.null_kld), TEXT) for r in records], ""),
        ("p99.9 KLD", [Text(tiny(r.p999_kld), TEXT) for r in records], ""),
        ("top-1", [Text(percent(r.top1, 3), _top1_colour(r)) for r in records], "≥ 99.99 %"),
        ("ln PPL ratio", [Text(tiny(r.ln_ppl_ratio), TEXT) for r in records], ""),
        ("tokens", [Text("–" if r.tokens is None else f"{r.tokens:,}", TEXT) for r in records], ""),
    ]
    for name, cells, words in rows:
        table.add_row(Text(name, DIM), *cells, Text(words, FAINT if not words else DIM))
    return table


def kld_limit(record: Fidelity) -> float:
    """Return the mean KL divergence up to which the gate passes: max(1e-8, 4 × null)."""
    return max(FP32.mean_kld[0], FP32.null_factor * (record.null_kld or 0.0))


def _kld_colour(record: Fidelity) -> str:
    if record.mean_kld is None:
        return DIM
    if record.mean_kld <= kld_limit(record):
        return GREEN
    return RED if record.mean_kld > max(FP32.mean_kld[1], kld_limit(record)) else YELLOW


def _top1_colour(record: Fidelity) -> str:
    if record.top1 is None:
        return DIM
    if record.mismatches_beyond_ties:
        return RED
    return GREEN if record.top1 >= FP32.top1[0] else YELLOW


def _kernels(gate: GateView, width: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=24)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(Text("kernels", f"bold {TEXT}"), Text("hits", DIM), Text("alone", DIM), Text("", DIM))
    for kernel in gate.accepted:
        hits = kernel.num_hits
        live = Text("–", DIM) if hits is None else Text(f"{hits:,}", TEXT if hits else RED)
        interval = span(*(kernel.interval or (None, None)))
        author = f"  {kernel.author} ({kernel.proposer})" if width >= 90 else ""
        table.add_row(
            Text(kernel.definition, TEXT), live, Text(times(kernel.ratio), TEXT), Text(interval + author, DIM)
        )
    moved = gate.bytes_per_token
    if moved:
        before, after = size(moved.get("incumbent")), size(moved.get("patched"))
        return Group(table, Text(""), Text.assemble(("bytes per token  ", DIM), (f"{before} → {after}", TEXT)))
    return table
