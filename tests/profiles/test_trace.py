from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.trace import read_trace

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 5112512539183.307, "dur": 0.001}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_times_are_exact_nanoseconds_and_names_and_threads_are_shared(tmp_path: Path) -> None:
    second = EVENT | {"tid": "stream 7", "ts": 1, "dur": 2.5}
    path = write(tmp_path / "t.json", json.dumps({"traceEvents": [EVENT, {"ph": "i", "name": "instant"}, second]}))
    trace = read_trace(path)
    assert len(trace) == 2 and trace.num_events == 3
    assert trace.ts.tolist() == [5112512539183307, 1000]
    assert trace.dur.tolist() == [1, 2500]
    assert [trace.pool.names[i] for i in trace.name] == ["aten::mm", "aten::mm"]
    assert [trace.pool.lanes[i] for i in trace.lane] == [(1, 2), (1, "stream 7")]


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("1715580000000120.251", 1715580000000120251),
        ('"1715580000000120.251"', 1715580000000120251),
        ("1623143089861237", 1623143089861237000),
        ("6520618853487.683", 6520618853487683),
        ("-0.5", -500),
        ("1e3", 1000000),
    ],
)
def test_no_time_loses_a_nanosecond(tmp_path: Path, ts: str, ns: int) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "HERE", "dur": 1.001}
    text = json.dumps({"traceEvents": [event]}).replace('"HERE"', ts)
    trace = read_trace(write(tmp_path / "t.json", text))
    assert (trace.ts.tolist(), trace.dur.tolist()) == ([ns], [1001])


@pytest.mark.parametrize("time", ["1e300", '"soon"', "null", "[1]"])
def test_an_event_whose_time_fits_no_clock_is_left_out_and_counted(tmp_path: Path, time: str) -> None:
    text = json.dumps({"traceEvents": [EVENT, EVENT | {"dur": "HERE"}]}).replace('"HERE"', time)
    trace = read_trace(write(tmp_path / "t.json", text))
    assert len(trace) == 1 and list(trace.health.dropped.values()) == [1]


def test_ids_of_any_size_and_kind_are_read(tmp_path: Path) -> None:
    ids = [2**64, -(2**63), "7", "x", None, 9]
    events = [EVENT | {"args": {"correlation": number, "External id": number}} for number in ids]
    trace = read_trace(write(tmp_path / "t.json", json.dumps({"traceEvents": events})))
    assert trace.correlation.tolist() == trace.external.tolist() == [0, 0, 7, 0, 0, 9]


def test_values_too_deep_to_decode_cost_their_event_alone(tmp_path: Path) -> None:
    deep = "[" * 20000 + "]" * 20000
    text = json.dumps({"deviceProperties": 0, "traceEvents": [EVENT, EVENT | {"args": {"a": "HERE"}}, EVENT]})
    trace = read_trace(write(tmp_path / "t.json", text.replace(": 0,", f": {deep},").replace('"HERE"', deep)))
    assert len(trace) >= 2 and not trace.health.cut


