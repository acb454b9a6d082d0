"""The record of this machine's last selftest. Without a good one nothing may become a patch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import ValidationError

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.environment import harness_digest, host_digest
from kernelwright.sandbox.selftest_report import SelftestReport

DAY_S = 24 * 3600.0
REMEDY = "run `kernelwright selftest` on this machine, by itself"


def record_path() -> Path:
    """Return where the record lies: `$XDG_CACHE_HOME/kernelwright/selftest.json`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kernelwright" / "selftest.json"


def save_record(report: SelftestReport, path: Path | None = None) -> None:
    """Write the record whole or not at all."""
    path = path or record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(report.model_dump_json(indent=1, exclude={"failures"}), encoding="utf-8")
    fresh.replace(path)


def load_record(path: Path | None = None) -> SelftestReport | None:
    """Return the record, None where there is none that can be read."""
    try:
        return SelftestReport.model_validate_json((path or record_path()).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def find_fault(record: SelftestReport | None) -> str:
    """Return why `record` does not vouch for this machine's judge, '' when it does."""
    if record is None:
        return "the judge has not been tested on this machine"
    if record.harness != harness_digest():
        return "the judge has changed since it was tested on this machine"
    if record.host != host_digest():
        return "the judge was tested on another machine"
    return f"the judge failed its test on this machine: {record.failures[0]}" if record.failures else ""


def require_selftest(path: Path | None = None) -> SelftestReport:
    """Return the record that vouches for this judge on this machine. Raises EnvironmentLacks where there is none."""
    record = load_record(path)
    if fault := find_fault(record):
        raise EnvironmentLacks(fault, REMEDY)
    assert record is not None  # or there were a fault
    return record


def is_fresh(record: SelftestReport | None, within_s: float = DAY_S) -> bool:
    """Return whether `record` vouches for this judge and is of the last day."""
    return not find_fault(record) and record is not None and time.time() - record.finished < within_s
