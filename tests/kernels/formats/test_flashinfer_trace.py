"""FlashInfer-Trace: ours goes there and back unchanged, theirs is read whole, and their own models accept ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.formats import flashinfer_trace as fib
from kernelwright.kernels.formats.imported import write_files
from kernelwright.kernels.formats.result import Judged, Result
from kernelwright.kernels.formats.traces import write_traces
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse
from tests.kernels.formats.sampling import (
    SAMPLES,
    candidates,
    definitions,
    draw_inputs,
    outputs_of,
    probe_here,
    problems,
)

DATASET = SAMPLES / "flashinfer_trace"
NAME = "scaled_rmsnorm_h64"
SLOW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
PEER = os.environ.get("KERNELWRIGHT_PEER_SITE", "")
"""site-packages of an environment with flashinfer-bench 0.1.2 and pydantic, for a python of this version."""


@SLOW
@given(st.data())
def test_ours_goes_there_and_back_unchanged(data: st.DataObject) -> None:
    problem = data.draw(problems())
    mine = data.draw(st.lists(candidates(problem.definition.name), max_size=3, unique_by=lambda c: c.model_dump_json()))
    with tempfile.TemporaryDirectory() as folder:
        write_files(fib.write(problem, mine), Path(folder))
        back = fib.read(Path(folder), probe_here)
    assert back.problems == (problem,)
    assert sorted(c.model_dump_json() for c in back.candidates) == sorted(c.model_dump_json() for c in mine)


@SLOW
@given(definitions())
def test_a_definition_needs_no_sidecar(definition: Definition) -> None:
    problem = Problem.model_validate(
        {**load().model_dump(), "definition": definition, "workloads": (), "timed_axes": {}}
    )
    (text,) = [t for n, t in fib.write(problem, ()).files.items() if n.startswith("definitions/")]
    assert fib.to_definition(fib.TheirDefinition.model_validate_json(text), "here") == definition


def load() -> Problem:
    return fib.read(DATASET, probe_here).problem()


def test_a_dataset_is_read_whole() -> None:
    found = fib.read(DATASET, probe_here)
    problem = found.problem()
    assert problem.timed_axes == {"rows": 48}, "the largest workload is timed"
    assert [w.axes["rows"] for w in problem.workloads] == [3, 48]
    assert len(found.candidates) == 4 and len(found.unmeasured) == 1
    (why,) = found.unmeasured.values()
    assert "Triton" in why
    told = {note.what for note in found.notes}
    assert "builtin_torch.description" in told and f"{NAME}.constraints" in told


@pytest.mark.parametrize("solution", ["fused_torch", "builtin_torch"])
def test_python_solutions_of_every_style_compute_the_reference(solution: str) -> None:
    found = fib.read(DATASET, probe_here)
    (candidate,) = [c for c in found.candidates if c.notes.endswith(solution)]
    inputs = draw_inputs(found.problem())
    (expected,) = outputs_of(found.problem().definition.reference, inputs)
    (result,) = outputs_of(candidate.sources[0].content, inputs)
    assert inputs["eps"] == 1e-5, "the scalar every workload names"
    assert float((expected - result).abs().max()) < 1e-5


def copy(tmp_path: Path) -> Path:
    shutil.copytree(DATASET, tmp_path / "set")
    return tmp_path / "set"


def test_fields_outside_the_schema_are_reported(tmp_path: Path) -> None:
    root = copy(tmp_path)
    path = root / "definitions/norm" / f"{NAME}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "owner": "me"}))
    assert any(n.kind == "lost" and n.what == f"{NAME}.owner" for n in fib.read(root, probe_here).notes)


def test_a_sidecar_of_another_text_is_not_believed(tmp_path: Path) -> None:
    problem = load()
    write_files(fib.write(problem, ()), tmp_path)
    path = tmp_path / "definitions/norm" / f"{NAME}.json"
    path.write_text(path.read_text().replace("1e-05", "1e-03"))
    back = fib.read(tmp_path, probe_here).problem()
    assert "eps == 0.001" in [c.replace("1e-03", "0.001") for c in back.definition.constraints]
    assert any(n.what == f"{NAME} inputs" for n in fib.read(tmp_path, probe_here).notes), "posed anew"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"axes": {}}, "unknown axis"),
        ({"reference": "def walk(x):\n    return x\n"}, "does not define run"),
        ({"reference": "def run(x, w, eps:\n"}, "not valid python"),
        ({"reference": "def run(x, w, eps):\n    return (x[:1],)\n"}, "the definition says"),
        ({"reference": "import torch\ndef run(x, w, eps):\n    return (x + torch.rand(()),)\n"}, "other results"),
        ({"reference": "def run(x, w, eps):\n    return (x / 0,)\n"}, "not finite"),
        ({"outputs": {"x": {"shape": ["rows"], "dtype": "float32"}}}, "both input and output"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float8_e4m3fn"}}}, "unknown dtype"),
        ({"name": ""}, "at least 1"),
    ],
)
def test_a_broken_definition_is_refused_with_its_reason(tmp_path: Path, change: dict[str, object], word: str) -> None:
    root = copy(tmp_path)
    path = root / "definitions/norm" / f"{NAME}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BrokenInput, match=word):
        fib.read(root, probe_here)


def test_a_workload_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    root = copy(tmp_path)
    path = root / "workloads/norm" / f"{NAME}.jsonl"
    stored = '{"type": "safetensors", "path": "../secret", "tensor_key": "a"}'
    path.write_text(path.read_text().replace('{"type": "random"}', stored, 1))
    with pytest.raises(BrokenInput, match="leaves the folder"):
        fib.read(root, probe_here)


def test_names_cannot_lead_out_of_the_output(tmp_path: Path) -> None:
    problem = load()
    evil = Definition.model_validate({**problem.definition.model_dump(), "op_type": "../../up"})
    written = fib.write(Problem.model_validate({**problem.model_dump(), "definition": evil}), ())
    with pytest.raises(BrokenInput, match="leads out"):
        write_files(written, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_unless_told(tmp_path: Path) -> None:
    written = fib.write(load(), ())
    write_files(written, tmp_path)
    with pytest.raises(WrongUse, match="exists already"):
        write_files(written, tmp_path)
    write_files(written, tmp_path, force=True)


def result(outcome: str, *evaluations: Judged, **more: object) -> Result:
    return Result.model_validate(
        {"candidate": "fused_torch", "outcome": outcome, "reason": "for a reason", "evaluations": evaluations,
         "hardware": "a CPU", "timestamp": "2026-11-29T12:00:00+00:00", "verdict": "0" * 64, "isolation": "L3", **more}
    )  # fmt: skip


GOOD = Judged(
    workload="6b1f0c50-0001-4d8e-9a51-1d1c6c7f0001", status="PASSED", max_relative_error=0.1, max_absolute_error=0.2
)
BAD = GOOD.model_copy(update={"status": "INCORRECT_NUMERICAL"})
RESULTS = {
    "faster": result("faster", GOOD, latency_ms=1.0, reference_ms=2.0, ratio=2.0, low=1.9, high=2.1, num_pairs=60),
    "incorrect": result("incorrect", GOOD, BAD),
    "invalid": result("invalid", GOOD, Judged(workload="run", status="RUNTIME_ERROR", log="it fell over")),
    "no compile": result("invalid", Judged(workload="build", status="COMPILE_ERROR", log="missing ;")),
    "suspect": result("suspect", GOOD),
    "unmeasured": result("unmeasured"),
}


@pytest.mark.parametrize(
    ("name", "status"),
    [("faster", "PASSED"), ("incorrect", "INCORRECT_NUMERICAL"), ("invalid", "RUNTIME_ERROR"),
     ("no compile", "COMPILE_ERROR"), ("suspect", "RUNTIME_ERROR"), ("unmeasured", None)],
)  # fmt: skip
def test_a_candidate_that_failed_anywhere_has_no_passed_trace(name: str, status: str | None) -> None:
    lines = [json.loads(line) for line in write_traces(load(), RESULTS[name]).splitlines()]
    assert {line["evaluation"]["status"] for line in lines} == ({status} if status else set())
    for line in lines:
        assert ("performance" in line["evaluation"]) == (status == "PASSED")
        assert ("correctness" in line["evaluation"]) == (status in ("PASSED", "INCORRECT_NUMERICAL"))


VALIDATE = """
import sys, types, importlib.util, pathlib
site, root = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, site)
for name in ("flashinfer_bench", "flashinfer_bench.utils", "flashinfer_bench.data"):
    # the whole package wants the libraries of a GPU
    module = types.ModuleType(name)
    module.__path__ = [str(pathlib.Path(site) / name.replace(".", "/"))]
    sys.modules[name] = module
