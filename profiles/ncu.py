"""Read a CSV of Nsight Compute: what one kernel did and what the device could have done, from hardware counters.

Sources of the format: `ncu --csv --page details` with the columns `Metric Name`, `Metric Unit`, `Metric Value`, where
units are chosen row by row, numbers carry thousands separators and rules stand between metrics; and `--page raw` with
one row for each launch, one column for each metric, and a second row of units.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.redact import redact

REMEDY = "name a CSV of `ncu --csv --page details` (or raw), with --set full or the section SpeedOfLight_RooflineChart"
_NEEDED = frozenset({"Kernel Name", "Metric Name", "Metric Unit", "Metric Value"})
_RAW = frozenset({"ID", "Kernel Name"})
_SCALES = {
    "": 1.0, "%": 1.0, "inst": 1.0, "cycle": 1.0, "inst/cycle": 1.0, "byte/cycle": 1.0, "byte": 1.0, "byte/block": 1.0,
    "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "byte/s": 1.0, "kbyte/s": 1e3, "mbyte/s": 1e6,
    "gbyte/s": 1e9, "tbyte/s": 1e12, "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3,
    "s": 1.0, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0, "cycle/s": 1.0, "cycle/nsecond": 1e9,
    "cycle/usecond": 1e6, "byte/second": 1.0, "gbyte/second": 1e9, "mbyte/second": 1e6, "tbyte/second": 1e12,
}  # fmt: skip
"""Into bytes, seconds, Hz; units that are not here stay as they are and are only for show."""


class KernelCounters(BaseModel, frozen=True, extra="forbid"):
    """One launch of a kernel under Nsight Compute. None: the metric is not in the file."""

    name: str
    seconds: float | None
    """Duration under ncu's own clocks, which are locked by default: not the duration in an engine."""
    dram_bytes: float | None
    dram_bytes_per_s: float | None
    dram_share: float | None
    """Fraction of the device's peak DRAM throughput."""
    compute_share: float | None
    """Fraction of the peak of the busiest pipe."""
    fp32_flops_per_s: float | None
    """Multiply-adds count twice."""
    peak_dram_bytes_per_s: float | None
    peak_fp32_flops_per_s: float | None
    advice: tuple[str, ...] = ()
    """What ncu's rules say."""

    @property
    def headroom(self) -> float | None:
        """How many times faster at the nearer of both roofs; None without their shares."""
        shares = [share for share in (self.dram_share, self.compute_share) if share is not None and share > 0]
        return 1.0 / max(shares) if shares else None

    @property
    def bound(self) -> str:
        """Which roof is nearer: `memory`, `compute`, `unknown`."""
        if self.dram_share is None or self.compute_share is None:
            return "unknown"
        return "memory" if self.dram_share >= self.compute_share else "compute"


def is_ncu_csv(text: str) -> bool:
    """Return whether the beginning `text` of a file holds a header of Nsight Compute."""
    return _find_header(text.splitlines()) is not None


def _find_header(lines: list[str]) -> tuple[int, bool] | None:
    """Return (the header's line, whether it is of the raw page); ncu may talk before it."""
    for i, line in enumerate(lines[:200]):
        names = set(next(csv.reader([line]), []))
        if names >= _NEEDED:
            return i, False
        if names >= _RAW and any("__" in name and "." in name for name in names):
            return i, True
    return None


_Launch = tuple[str, str]
"""(which, kernel)"""


