"""How numbers and facts read on a screen."""

from __future__ import annotations

from kernelwright.agent import events as e


def clock(seconds: float) -> str:
    """Return `6:12`, or `1:02:03` from an hour on."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 60}:{whole % 60:02}"


def times(ratio: float | None) -> str:
    """Return a speed ratio, `3.37×`."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def span(low: float | None, high: float | None) -> str:
    """Return an interval, `[3.31, 3.42]`."""
    return "" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def shorten(name: str, most: int) -> str:
    """Return `name`, its end replaced by `…` where it is longer than `most` cells."""
    return name if len(name) <= most else name[: most - 1] + "…"


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return `12.3 %` of a fraction."""
    return "–" if fraction is None else f"{fraction * 100:.{digits}f} %"


def tiny(value: float | None) -> str:
    """Return a very small number, `3.1e-9`."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def duration(ns: float | None) -> str:
    """Return nanoseconds with a unit a person would choose."""
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns / size < 100 else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def size(num_bytes: float | None) -> str:
    """Return bytes in decimal units, `96.1 MB`."""
    if num_bytes is None:
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def sentence(event: e.Event) -> str:
    """Return what an event says, in words; the reader sees its time and kind beside it."""
    match event:
        case e.PhaseStarted():
            return event.phase + (f", {clock(event.budget_s)} to spend" if event.budget_s else "")
        case e.PhaseEnded():
            return f"{event.phase}, after {clock(event.seconds)}"
        case e.ProblemPosed():
            return event.definition
        case e.CandidateProposed():
            return f"{event.definition}  {event.candidate[:8]} by {event.author} ({event.proposer})"
        case e.CandidateJudged():
            number = f" {times(event.ratio)} {span(event.low, event.high)}" if event.ratio is not None else ""
            return f"{event.definition}  {event.candidate[:8]} {event.phase}: {event.outcome}{number}"
        case e.KernelAccepted():
            return f"{event.definition}  {event.candidate[:8]} {times(event.ratio)}"
        case e.GateFinished():
            return ("passed" if event.passed else "refused") + (f": {event.reason}" if event.reason else "")
        case e.PatchCommitted():
            return f"{event.branch} at {event.commit[:12]}"
        case e.ReportWritten():
            return event.path
        case e.ProgressMade():
            return f"{event.phase} {event.done}/{event.total} {event.text}".rstrip()
        case e.SessionEnded():
            return event.status + (f": {event.reason}" if event.reason else "")
    return ""