@pytest.mark.parametrize("count", [5, 8, 60, 20_000])
@pytest.mark.parametrize("broken", [False, True])
def test_lists_of_objects_in_an_event_cost_nothing(tmp_path: Path, count: int, broken: bool) -> None:
    """Wherever a piece ends: also where one event is longer than a piece, or one of the others is broken."""
    inner = [{"a": 1, "b": "x" * 20}] * count
    event = json.dumps(EVENT | {"args": {"extra": inner, "more": [{"c": 1}]}})
    texts = [event] * max(2_000_000 // len(event), 3)
    if broken:
        texts[len(texts) // 2] = event.replace('"aten::mm"', '"aten::"mm"')
    path = write(tmp_path / "t.json", '{"traceEvents": [' + ", ".join(texts) + '], "z": 1}')
    trace = read_trace(path)
    assert len(trace) == len(texts) and not trace.health.cut and not trace.health.notes
    assert not trace.health.dropped and bool(trace.health.repaired) == broken


@pytest.mark.parametrize(("ts", "dur"), [("1e30000000", "1"), ("1", "1e400"), ("1", "4.5e15"), ("1" * 5000, "1")])
def test_numbers_that_no_clock_shows_are_left_out(tmp_path: Path, ts: str, dur: str) -> None:
    odd = json.dumps(EVENT | {"ts": 7, "dur": 8}).replace('"ts": 7', f'"ts": {ts}').replace('"dur": 8', f'"dur": {dur}')
    trace = read_trace(write(tmp_path / "t.json", f'{{"traceEvents": [{json.dumps(EVENT)}, {odd}]}}'))
    assert trace.dur.tolist() == [1] and sum(trace.health.dropped.values()) == 1


def test_halves_of_the_old_profiler_are_counted_once(tmp_path: Path) -> None:
    half = {"name": "f", "pid": "CUDA functions", "tid": 1}
    events = [half | {"ph": "B", "ts": 1}, half | {"ph": "E", "ts": 3}, half | {"ph": "X", "ts": 5, "dur": 1}]
    trace = read_trace(write(tmp_path / "t.json", json.dumps(events)))
    assert trace.kinds == {"None": 3} and trace.is_kernel.tolist() == [True, True]


def test_thousands_of_small_header_keys_are_read_in_one_go(tmp_path: Path) -> None:
    keys = "".join(f'"k{i}": {i}, ' for i in range(20_000))
    text = '{"big": "' + "x" * 5_000_000 + '", ' + keys + '"traceEvents": [' + json.dumps(EVENT) + "]}"
    trace = read_trace(write(tmp_path / "t.json", text))
    assert len(trace) == 1 and len(trace.health.unread_blocks) == 20_001


def test_thousands_of_categories_are_counted(tmp_path: Path) -> None:
    events = [EVENT | {"cat": f"kind {i}"} for i in range(6000)]
    trace = read_trace(write(tmp_path / "t.json", json.dumps({"traceEvents": events})))
    assert trace.num_events == 6000 == sum(trace.health.unknown_categories.values())


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [EVENT]}).encode()
    zipped = read_trace(write(tmp_path / "zipped.json", gzip.compress(text)))
    plain = read_trace(write(tmp_path / "plain.json.gz", text))
    assert zipped.ts.tolist() == plain.ts.tolist()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([EVENT]),
        "\ufeff" + json.dumps({"traceEvents": [EVENT]}),
        json.dumps({"traceEvents": [EVENT | {"ts": "12.5", "dur": "3"}]}),
        json.dumps({"traceEvents": [EVENT | {"args": {"Comms Id": 2**64 - 1}}]}),
        json.dumps({"traceEvents": [EVENT], "metadata": {"stack": [{"a": "}, {"}, {"b": 1}]}}),
        json.dumps({"metadata": {"stack": [{"a": "}, {"}, {"b": 1}]}, "traceEvents": [EVENT]}),
    ],
    ids=[
        "bare list",
        "byte order mark",
        "times as text",
        "integer over 64 bits in args",
        "block behind",
        "block before",
    ],
)
def test_other_exporters_are_read(tmp_path: Path, text: str) -> None:
    trace = read_trace(write(tmp_path / "t.json", text))
    assert len(trace) == 1 and not trace.health.cut and not trace.health.dropped


def test_an_arrow_that_is_a_whole_event_is_one_without_arguments(tmp_path: Path) -> None:
    arrow = EVENT | {"cat": "ac2g", "args": {"correlation": 7}}
    trace = read_trace(write(tmp_path / "t.json", json.dumps({"traceEvents": [arrow, EVENT]})))
    assert len(trace) == 2 and trace.kinds["ac2g"] == 1


def test_events_of_unknown_categories_cost_no_others(tmp_path: Path) -> None:
    many = [EVENT | {"cat": "new_thing", "name": f"e{i}"} if i % 2 else EVENT for i in range(40_000)]
    trace = read_trace(write(tmp_path / "t.json", json.dumps({"traceEvents": many})))
    assert trace.num_events == len(many) == len(trace) and trace.health.unknown_categories == {"new_thing": 20_000}


WHOLE = json.dumps({"traceEvents": [EVENT, EVENT]})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        ('{"planets": []}', "without `traceEvents`"),
        ('{"traceEvents": 3}', "without `traceEvents`"),
        ('{"schema": "1.0.1", "nodes": [{}]}', "an execution trace, which has no times"),
        ("hello", "not a profile"),
        ("7", "not a profile"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_name_and_a_remedy(
    tmp_path: Path, content: bytes | str, complaint: str
) -> None:
    path = write(tmp_path / "broken.json", content)
    with pytest.raises(BrokenInput, match=complaint) as caught:
        read_trace(path)
    assert "broken.json" in caught.value.message
    assert caught.value.remedy
    assert caught.value.exit_code == (6 if complaint == "is empty" else 4)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (WHOLE[: len(WHOLE) - 20], 1),
        (WHOLE[:-2], 2),
        (gzip.compress((WHOLE + " " * 5000).encode(), mtime=0)[:-12], 2),
        ('{"schemaVersion": 1, "deviceProperties": [', 0),
    ],
    ids=["in an event", "behind the last event", "in the packed stream", "in the header"],
)
def test_of_a_cut_file_what_is_whole_is_read_and_said(tmp_path: Path, content: bytes | str, rows: int) -> None:
    trace = read_trace(write(tmp_path / "cut.json", content))
    assert len(trace) == rows and trace.health.cut


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="No such file"):
        read_trace(tmp_path / "absent.json")
    with pytest.raises(BrokenInput, match="is a folder"):
        read_trace(tmp_path)
