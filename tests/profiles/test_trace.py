from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernelwright.profiles.digest import digest_bytes
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
    assert len(trace) == 2
    assert trace.ts.tolist() == [5112512539183307, 1000]
    assert trace.dur.tolist() == [1, 2500]
    assert (trace.names, trace.name.tolist()) == (("aten::mm",), [0, 0])
    assert (trace.lanes, trace.tid.tolist()) == (((1, 2), (1, "stream 7")), [0, 1])
    assert trace.digest == digest_bytes(path.read_bytes())


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [EVENT]}).encode()
    zipped = read_trace(write(tmp_path / "zipped.json", gzip.compress(text)))
    plain = read_trace(write(tmp_path / "plain.json.gz", text))
    assert zipped.ts.tolist() == plain.ts.tolist()
    assert zipped.digest != plain.digest


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([EVENT]),
        "\ufeff" + json.dumps({"traceEvents": [EVENT]}),
        json.dumps({"traceEvents": [EVENT | {"ts": "12.5", "dur": "3"}]}),
        json.dumps({"traceEvents": [EVENT | {"args": {"Comms Id": 2**64 - 1}}]}),
    ],
    ids=["bare list", "byte order mark", "times as text", "integer over 64 bits in args"],
)
def test_other_exporters_are_read(tmp_path: Path, text: str) -> None:
    assert len(read_trace(write(tmp_path / "t.json", text))) == 1


WHOLE = json.dumps({"traceEvents": [EVENT, EVENT]})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (WHOLE[: len(WHOLE) // 2], "is cut"),
        (gzip.compress(WHOLE.encode(), mtime=0)[:-12], "the gzip stream has no end"),
        (b"\x1f\x8b" + b"nonsense" * 9, "not a sound gzip file"),
        ('{"planets": []}', "no `traceEvents`"),
        ('{"traceEvents": 3}', "not a trace"),
        ('{"traceEvents": [{"ph": "X", "ts": {}}]}', "not a trace"),
        ('{"traceEvents": []}', "no complete"),
        ('{"traceEvents": [{"ph": "X", "args": {"bw": -nan}}]}', "not sound JSON"),
        (b'{"traceEvents": [{"ph": "X", "name": "\x90\xfe"}]}', "not"),
        ('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1e300}]}', "does not fit"),
        ("hello", "not sound JSON"),
        ("7", "not a trace"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_a_remedy(
    tmp_path: Path, content: bytes | str, complaint: str
) -> None:
    path = write(tmp_path / "broken.json", content)
    with pytest.raises(BrokenInput, match=complaint) as caught:
        read_trace(path)
    assert "broken.json" in caught.value.message
    assert caught.value.remedy
    assert caught.value.exit_code == 4


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="No such file"):
        read_trace(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "name", ["vllm_rocm_decode_graph", "h100_qwen_eager", "mi210_gpu_only", "cuda_ddp_nccl", "cpu_only"]
)
def test_kernel_times_of_recorded_traces_are_exact(recorded_traces: Path, name: str) -> None:
    right = json.loads((recorded_traces / "ANSWERS.json").read_text())[f"{name}.json.gz"]
    trace = read_trace(recorded_traces / f"{name}.json.gz")
    if "kernel" not in trace.categories:
        assert right["kernels"] == 0
        return
    kernels = trace.category == trace.categories.index("kernel")
    assert (int(kernels.sum()), int(trace.dur[kernels].sum())) == (right["kernels"], right["kernel_ns"])


def test_every_malformed_recording_is_read_or_refused_never_a_traceback(recorded_traces: Path) -> None:
    files = [p for p in sorted((recorded_traces / "malformed").glob("*.json*")) if "truth" not in p.name]
    assert len(files) > 15
    for path in files:
        try:
            assert len(read_trace(path)) > 0
        except BrokenInput as error:
            assert path.name in error.message and error.remedy