sys.modules["flashinfer_bench.utils"].dtype_str_to_torch_dtype = lambda text: text
sys.modules["flashinfer_bench.utils"].dtype_str_to_python_dtype = lambda text: text
from flashinfer_bench.data.definition import Definition
from flashinfer_bench.data.solution import Solution
from flashinfer_bench.data.trace import Trace
import json
count = 0
for folder, noun in (("definitions", Definition), ("solutions", Solution), ("workloads", Trace), ("traces", Trace)):
    for path in sorted((root / folder).rglob("*.json*")):
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            known = noun.model_validate_json(text)
            extra = set(json.loads(text)) - set(noun.model_fields)
            assert not extra, (path, extra)
            count += 1
print(count)
"""


def test_their_own_models_accept_what_we_write(tmp_path: Path) -> None:
    if not (Path(PEER) / "flashinfer_bench").is_dir() or not PEER:
        pytest.skip("flashinfer-bench 0.1.2 is not here: name its site-packages in KERNELWRIGHT_PEER_SITE")
    found = fib.read(DATASET, probe_here)
    write_files(fib.write(found.problem(), found.candidates), tmp_path)
    lines = "".join(write_traces(found.problem(), r) for r in RESULTS.values())
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/all.jsonl").write_text(lines)
    command = [sys.executable, "-I", "-S", "-c", VALIDATE, PEER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == 1 + 4 + 2 + len(lines.splitlines())


@pytest.mark.parametrize(
    ("constraint", "held"), [("rows >= 1", False), ("rows % 3 == 0", True), ("rows < hidden", True)]
)
def test_sizes_between_the_workloads_are_hidden_shapes_where_nothing_forbids_them(
    constraint: str, held: bool, tmp_path: Path
) -> None:
    shutil.copytree(DATASET, tmp_path / "d")
    path = next((tmp_path / "d/definitions").rglob("*.json"))
    text = json.loads(path.read_text())
    path.write_text(json.dumps({**text, "constraints": [*text["constraints"], constraint]}))
    ranges = fib.read(tmp_path / "d", probe_here).problem().ranges
    assert ranges == ({} if held else {"rows": AxisRange(low=3, high=48)})
