"""The figures on top of a session report and what they stand on: a figure without its evidence is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Report = Mapping[str, Any]
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Figure:
    """One headline figure with what it stands on; `value` is None when it may not be shown, `evidence` says why."""

    label: str
    value: str | None
    evidence: str
    good: bool | None = None


def headline(report: Report) -> tuple[Figure, ...]:
    """Return the figures on top of the report: engine decode and prefill, fidelity, kernels accepted."""
    fidelity = report.get("fidelity") or {}
    accepted = report.get("accepted")
    live = f"{len(accepted)}" if accepted is not None else None
    judged = sum(sum(outcomes.values()) for outcomes in (report.get("attempts") or {}).values())
    worst = max((f["mean_kld"] for f in fidelity.values() if f and f.get("mean_kld") is not None), default=None)
    nulls = max((f["null_kld"] for f in fidelity.values() if f and f.get("null_kld") is not None), default=None)
    tokens = sum(f.get("tokens") or 0 for f in fidelity.values() if f)
    told = worst is not None and nulls is not None and tokens > 0
    return (
        _ratio_figure("Decode, engine-level", report, "decode"),
        _ratio_figure("Prefill, engine-level", report, "prefill"),
        Figure(
            "Output moved by (mean KLD)",
            f"{worst:.1e}" if told else None,
            f"worst phase; incumbent against itself {nulls:.1e}; {tokens:,} tokens scored"
            if told
            else "the gate did not finish: no fidelity figure exists",
        ),
        Figure(
            "Kernels accepted",
            live,
            f"of {judged:,} attempts judged" if accepted is not None else "the session ended before any was decided",
        ),
    )


def evidence_line(report: Report) -> tuple[tuple[str, str], ...]:
    """Return (label, value) of what every figure stands on: machine, model, command, how it ended, session, branch."""
    rows = [
        ("machine", describe_machine(report) or NOT_RECORDED),
        ("model", str(report.get("model") or (report.get("profile") or {}).get("model") or NOT_RECORDED)),
        ("command", describe_command(report) or NOT_RECORDED),
        ("ended", ": ".join(str(report[k]) for k in ("status", "reason") if report.get(k)) or NOT_RECORDED),
        ("session", str(report.get("session") or NOT_RECORDED)),
        ("gate", _describe_gate(report)),
        ("branch", str(report.get("branch") or "none: nothing was committed")),
    ]
    if report.get("commit"):
        rows.append(("commit", str(report["commit"])))
    return tuple(rows)


def describe_machine(report: Report) -> str | None:
    """Return processor, ISA, cores and versions in one line; None when the machine is not recorded."""
    machine = report.get("machine")
    if not machine:
        return None
    threads = (report.get("ceilings") or {}).get("threads")
    engine = f", {threads} threads" if threads else ""
    return (
        f"{machine['cpu']}, {machine['isa']}, {machine['cores']} cores{engine}, "
        f"torch {machine['torch']}, Linux {machine['kernel']}"
    )


def describe_command(report: Report) -> str | None:
    """Return the command as given or, where only its arguments were kept, these; None when neither was."""
    if report.get("command"):
        return str(report["command"])
    arguments = {name: value for name, value in (report.get("arguments") or {}).items() if value not in (None, [], "")}
    told = ", ".join(f"{name}={value}" for name, value in sorted(arguments.items()))
    return f"kernelwright optimize ({told})" if told else None


def _describe_gate(report: Report) -> str:
    gate = report.get("gate")
    if not gate:
        return "no ruling recorded"
    return ("passed" if gate.get("passed") else "not passed") + (f": {gate['reason']}" if gate.get("reason") else "")


def describe_ratio(facts: Report | None) -> str | None:
    """Return e.g. `3.40× [3.34, 3.46], n=24, 3 launches`; None unless ratio, interval and n are all there."""
    if not facts or not facts.get("ratio") or not facts.get("interval") or not facts.get("n"):
        return None
    launches = f", {facts['launches']} launches" if facts.get("launches") else ""
    return f"{show_times(facts['ratio'])} {show_interval(facts['interval'])}, n={facts['n']}{launches}"


def find_lacks(report: Report, facts: Report) -> str:
    """Return what a ratio would need to be shown and does not have, in words; empty when nothing lacks."""
    needs = {
        "interval or n": describe_ratio(facts), "machine": report.get("machine"), "command": describe_command(report),
    }  # fmt: skip
    return " and ".join(name for name, there in needs.items() if not there)


def _ratio_figure(label: str, report: Report, phase: str) -> Figure:
    facts = (report.get("engine") or {}).get(phase)
    if not facts:
        return Figure(label, None, "the session ended before the engine was measured: no figure exists")
    if lacks := find_lacks(report, facts):
        return Figure(label, None, f"measured, but not shown: {lacks} {NOT_RECORDED}")
    low, high = facts["interval"]
    launches = f" over {facts['launches']} launches" if facts.get("launches") else ""
    evidence = (
        f"95 % interval {show_interval(facts['interval'])}, n={facts['n']} pairs{launches}; "
        f"{facts['incumbent_tok_s']:.4g} → {facts['patched_tok_s']:.4g} tok/s over HTTP"
    )
    good = True if low > 1 else False if high < 1 else None
    return Figure(label, show_times(facts["ratio"]), evidence, good)


def stands_on(report: Report) -> str:
    """Return one sentence that names the machine and the command behind a section's figures."""
    return (
        f"{describe_machine(report) or 'machine not recorded'} · `{describe_command(report) or 'command not recorded'}`"
    )


def show_times(ratio: float) -> str:
    """Return a ratio with three significant digits, e.g. `3.40×`."""
    return f"{ratio:#.3g}".rstrip(".") + "×"


def show_interval(interval: tuple[float, float] | list[float]) -> str:
    """Return e.g. `[3.34, 3.46]`."""
    low, high = (f"{end:#.3g}".rstrip(".") for end in interval)
    return f"[{low}, {high}]"
