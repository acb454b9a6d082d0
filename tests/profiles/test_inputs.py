"""Files of one profile, told apart by content; the commands' exit codes; the reports."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kernelwright.tui.cli import main
from tests.profiles.test_answers import TRACES, needs_traces
from tests.profiles.test_nsys import SUM_2026, export
from tests.profiles.test_ranks import AR
from tests.profiles.test_summary import FRAME, KERNEL, LAUNCH, STEP, with_id, write

CAPTURE = STEP | {"name": "capture_32_FULL"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main([*arguments, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out.splitlines()[-1]), said.err


def write_rank(folder: Path, rank: int, ts: float, world: int = 2) -> str:
    events = [with_id(LAUNCH, 9), with_id(KERNEL | {"name": AR, "ts": ts, "dur": 40 - ts}, 9)]
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}))
    return str(path)


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [
        ("empty", 6, "empty"), ("blank", 6, "empty"), ("rubbish", 4, "not a profile"), ("json", 4, "traceEvents"),
        ("folder", 4, "folder"), ("missing", 4, "No such file"), ("cut", 7, "cut"), ("no kernels", 8, "no work"),
        ("capture", 10, "captured"), ("ranks", 9, "twice"), ("worlds", 9, "sizes"), ("strangers", 2, "rank"),
    ],
)  # fmt: skip
def test_each_fault_has_a_sentence_a_remedy_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str, code: int, word: str
) -> None:
    path = tmp_path / "t.json"
    good = json.dumps({"traceEvents": [with_id(LAUNCH, 9), with_id(KERNEL, 9), STEP]})
    texts = {
        "empty": "", "blank": " \n", "rubbish": "cats\n", "json": '{"a": 1}', "cut": good[:-40],
        "no kernels": json.dumps({"traceEvents": [with_id(LAUNCH, 9), STEP]}),
        "capture": json.dumps({"traceEvents": [CAPTURE, with_id(LAUNCH | {"args": {"kernel": "k"}}, 9)]}),
    }  # fmt: skip
    files = [str(path)]
    if fault in texts:
        path.write_text(texts[fault])
    elif fault == "folder":
        path.mkdir()
    elif fault in ("ranks", "worlds"):
        (tmp_path / "b").mkdir()
        files = [write_rank(tmp_path, 0, 10), write_rank(tmp_path / "b", int(fault == "worlds"), 10, 4)]
    elif fault == "strangers":
        (tmp_path / "b").mkdir()
        files = [write(tmp_path, with_id(LAUNCH, 9), with_id(KERNEL, 9)), write(tmp_path / "b", with_id(KERNEL, 9))]
    got, record, said = run(capsys, "profile", *files)
    assert got == code and word in said and "Traceback" not in said
    assert len([line for line in said.splitlines() if line.strip()]) >= 2, "a sentence and a remedy"
    assert word in record["error"]["message"] and record["error"]["remedy"]
    if fault in ("cut", "no kernels", "capture"):
        assert {"device", "kernels", "targets", "health"} <= set(record), "what could be read is told all the same"


def test_ranks_of_one_run_are_put_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write_rank(tmp_path, 1, 30), write_rank(tmp_path, 0, 10)]
    code, record, _ = run(capsys, "profile", *files)
    assert code == 0 and [r["rank"] for r in record["ranks"]["ranks"]] == [0, 1]
    assert record["ranks"]["slowest"] == 1 and record["ranks"]["ranks"][0]["wait_ns"] == 20_000
    assert main(["profile", *files]) == 0 and "## Ranks" in capsys.readouterr().out


def test_the_trace_of_a_front_end_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = write(tmp_path, with_id(LAUNCH, 9), with_id(KERNEL, 9))
    front = tmp_path / "front.json"
    front.write_text(json.dumps({"traceEvents": [FRAME | {"cat": "cpu_op", "name": "aten::add"}]}))
    code, record, _ = run(capsys, "profile", str(front), worker)
    assert code == 0 and record["kernels"] == 1 and "front.json" in record["notes"][0]


def test_a_cpu_engine_s_front_end_is_the_one_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker, front = tmp_path / "rank0.json", tmp_path / "front.json"
    op = FRAME | {"cat": "cpu_op", "name": "aten::add"}
    step = FRAME | {"cat": "user_annotation", "name": "execute_context_1(5)_generation_0(0)"}
    worker.write_text(json.dumps({"traceEvents": [step, op]}))
    front.write_text(json.dumps({"traceEvents": [op, FRAME | {"cat": "user_annotation", "name": "asyncio.step"}]}))
    code, record, _ = run(capsys, "profile", str(front), str(worker))
    assert code == 0 and record["file"] == "rank0.json" and record["phases"]["prefill"]["steps"] == 1
    assert "front.json" in record["notes"][0]


def test_sums_have_null_where_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sums.csv"
    path.write_text(f'{SUM_2026}\n60.0,1200,3,400.0,400.0,1,2,0.1,"gemm<a, b>"\n')
    code, record, _ = run(capsys, "profile", str(path))
    assert code == 0 and (record["kernels"], record["kernel_ns"], record["busy_gpu_ns"]) == (3, 1200, None)
    assert record["targets"][0]["operation"] == "gemm" and main(["profile", str(path)]) == 0


def test_one_name_fits_all_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = export(tmp_path).rename(tmp_path / "report.json")
    code, record, _ = run(capsys, "profile", str(path))
    assert code == 0 and (record["device"], record["kernels"], record["memop_ns"]) == ("cuda", 1, 400)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_reports_hold_every_kernel_and_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "k<script>alert(1)</script>|x"
    module = FRAME | {"name": "nn.Module: LlamaMLP_3", "ts": 6, "dur": 7}
    path = write(tmp_path, STEP, FRAME, module, with_id(LAUNCH, 9), with_id(KERNEL | {"name": odd}, 9))
    html, table, text = tmp_path / "o.html", tmp_path / "o.csv", tmp_path / "o.md"
    assert main(["profile", path, "--html", str(html), "--csv", str(table), "--markdown", str(text)]) == 0
    page = _Page()
    page.feed(html.read_text())
    assert "script" not in page.tags and not page.links and page.tags.count("svg") >= 3
    assert "LlamaMLP" in html.read_text() and "decode" in html.read_text()
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["name"], row["ns"], row["least_ns"]) for row in rows] == [(odd, "4000", "")]
    assert "## Targets" in text.read_text() and "k&lt;script>" in text.read_text()


@pytest.mark.parametrize("option", ["--html", "--csv", "--markdown"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    path = write(tmp_path, with_id(LAUNCH, 9), with_id(KERNEL, 9))
    for out in (tmp_path, tmp_path / "nowhere" / "x"):
        assert main(["profile", path, option, str(out)]) == 2
        said = capsys.readouterr()
        assert "cannot write" in said.err and not said.out


def test_options_of_traces_without_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--traces", "/tmp"]) == 2 and "--url" in capsys.readouterr().err


def test_two_runs_are_compared_with_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def trace(name: str, us: float, steps: int) -> str:
        folder = tmp_path / name
        folder.mkdir()
        events: list[dict[str, object]] = []
        for i in range(steps):
            at = 100.0 * i
            events += [STEP | {"ts": at, "dur": 50}, with_id(LAUNCH | {"ts": at + 5}, i + 1)]
            events += [with_id(KERNEL | {"ts": at + 20, "dur": us, "name": f"triton_poi_fused_add_{len(name)}"}, i + 1)]
        return write(folder, *events)

    a, b, c = trace("a", 4, 2), trace("bb", 4.1, 5), trace("ccc", 6, 2)
    code, record, _ = run(capsys, "compare", a, b)
    assert code == 0 and record["per"] == "step" and record["ratio"] == pytest.approx(1.025)
    code, record, _ = run(capsys, "compare", a, c)
    assert code == 1 and record["slower"] and record["kernels"][0]["change"] == "slower"
    assert [k["name"] for k in record["kernels"]] == ["triton_poi_fused_add"], "its running number is no difference"
    assert main(["compare", a, c, "--tolerance", "60"]) == 0 and "within the 60 %" in capsys.readouterr().out
    assert main(["compare", a, str(tmp_path / "none.json")]) == 4
    assert main(["compare", a, c, "--tolerance", "-1"]) == 2


@needs_traces
@pytest.mark.parametrize(
    ("files", "code"),
    [
        (["vllm_rocm_decode_graph.json.gz", "vllm_rocm_decode_capture.json.gz"], 0),
        (["vllm_rocm_decode_capture.json.gz"], 10),
        (["cuda_cupti_ranges.json.gz"], 8),
        (["malformed/real_cut_at_700000_bytes.json.gz"], 7),
        (["vllm_cpu.json.gz"], 0),
        (["cpu_only.json.gz"], 0),
        (["rocprofv3_results.json.gz"], 0),
        (["nsys_csv/decode.cuda_gpu_kern_sum.csv", "ncu_csv/gemv.ncu.details.csv"], 0),
        ([f"dlrm_8rank/rank{i}.json.gz" for i in range(8)], 0),
    ],
)
def test_recorded_files_end_with_their_record(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: list[str], code: int
) -> None:
    got, record, _ = run(capsys, "profile", *(str(TRACES / name) for name in files))
    assert got == code
    named = (
        "device events kernels kernel_ns memops memop_ns busy_kernel_ns busy_gpu_ns gpu_span_ns streams "
        "same_stream_overlaps kernels_with_no_launch_event top phases unattributed_ns health targets"
    )
    assert set(named.split()) <= set(record)
    if "vllm_rocm_decode_graph.json.gz" in files:
        assert record["unattributed_ns"] == 0 and record["graphs"]["joined"] == 421
    if files == ["vllm_cpu.json.gz"]:
        assert record["device"] == "cpu" and sum(t["share"] for t in record["targets"]) == pytest.approx(1)
