"""Every recorded trace gives exactly the right answers, in integer ns; so does every malformed one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.device_time import examine_times, measure_device
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.health import Health
from kernelwright.profiles.trace import read_trace

SHARED = Path(os.environ.get("KERNELWRIGHT_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TRACES = SHARED / "traces"
RAW = {"kernel_ns_raw", "kernel_ns_clipped", "kernels_with_zero_ts", "kernels_with_negative_dur"}
needs_traces = pytest.mark.skipif(
    not (TRACES / "ANSWERS.json").is_file(), reason="no recorded traces here; set KERNELWRIGHT_SHARED"
)


def load(path: Path) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text()) if path.is_file() else {}


ANSWERS = {
    name: right
    for name, right in load(TRACES / "ANSWERS.json").items()
    if name.endswith((".json", ".json.gz")) and "format" not in right
}
MALFORMED = load(TRACES / "malformed" / "ANSWERS.json")
TRUTHS = sorted((TRACES / "malformed").glob("*.truth.json")) if TRACES.is_dir() else []


@needs_traces
@pytest.mark.parametrize("name", ANSWERS)
def test_the_numbers_of_a_recorded_trace_are_exact(name: str) -> None:
    right = dict(ANSWERS[name])
    trace = read_trace(TRACES / name)
    device = measure_device(trace)
    health = examine_times(trace, trace.health)
    assert health == Health(unread_blocks=health.unread_blocks), "nothing of it is broken or unknown"
    assert [[k.name[:120], k.count, k.ns] for k in device.top[:5]] == right.pop("top5", [])
    assert dict(list(device.per_stream.items())[:8]) == right.pop("per_stream")
    assert right.pop("neg_dur", 0) == 0
    told = device.model_dump() | {
        "events": trace.num_events, "cats": trace.kinds, "py_frames": len(trace.frames),
        "flow_s": trace.flows.get("s", 0), "flow_f": trace.flows.get("f", 0),
    }  # fmt: skip
    assert {key: told[key] for key in right} == right


@needs_traces
@pytest.mark.parametrize("name", MALFORMED)
def test_the_numbers_of_a_malformed_trace_are_exact(name: str) -> None:
    right = {key: value for key, value in MALFORMED[name].items() if key != "bad"}
    path = TRACES / "malformed" / name
    if not path.stat().st_size:
        with pytest.raises(BrokenInput, match="empty"):
            read_trace(path)
        return
    trace = read_trace(path)
    device, health = measure_device(trace), examine_times(trace, trace.health)
    ops = trace.within(frozenset({"cpu_op"}))
    told = device.model_dump() | health.model_dump(include=RAW) | {
        "busy_ns": device.busy_kernel_ns,
        "kernels_with_no_launch": device.kernels_with_no_launch_event,
        "events_recoverable": trace.num_events,
        "python_frames": len(trace.frames),
        "cpu_ops": int(ops.sum()),
        "cpu_us": int(trace.dur[ops].sum()) // 1000,
        "slices": {trace.pool.names[n]: int(d) // 1000 for n, d in zip(trace.name, trace.dur, strict=True)},
    }  # fmt: skip
    right.pop("bytes_of_text", None)
    assert {key: told[key] for key in right} == right
    if "events_recoverable" in MALFORMED[name]:
        assert health.cut, "a report must say that the file is cut"


@needs_traces
@pytest.mark.parametrize("truth", TRUTHS, ids=lambda path: path.name.removesuffix(".json.gz.truth.json"))
def test_the_numbers_of_a_synthetic_fault_are_those_of_its_maker(truth: Path) -> None:
    right = json.loads(truth.read_text())
    trace = read_trace(truth.with_name(truth.name.removesuffix(".truth.json")))
    if trace.health.cut and right["defect"] != "bare-list-open":
        assert right["defect"].startswith("truncated")
        return
    device = measure_device(trace)
    told = (trace.num_events, device.kernels, device.kernel_ns, device.busy_kernel_ns, device.memops, device.memop_ns)
    assert told == tuple(right[k] for k in ("events", "kernels", "kernel_ns", "busy_ns", "memcpy", "memcpy_ns"))
