"""GPU MODE: nested inputs are taken apart, tests become workloads, and a submission computes the task."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import Phase, given, settings

from kernelwright.kernels.formats import gpu_mode, gpu_mode_writing
from kernelwright.kernels.formats.imported import write_files
from kernelwright.kernels.formats.table import read_any
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse
from tests.kernels.formats.sampling import SAMPLES, draw_inputs, outputs_of, probe_here, problems
from tests.kernels.formats.test_flashinfer_trace import RESULTS

FOLDER = SAMPLES / "gpu_mode/row_scale"


def test_a_task_is_read_with_its_axes_named_after_its_specs() -> None:
    found = read_any(FOLDER, probe_here)
    problem = found.problem()
    definition = problem.definition
    assert definition.axes["rows"].value is None and definition.axes["hidden"].value == 24
    assert [w.axes for w in problem.workloads] == [{"rows": 5}, {"rows": 8}, {"rows": 64}]
    assert problem.timed_axes == {"rows": 64}
    assert list(definition.inputs) == ["data_0", "scale", "offset", "data_2", "data_3"]
    assert draw_inputs(problem)["offset"] == 0.5
    assert any("written in place" in note.why and note.what == "data_3" for note in found.notes)


def test_a_submission_computes_the_task_and_leaves_its_inputs_alone() -> None:
    found = read_any(FOLDER, probe_here)
    inputs = draw_inputs(found.problem())
    before = {n: v.clone() for n, v in inputs.items() if isinstance(v, torch.Tensor)}
    (expected,) = outputs_of(found.problem().definition.reference, inputs)
    (result,) = outputs_of(found.candidates[0].sources[0].content, inputs)
    by_hand = inputs["data_0"] * inputs["scale"][:, None] + 0.5 + inputs["data_0"][inputs["data_2"]]
    assert torch.allclose(expected, by_hand, atol=1e-5) and torch.allclose(result, by_hand, atol=1e-5)
    assert all(torch.equal(before[n], inputs[n]) for n in before)


def edited(tmp_path: Path, file: str, old: str, new: str) -> Path:
    shutil.copytree(FOLDER, tmp_path / "t")
    path = tmp_path / "t" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("file", "old", "new", "word"),
    [
        ("task.yml", "lang: py", "lang: cu", "lang is cu"),
        ("task.yml", "tests:", "tests: [", "no YAML"),
        ("task.yml", "ranking_by: geom", "ranking_by: best", "ranking_by"),
        (
            "task.yml",
            "{name: reference.py, source: reference.py}",
            "{name: other.py, source: task.py}",
            "no reference.py",
        ),
        ("task.yml", "source: task.py", "source: gone.py", ""),
        ("task.yml", "hidden: 24, seed: 1}", "hidden: 24, seed: 1, depth: 2}", "depth"),
        ("reference.py", "def ref_kernel", "def kernel", "does not define ref_kernel"),
        (
            "reference.py",
            "return x, factors, index, torch.empty_like(x)",
            "return x, factors, index, torch.empty_like(x), *([1] if rows > 5 else [])",
            "structure|unpack",
        ),
        ("reference.py", "from task import", "from nowhere import", "nowhere"),
    ],
)
def test_a_broken_task_is_refused(tmp_path: Path, file: str, old: str, new: str, word: str) -> None:
    folder = edited(tmp_path, file, old, new)
    if not word:
        assert gpu_mode.read_problem(folder, probe_here).problems, "a file beside task.yml under its own name will do"
        return
    with pytest.raises(BrokenInput, match=word):
        gpu_mode.read_problem(folder, probe_here)


def test_a_submission_needs_its_task() -> None:
    with pytest.raises(WrongUse, match="name its task"):
        read_any(FOLDER / "submission.py", probe_here)


def test_a_task_of_theirs_is_written_back_as_it_was() -> None:
    found = read_any(FOLDER, probe_here)
    written = gpu_mode_writing.write(found.problem(), found.candidates)
    before, after = yaml.safe_load((FOLDER / "task.yml").read_text()), yaml.safe_load(written.files["task.yml"])
    assert {k: v for k, v in after.items() if k != "files"} == {k: v for k, v in before.items() if k != "files"}
    assert written.files["reference.py"] == (FOLDER / "reference.py").read_text().replace('"cuda"', '"cpu"')
    assert written.files["submission_0.py"] == (FOLDER / "submission.py").read_text()


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(problems(dtypes=("float32", "int64", "bool"), stored=False))
def test_ours_keeps_shapes_dtypes_and_results(problem: Problem) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(gpu_mode_writing.write(problem, ()), Path(folder))
        back = gpu_mode.read_problem(Path(folder), probe_here).problem()
    assert back.timed_axes.keys() <= problem.timed_axes.keys() | set(back.definition.axes)
    mine, theirs = problem.definition, back.definition
    shapes = [(mine.shape_of(n, problem.timed_axes), s.dtype) for n, s in mine.inputs.items()]
    assert shapes == [(theirs.shape_of(n, back.timed_axes), s.dtype) for n, s in theirs.inputs.items()]
    drawn = draw_inputs(back)
    own = dict(zip(mine.inputs, drawn.values(), strict=True))
    for a, b in zip(outputs_of(mine.reference, own), outputs_of(theirs.reference, drawn), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_says_what_happened_in_their_words(name: str) -> None:
    problem = gpu_mode.read_problem(FOLDER, probe_here).problem()
    lines = dict(line.split(": ", 1) for line in gpu_mode_writing.write_result(problem, RESULTS[name]).splitlines())
    assert lines["test-count"] == "2" and lines["test.0.spec"] == "rows: 5; hidden: 24; seed: 4242"
    assert lines["check"] == ("pass" if name == "faster" else "fail")
    assert ("benchmark.0.median" in lines) == (name == "faster")