def read_ncu(text: str) -> tuple[KernelCounters, ...]:
    """Return the counters of each launch in the CSV `text`, in the file's order. Raises BrokenInput without any."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    header = _find_header(lines)
    if header is None:
        raise BrokenInput("no header of an Nsight Compute CSV is in this file", REMEDY)
    advice: dict[_Launch, list[str]] = defaultdict(list)
    rows = csv.DictReader(iter(lines[header[0] :]))
    try:
        launches = _read_raw(rows) if header[1] else _read_details(rows, advice)
    except csv.Error as error:
        raise BrokenInput(f"a CSV that cannot be read: {error}", REMEDY) from error
    if not launches:
        raise BrokenInput("the Nsight Compute CSV holds no metric", REMEDY)
    return tuple(_counters(name, metrics, advice[i, name]) for (i, name), metrics in launches.items())


def _read_details(rows: Iterable[dict[str, str]], advice: dict[_Launch, list[str]]) -> dict[_Launch, dict[str, float]]:
    launches: dict[_Launch, dict[str, float]] = defaultdict(dict)
    file = 0
    for row in rows:
        file += row.get("ID") == "ID"  # the header of a second file: its ids begin again
        key = (f"{file}/{row.get('ID') or ''}", row.get("Kernel Name") or "")
        value = _value(row.get("Metric Value") or "", row.get("Metric Unit") or "")
        if value is not None and row.get("Metric Name"):
            launches[key].setdefault(row["Metric Name"], value)
        if row.get("Rule Description"):
            advice[key].append(redact(row["Rule Description"]))
    return launches


def _read_raw(rows: Iterable[dict[str, str]]) -> dict[_Launch, dict[str, float]]:
    """Return the metrics of each launch; without a row of units only shares, which need none."""
    units: dict[str, str] = {}
    launches: dict[_Launch, dict[str, float]] = {}
    for number, row in enumerate(rows):
        texts = {name: text for name, text in row.items() if isinstance(name, str) and isinstance(text, str)}
        if texts.get("ID") == "ID":
            if any(name != text for name, text in texts.items()):
                raise BrokenInput("two CSVs with other columns in one file", "name them one by one")
            units = {}
        elif not texts.get("ID"):
            units = texts
        else:
            known = {name: text for name, text in texts.items() if "__" in name and (units or ".pct_" in name)}
            values = {name: _value(text, units.get(name, "")) for name, text in known.items()}
            found = {name: value for name, value in values.items() if value is not None}
            if found:
                launches[str(number), texts.get("Kernel Name", "")] = found
    return launches


def _value(text: str, unit: str) -> float | None:
    """Return the number in base units; None where ncu writes `n/a` or `nan`."""
    try:
        value = float(text.replace(",", "")) * _SCALES.get(unit.strip().lower(), 1.0)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _counters(name: str, metrics: Mapping[str, float], advice: list[str]) -> KernelCounters:
    def first(*names: str) -> float | None:
        return next((metrics[n] for n in names if n in metrics), None)

    seconds = first("Duration", "gpu__time_duration.sum")
    dram = first("dram__bytes.sum")
    if dram is None and "dram__bytes_read.sum" in metrics:
        dram = metrics["dram__bytes_read.sum"] + metrics.get("dram__bytes_write.sum", 0.0)
    sm = first("sm__cycles_elapsed.avg.per_second", "SM Frequency")
    ops = first("Predicated-On FFMA Operations Per Cycle")
    if ops is None:
        fma = first(
            "Predicated-On FFMA Thread Instructions Executed Per Cycle",
            "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
            "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
        )
        ops = None if fma is None else 2 * fma
    for instruction in ("FADD", "FMUL"):
        single = first(
            f"Predicated-On {instruction} Thread Instructions Executed Per Cycle",
            f"smsp__sass_thread_inst_executed_op_{instruction.lower()}_pred_on.sum.per_cycle_elapsed",
        )
        ops = ops if ops is None or single is None else ops + single
    peak_ops = first("Theoretical Predicated-On FFMA Operations")
    if peak_ops is None:
        peak_fma = first(
            "Theoretical Predicated-On FFMA Thread Instructions Executed",
            "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
        )
        peak_ops = None if peak_fma is None else 2 * peak_fma
    peak_bytes = first("Theoretical DRAM Bytes Accessible", "dram__bytes.sum.peak_sustained")
    dram_hz = first("dram__cycles_elapsed.avg.per_second", "DRAM Frequency")
    memory_share = first(
        "DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    )  # fmt: skip
    compute_share = first("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed")
    rate = first("DRAM Bandwidth", "dram__bytes.sum.per_second")
    return KernelCounters(
        name=redact(name),
        seconds=seconds,
        dram_bytes=dram,
        dram_bytes_per_s=rate if rate is not None else dram / seconds if dram is not None and seconds else None,
        dram_share=None if memory_share is None else memory_share / 100,
        compute_share=None if compute_share is None else compute_share / 100,
        fp32_flops_per_s=None if ops is None or sm is None else ops * sm,
        peak_dram_bytes_per_s=None if peak_bytes is None or dram_hz is None else peak_bytes * dram_hz,
        peak_fp32_flops_per_s=None if peak_ops is None or sm is None else peak_ops * sm,
        advice=tuple(advice),
    )
