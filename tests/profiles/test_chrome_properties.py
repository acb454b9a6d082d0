"""Whatever a file holds and wherever it is cut, whole events are read once and nothing but BrokenInput is raised."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.profiles import jsonstream
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.jsontext import end_of_value, repair
from kernelwright.profiles.kineto import read_kineto

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['a"b', "}, {", "\\", "]}", "nan", "x: inf,"]
)
ARGS = st.dictionaries(st.sampled_from(["correlation", "External id", "stream"]), st.integers(0, 2**40)) | st.just(
    {"list": [{"a": 1}, {"b": "}, {"}]}
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from(["X", "X", "X", "i", "s", "M"]),
            "cat": st.sampled_from(["kernel", "cpu_op", "python_function", "", "strange"]),
            "name": NAMES,
            "pid": st.integers(0, 3) | st.just("CPU functions"),
            "tid": st.integers(0, 3),
            "ts": st.integers(0, 10**12).map(lambda ns: ns / 1000),
            "dur": st.integers(0, 10**6).map(lambda ns: ns / 1000),
            "args": ARGS,
        }
    ),
    max_size=30,
)
small = settings(max_examples=60, deadline=None)


def read(text: bytes) -> Events:
    return read_kineto(io.BytesIO(text))


def rows(trace: Events) -> list[tuple[Any, ...]]:
    pool = trace.pool
    found = [
        (pool.names[n], pool.lanes[lane], ts, dur)
        for table in (trace, trace.frames)
        for n, lane, ts, dur in zip(table.name, table.lane, table.ts.tolist(), table.dur.tolist(), strict=True)
    ]
    return sorted(found, key=repr)


def expected(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    whole = [e for e in events if e["ph"] == "X"]
    found = [(e["name"], (e["pid"], e["tid"]), round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in whole]
    return sorted(found, key=repr)


@given(EVENTS, st.integers(1, 400), st.sampled_from([None, 1, (",", ":")]), st.booleans(), st.booleans())
@small
def test_pieces_of_any_size_give_the_same_events(
    events: list[dict[str, Any]], piece: int, style: Any, bare: bool, packed: bool
) -> None:
    how: dict[str, Any] = {"separators": style} if isinstance(style, tuple) else {"indent": style}
    text = json.dumps(events if bare else {"a": {"b": ["}, {"]}, "traceEvents": events, "z": 1}, **how).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonstream, "PIECE_BYTES", piece)
        trace = read(gzip.compress(text) if packed else text)
    assert rows(trace) == expected(events) and trace.num_events == len(events)
    assert not trace.health.cut and not trace.health.dropped and not trace.health.repaired


@given(EVENTS, st.data())
@small
def test_of_a_cut_file_every_whole_event_is_read(events: list[dict[str, Any]], data: st.DataObject) -> None:
    events = [e for e in events if "list" not in e["args"]]
    texts = [json.dumps(e) for e in events]
    text = '{"traceEvents": [' + ", ".join(texts)
    at = data.draw(st.integers(0, len(text)))
    whole, end = 0, len('{"traceEvents": [')
    for one in texts:
        whole, end = (whole + 1, end + len(one) + 2) if end + len(one) <= at else (whole, len(text) + 1)
    try:
        trace = read(text[:at].encode())
    except BrokenInput:
        assert at == 0
        return
    assert trace.num_events == whole and trace.health.cut


@given(EVENTS, st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6))
@small
def test_damage_is_counted_or_refused_never_a_traceback(
    events: list[dict[str, Any]], damage: list[tuple[float, int]]
) -> None:
    text = bytearray(json.dumps({"traceEvents": events}).encode())
    for where, byte in damage:
        text[int(where * (len(text) - 1))] = byte
    try:
        trace = read(bytes(text))
    except BrokenInput as error:
        assert error.remedy
        return
    assert trace.num_events <= len(events) + len(damage)


@given(
    st.recursive(NAMES | st.integers() | st.booleans() | st.none(), lambda x: st.lists(x) | st.dictionaries(NAMES, x))
)
@small
def test_the_end_of_a_value_is_found(value: Any) -> None:
    text = json.dumps(value).encode()
    assert end_of_value(text + b" , 1]", 0) == len(text)
    if isinstance(value, list | dict):
        assert end_of_value(text[:-1], 0) is None


@given(st.dictionaries(NAMES, NAMES | st.integers() | st.lists(NAMES)))
@small
def test_sound_text_needs_no_repair(value: dict[str, Any]) -> None:
    for text in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()):
        mended = repair(text)
        assert json.loads(mended.text) == value and not mended.faults


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        (b'{"a": nan, "b": [-inf, Infinity]}', {"a": None, "b": [None, None]}),
        (b'{"a": "C:\\code\\_x", "b": "\\\\n"}', {"a": "C:\\code\\_x", "b": "\\n"}),
        (b'{"a": "x\x01y"}', {"a": "x?y"}),
        (b'{"a": "\x90"}', {"a": "\ufffd"}),
    ],
)
def test_what_can_be_told_is_mended_and_counted(broken: bytes, mended: Any) -> None:
    found = repair(broken)
    assert json.loads(found.text) == mended and sum(found.faults.values()) >= 1
