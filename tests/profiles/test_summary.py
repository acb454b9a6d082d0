"""The summary of a trace, as the command shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.tui.cli import main
from tests.profiles.test_answers import TRACES, needs_traces

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "dur": 4}
LAUNCH = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 1}
FRAME = {"ph": "X", "cat": "python_function", "name": "vllm/a.py(3): f", "pid": 1, "tid": 1, "ts": 5, "dur": 9}
STEP = {"ph": "X", "cat": "user_annotation", "name": "step[DECODE bs=2]", "pid": 1, "tid": 1, "ts": 4, "dur": 20}


def with_id(event: dict[str, object], number: int) -> dict[str, object]:
    return event | {"args": {"correlation": number}}


def write(folder: Path, *events: dict[str, object], **blocks: object) -> str:
    path = folder / "t.json"
    path.write_text(json.dumps({**blocks, "traceEvents": events}))
    return str(path)


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["profile", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])  # type: ignore[no-any-return]


def test_a_kernel_is_told_with_its_phase_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, STEP, FRAME, with_id(LAUNCH, 9), with_id(KERNEL, 9))
    told = show(capsys, path)
    assert (told["device"], told["events"], told["kernels"], told["kernel_ns"]) == ("cuda", 4, 1, 4000)
    assert told["phases"] == {"decode": {"steps": 1, "kernels": 1, "kernel_ns": 4000}}
    assert told["sources"] == [{"source": "vllm/a.py(3): f", "module": "", "kernels": 1, "kernel_ns": 4000}]
    assert told["targets"][0]["source"] == "vllm/a.py(3): f" and told["attributed"] == {"launch": 4000}
    assert told["unattributed_ns"] == 0 and told["top"] == [{"name": "k", "count": 1, "ns": 4000}]


@pytest.mark.parametrize("launch", [None, LAUNCH | {"name": "cudaGraphLaunch"}], ids=["no launch", "replay"])
def test_what_has_no_line_is_left_visibly_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launch: dict[str, object] | None
) -> None:
    launches = [with_id(launch, 9)] if launch else []
    told = show(capsys, write(tmp_path, STEP, FRAME, *launches, with_id(KERNEL, 9)))
    assert told["unattributed_ns"] == 4000 and told["replayed_ns"] == (4000 if launch else 0)
    assert list(told["phases"]) == ["decode" if launch else "before the window"]  # type: ignore[call-overload]


SECRETS = ["hf_abcdefghijklmnopqrstuvwx", "AKIAABCDEFGHIJKLMNOP", "hunter2-hunter2", "alice", "bob:pw"]


def test_no_planted_credential_reaches_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = [
        FRAME | {"name": f"/home/alice/run.py(3): token={SECRETS[0]}"},
        KERNEL | {"name": f"k<{SECRETS[1]}> PASSWORD=hunter2-hunter2 https://bob:pw@host/x"},
    ]
    path = write(
        tmp_path, with_id(LAUNCH, 9), named[0], with_id(named[1], 9), metadata={"env": {"HF_TOKEN": SECRETS[0]}},
        host_name="alice-box",
    )  # fmt: skip
    assert main(["profile", path]) == 0 and main(["profile", path, "--json"]) == 0
    told = capsys.readouterr().out
    assert "/home/user/run.py(3)" in told and "metadata" in told
    assert not [secret for secret in SECRETS if secret in told]


def test_a_cut_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(write(tmp_path, with_id(LAUNCH, 9), with_id(KERNEL, 9), STEP))
    path.write_text(path.read_text()[:-40])
    assert main(["profile", str(path)]) == 7
    assert "The file is cut" in capsys.readouterr().out


def test_ranges_within_each_other_are_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = STEP | {"name": "execute_context_0(sq0sk0)_generation_2(sq2sk9)", "ts": 8, "dur": 6}
    later = with_id(LAUNCH | {"ts": 16}, 10), with_id(KERNEL | {"ts": 30}, 10)
    told = show(capsys, write(tmp_path, STEP, inner, with_id(LAUNCH, 9), with_id(KERNEL, 9), *later))
    assert told["phases"] == {"decode": {"steps": 1, "kernels": 2, "kernel_ns": 8000}}


def test_a_trace_without_work_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", write(tmp_path)]) == 8
    assert "no work" in capsys.readouterr().err


@needs_traces
def test_the_record_of_a_recorded_trace_has_the_names_of_its_answers(capsys: pytest.CaptureFixture[str]) -> None:
    name = "vllm_rocm_decode_graph.json.gz"
    told = show(capsys, str(TRACES / name))
    right = json.loads((TRACES / "ANSWERS.json").read_text())[name]
    shared = set(told) & set(right)
    assert {"events", "kernels", "kernel_ns", "memops", "busy_kernel_ns", "busy_gpu_ns", "gpu_span_ns"} <= shared
    assert {key: told[key] for key in shared} == {key: right[key] for key in shared}
    assert told["device"] == "rocm" and told["replayed_ns"] == 10388482 == told["unattributed_ns"]
