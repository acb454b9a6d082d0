"""SOL-ExecBench: read and written as published; what it has no word for is in the report."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernelwright.kernels.formats import sol_execbench as sol
from kernelwright.kernels.formats.imported import candidate_key, write_files
from kernelwright.kernels.formats.traces import write_sol
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput
from tests.kernels.formats.sampling import SAMPLES, draw_inputs, outputs_of, probe_here, problems
from tests.kernels.formats.test_flashinfer_trace import RESULTS

FOLDER = SAMPLES / "sol_execbench"


def test_a_folder_is_read_with_its_expression_folded() -> None:
    found = sol.read(FOLDER, probe_here)
    problem = found.problem()
    assert problem.definition.axes["inter"].value == 128 and problem.timed_axes == {"tokens": 24}
    told = {note.what for note in found.notes if note.kind == "lost"}
    assert {"gated_silu_h32.hf_id", f"workload {problem.workloads[0].uuid}.tolerance"} <= told
    inputs = draw_inputs(problem)
    (expected,) = outputs_of(problem.definition.reference, inputs)
    (result,) = outputs_of(found.candidates[0].sources[0].content, inputs)
    assert float((expected - result).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("expression", "value"),
    [("hidden * 4", 128), ("(hidden + 2) // 3", 11), ("hidden / 5", None), ("hidden / 4", 8), ("tokens * 2", None),
     ("hidden // 0", None), ("hidden - 32", 0), ("__import__('os')", None), ("hidden ** 9", None), ("", None)],
)  # fmt: skip
def test_expressions_are_whole_number_arithmetic_of_const_axes(expression: str, value: int | None) -> None:
    assert sol.evaluate(expression, {"hidden": 32}) == value


def changed(tmp_path: Path, file: str, **change: object) -> Path:
    shutil.copytree(FOLDER, tmp_path / "p")
    path = tmp_path / "p" / file
    first = json.loads(path.read_text().splitlines()[0] if file.endswith("jsonl") else path.read_text())
    path.write_text(json.dumps({**first, **change}))
    return tmp_path / "p"


@pytest.mark.parametrize(
    ("file", "change", "word"),
    [
        ("definition.json", {"custom_inputs_entrypoint": "make"}, "custom_inputs_entrypoint"),
        ("definition.json", {"axes": {"tokens": {"type": "var"}, "inter": {"type": "expr", "expression": "tokens*2"}}},
         "no arithmetic of const axes"),
        ("workload.jsonl", {"axes": {"tokens": 3, "pages": 1}}, "unknown axes pages"),
        ("workload.jsonl", {"inputs": {"g": {"type": "custom"}}}, "type custom"),
        ("workload.jsonl", {"axes": {}}, "no value for tokens"),
        ("solution.json", {"sources": []}, "sources"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_is_refused(tmp_path: Path, file: str, change: dict[str, object], word: str) -> None:
    with pytest.raises(BrokenInput, match=word):
        sol.read(changed(tmp_path, file, **change), probe_here)


def test_a_gpu_solution_is_unmeasured_and_its_languages_are_told(tmp_path: Path) -> None:
    spec = json.loads((FOLDER / "solution.json").read_text())["spec"]
    folder = changed(tmp_path, "solution.json", spec={**spec, "languages": ["cute_dsl", "cuda_cpp"]})
    found = sol.read(folder, probe_here)
    assert "cute_dsl" in found.unmeasured[candidate_key(found.candidates[0])]
    assert any("languages" in note.what for note in found.notes)


@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_ours_keeps_what_the_report_does_not_name(data: st.DataObject) -> None:
    problem = data.draw(problems(dtypes=("float32", "int32", "bool"), stored=False))
    written = sol.write(problem, ())
    with tempfile.TemporaryDirectory() as folder:
        write_files(written, Path(folder))
        back = sol.read(Path(folder), probe_here).problem()
    definition = problem.definition
    assert (
        back.definition.model_copy(update={"tags": definition.tags, "constraints": definition.constraints})
        == definition
    )
    assert back.workloads == problem.workloads
    named = " ".join(note.what for note in written.notes)
    for field in ("tags", "constraints"):
        assert not getattr(definition, field) or field in named
    for field in set(Problem.model_fields) - {"schema_version", "target", "definition", "workloads"}:
        assert field.replace("timed_axes", "timed shape").replace("num_weight_sets", "contract") in named, field


def test_a_suspect_is_a_reward_hack_without_figures() -> None:
    problem = sol.read(FOLDER, probe_here).problem()
    (trace,) = json.loads(write_sol(problem, RESULTS["suspect"]))
    assert trace["evaluation"]["status"] == "REWARD_HACK" and "performance" not in trace["evaluation"]
    (passed,) = json.loads(write_sol(problem, RESULTS["faster"]))
    assert passed["evaluation"]["correctness"]["has_nan"] is False
