"""What a session report says: sections made from the report's JSON, shared by the HTML and the Markdown form.

A section says what is missing instead of leaving it out, and a ratio without its interval and n is not shown at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.agent.report_figures import (
    NOT_RECORDED,
    Report,
    describe_ratio,
    find_lacks,
    show_interval,
    show_times,
    stands_on,
)
from kernelwright.profiles.table import Table

LIMITS = (
    "Every figure holds for this machine, these weights and this request mix; another processor needs its own session.",
    "Tokens per second are measured by an HTTP client on the engine that `serve` starts. Kernel-level ratios compare "
    "two processes in identical cages; they do not multiply up to the engine's.",
    "Shares of time come from a run under the profiler, which slows the engine and most of all its shortest slots.",
    "Ratios of the search order the search and prove nothing; only confirm verdicts may become a patch.",
    "Intervals cover the spread within this session. They do not cover another day, another load or another kernel of "
    "the operating system.",
)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    lead: tuple[str, ...] = ()
    """Sentences under the title."""
    pictures: tuple[tuple[str, str], ...] = ()
    """(name of the picture, caption)."""
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()
    """A bulleted list after the tables."""
    missing: tuple[str, ...] = ()
    """What the session did not get to, in sentences."""
    evidence: str = ""
    """Machine and command behind the figures of this section."""


def engine_section(report: Report) -> Section:
    engine = report.get("engine") or {}
    rows, missing = [], []
    for phase in ("decode", "prefill"):
        facts = engine.get(phase)
        if not facts or (lacks := find_lacks(report, facts)):
            why = f"{lacks} not recorded" if facts else "the session ended before it was measured"
            missing.append(f"No {phase} figure of the engine: {why}.")
            continue
        rows.append(
            (phase, f"{facts['incumbent_tok_s']:.4g}", f"{facts['patched_tok_s']:.4g}", show_times(facts["ratio"]),
             show_interval(facts["interval"]), str(facts["n"]), str(facts.get("launches") or NOT_RECORDED))
        )  # fmt: skip
    header = ("phase", "incumbent tok/s", "patched tok/s", "ratio", "95 % interval", "n", "launches")
    gate = report.get("gate")
    if gate and not gate.get("passed"):
        reason = gate.get("reason") or "no reason recorded"
        missing.append(f"The gate did not pass ({reason}): these figures are of a stack that was not committed.")
    points = []
    compiled = engine.get("compiled") or {}
    if compiled.get("decode_tok_s"):
        beside = describe_ratio(compiled)
        told = f"; patched ÷ compiled {beside}" if beside else " (for orientation: one figure without an interval)"
        points.append(f"`torch.compile` of the incumbent, decode: {compiled['decode_tok_s']:.4g} tok/s{told}.")
    if weighed := report.get("bytes_per_token"):
        points.append(
            f"Weights read per decoded token: {weighed['incumbent'] / 1e6:,.0f} MB by the incumbent, "
            f"{weighed['patched'] / 1e6:,.0f} MB patched (counted, not timed)."
        )
    return Section(
        "The engine, before and after",
        tables=_tables(Table("Served over HTTP", header, tuple(rows), 1)),
        points=tuple(points),
        missing=tuple(missing),
        evidence=stands_on(report) if rows else "",
    )


def fidelity_section(report: Report) -> Section:
    fidelity = report.get("fidelity") or {}
    rows, missing = [], []
    for phase in ("decode", *(name for name in fidelity if name not in ("decode", "prefill")), "prefill"):
        facts = fidelity.get(phase)
        if not facts:
            missing.append(f"The {phase} phase was not scored: nothing is known about its outputs.")
            continue
        rows.append((phase, *(_show(facts.get(key), form) for key, form in FIDELITY_COLUMNS.values())))
    if rows and not any((report.get("kl_histogram") or {}).values()):
        missing.append("The spread over single tokens was not recorded.")
    told = bool(rows)
    return Section(
        "Did the output move?",
        lead=(LEAD_FIDELITY,) if told else (),
        pictures=(("kl", CAPTION_KL),),
        tables=_tables(Table("Fidelity", ("phase", *FIDELITY_COLUMNS), tuple(rows), 1)),
        points=(NOTE_FIDELITY,) if told else (),
        missing=tuple(missing),
        evidence=stands_on(report) if told else "",
    )


LEAD_FIDELITY = "The full next-token distribution, patched engine against incumbent, on the same forced tokens."
CAPTION_KL = (
    "KL divergence of single tokens between incumbent and patched engine; both axes logarithmic. Solid line: mean; "
    "dotted: mean of the incumbent against itself."
)
NOTE_FIDELITY = (
    "`null KLD` is the incumbent against itself under changes that are legal (order of summation): what a perfect "
    "patch would show."
)
FIDELITY_COLUMNS: Mapping[str, tuple[str, str]] = {
    "mean KLD": ("mean_kld", ".2e"), "null KLD": ("null_kld", ".2e"), "p99.9 KLD": ("p999_kld", ".2e"),
    "top-1 equal": ("top1", ".4%"), "ln PPL ratio": ("ln_ppl_ratio", "+.1e"), "tokens": ("tokens", ",d"),
}  # fmt: skip


def kernels_section(report: Report) -> Section:
    accepted = report.get("accepted")
    if not accepted:
        why = "No kernel was accepted." if accepted is not None else "The session ended before a kernel was decided on."
        return Section("Kernels accepted", missing=(why,))
    lacking = {k["definition"]: lacks for k in accepted if (lacks := find_lacks(report, _count_pairs(report, k)))}
    missing = [f"The ratio of {name} is not shown: {lacks} not recorded." for name, lacks in lacking.items()]
    if not report.get("pairs"):
        missing.append("The single pairs of the confirm timing were not kept.")
    points = [NOTE_KERNELS]
    points += [
        f"Accepted, but left out of the stack: {k} ({why})." for k, why in (report.get("left_out") or {}).items()
    ]
    header = (
        "definition", "author (proposer)", "ratio", "95 % interval", "n", "over family default", "judged", "rejected",
        "hits",
    )  # fmt: skip
    return Section(
        "Kernels accepted",
        lead=("Kernel-level: incumbent time ÷ kernel time in confirm, paired, in identical cages.",),
        pictures=() if lacking else (("pairs", CAPTION_PAIRS),),
        tables=_tables(Table("Accepted", header, tuple(_kernel_row(report, k) for k in accepted), 2)),
        points=tuple(points),
        missing=tuple(missing),
        evidence=stands_on(report),
    )


def _kernel_row(report: Report, kernel: Report) -> tuple[str, ...]:
    facts = _count_pairs(report, kernel)
    ratio = ("not shown", "", "")
    if not find_lacks(report, facts):
        ratio = (show_times(facts["ratio"]), show_interval(facts["interval"]), str(facts["n"]))
    gain = kernel.get("gain_over_default")
    return (
        kernel["definition"],
        f"{kernel['author']} ({kernel['proposer']})",
        *ratio,
        show_times(gain) if gain else NOT_RECORDED,
        *(_show(kernel.get(key), ",d") for key in ("attempts_judged", "attempts_rejected", "hits")),
    )


def _count_pairs(report: Report, kernel: Report) -> Report:
    """Return `kernel` with its `n`, counted from the pairs where it is not told."""
    return {**kernel, "n": kernel.get("n") or len((report.get("pairs") or {}).get(kernel["definition"]) or [])}


CAPTION_PAIRS = "The confirm timing: bracket the interval, red line equal, one dot a pair where pairs were kept."
NOTE_KERNELS = (
    "`over family default`: time of the family's default point ÷ time of the accepted one, what the search itself "
    "brought. `hits`: calls that the kernel served in the final gate."
)


def time_section(report: Report) -> Section:
    profile = report.get("profile") or {}
    slots = profile.get("slots")
    if not slots:
        return Section("Where the time went", missing=("The session ended before the engine was profiled.",))
    busy = profile["busy_ns"]
    rows = [
        (s["definition"], s["phase"], f"{s['tokens']}", f"{s['calls']:,}", f"{s['self_ns'] / 1e6:.1f}",
         f"{s['self_ns'] / busy:.1%}", f"{s['self_ns'] / s['calls'] / 1e3:.1f}",
         _show(s.get("bytes_per_call"), ",d", "", "no model"), _show(s.get("flops_per_call"), ",d", "", "no model"))
        for s in slots
    ]  # fmt: skip
    header = ("slot", "phase", "tokens", "calls", "self ms", "of busy", "µs/call", "bytes/call", "FLOP/call")
    lead = [
        f"The incumbent under the profiler: {busy / 1e6:,.0f} ms inside engine steps, "
        f"{profile.get('unattributed_share') or 0:.1%} of it outside every slot. Times are self times.",
        f"Median decode step at batch 1: {profile['step_ms_profiled']:.2f} ms with the profiler, "
        f"{profile['step_ms_unprofiled']:.2f} ms without.",
    ]
    caption = "Time by slot and phase, as a share of the time inside engine steps."
    return Section(
        "Where the time went", tuple(lead), (("time", caption),), _tables(Table("Slots", header, tuple(rows), 2))
    )


def targets_section(report: Report) -> Section:
    missing, points, rows = [], [], []
    if c := report.get("ceilings"):
        points.append(
            f"Measured on this machine with {c['threads']} threads: memory {c['dram_bytes_per_s'] / 1e9:.1f} GB/s over "
            f"{c['working_set_bytes'] / 1e6:,.0f} MB, cache {c['cache_bytes_per_s'] / 1e9:.1f} GB/s, "
            f"fp32 {c['fp32_flops_per_s'] / 1e9:,.0f} GFLOP/s (best of three medians)."
        )
    else:
        missing.append("The machine's ceilings were not measured: there is no roofline.")
    for t in report.get("targets") or []:
        rows.append(
            (t["definition"], t["phase"], t.get("excluded") or "worked on", t.get("bound") or "unknown",
             f"{t['share']:.1%}", _show(t.get("headroom"), ".1f", "×", "no model"), _show(t.get("ceiling"), ".2f", "×"))
        )  # fmt: skip
    if not rows:
        missing.append("The session ended before targets were ranked.")
    header = ("slot", "phase", "status", "bound", "of phase", "headroom", "ceiling")
    if rows:
        points.append(
            "`headroom`: time now ÷ time at the roofline, a bound and no promise. `ceiling`: speed-up of the phase "
            "if that slot alone ran at its roofline (Amdahl)."
        )
    caption = "What the incumbent's slots reach under the measured roofs; both axes logarithmic."
    return Section(
        "What could be won", (), (("roofline", caption),), _tables(Table("Targets", header, tuple(rows), 4)),
        tuple(points), tuple(missing),
    )  # fmt: skip


def attempts_section(report: Report) -> Section:
    log, attempts = report.get("attempt_log") or [], report.get("attempts") or {}
    if not log and not attempts:
        return Section("Attempts", missing=("The session ended before anything was attempted.",))
    outcomes = [o for o in OUTCOME_ORDER if any(counts.get(o) for counts in attempts.values())]
    by_proposer = [
        (proposer, *(f"{counts.get(o, 0):,}" for o in outcomes), f"{sum(counts.values()):,}")
        for proposer, counts in sorted(attempts.items())
    ]
    rejected = [row for row in log if row.get("outcome") and row["outcome"] != "faster"]
    proposers = sorted({row["proposer"] for row in rejected})
    reasons = Counter((row["outcome"], row.get("reason") or "no reason given", row["proposer"]) for row in rejected)
    totals = Counter((row["outcome"], row.get("reason") or "no reason given") for row in rejected)
    by_reason = [
        (outcome, reason, *(f"{reasons[outcome, reason, p]:,}" for p in proposers), f"{count:,}")
        for (outcome, reason), count in totals.most_common()
    ]
    open_ones = sum(1 for row in log if not row.get("outcome"))
    return Section(
        "Attempts",
        (),
        (("attempts", CAPTION_ATTEMPTS),),
        _tables(
            Table("By proposer and outcome", ("proposer", *outcomes, "all"), tuple(by_proposer), 1),
            Table("Rejected, by reason", ("outcome", "reason", *proposers, "all"), tuple(by_reason), 2),
        ),
        missing=(f"{open_ones} attempts were in flight when the session ended; they have no outcome.",)
        if open_ones
        else (),
    )


CAPTION_ATTEMPTS = (
    "Ratio of each attempt in the order tried, all on one scale. Filled: confirm, with its interval as a whisker. "
    "Hollow: search, which orders the search and proves nothing. Green faster, orange slower, grey inconclusive, red "
    "incorrect or invalid, purple suspect; a tick on the lower edge has no ratio. The line: the best confirmed so far."
)
OUTCOME_ORDER = ("faster", "slower", "inconclusive", "incorrect", "suspect", "invalid", "unmeasured", "interrupted")


def seconds_section(report: Report) -> Section:
    seconds = {phase: value for phase, value in (report.get("seconds") or {}).items() if value is not None}
    if not seconds:
        return Section("Where the session's time went", missing=("No phase was timed.",))
    total = sum(seconds.values())
    rows = [(phase, f"{value:.1f}", f"{value / total:.1%}" if total else "n/a") for phase, value in seconds.items()]
    rows.append(("all", f"{total:.1f}", "100.0%"))
    return Section(
        "Where the session's time went",
        ("By the session's own clock.",),
        tables=_tables(Table("Seconds by phase", ("phase", "seconds", "share"), tuple(rows), 1)),
        evidence=stands_on(report),
    )


def limits_section(report: Report) -> Section:
    points = [*LIMITS, *(report.get("limits") or [])]
    idle = [k["definition"] for k in report.get("accepted") or [] if not k.get("hits")]
    if idle:
        points.append(f"No hit in the final gate is recorded for: {', '.join(idle)}.")
    for kernel in report.get("accepted") or []:
        if wraps := [label for label in kernel.get("labels") or [] if label != "custom"]:
            points.append(f"{kernel['definition']} is no kernel of its own making: {', '.join(wraps)}.")
    if (tested := report.get("selftest")) and not tested.get("passed", True):
        points.append("The judge failed its own test on this machine: " + "; ".join(tested["failures"]))
    return Section("What this report does not say", points=tuple(points))


SECTIONS: Sequence[Callable[[Report], Section]] = (
    engine_section, fidelity_section, kernels_section, time_section, targets_section, attempts_section,
    seconds_section, limits_section,
)  # fmt: skip


def _tables(*tables: Table) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def _show(value: float | int | None, form: str, unit: str = "", missing: str = NOT_RECORDED) -> str:
    return missing if value is None else f"{value:{form}}{unit}"
