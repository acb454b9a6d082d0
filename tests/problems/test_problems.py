"""The problems are fit to judge by: right answers are right, wrong ones wrong, and no null answer passes.

Each folder holds a problem in KernelBench's layout (`problem.py`: Model, get_inputs, get_init_inputs) and three
classes ModelNew that take the same state. `cheating.py` is parsed here and never run: it is for cages.
The rule for `right`: its error against float64 is at most twice the reference's own in float32 (max) and 1.5 times
(rms), or a unit in the last place. For `wrong`: another structure, or 16 times the error that rule allows.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/problem.py"))
ULP = 2.0**-23
MAX_FACTOR, RMS_FACTOR, CLEARLY = 2.0, 1.5, 16.0
NULL_TOLERANCE = 1e-2

Tensors = tuple[torch.Tensor, ...]


def draw_needle(x: torch.Tensor) -> torch.Tensor:
    """Return zeros with a single one in each row."""
    where = torch.randint(0, x.shape[-1], (*x.shape[:-1], 1))
    return torch.zeros_like(x).scatter_(-1, where, 1.0)


def draw_outliers(x: torch.Tensor) -> torch.Tensor:
    """Return normal values, one column in a hundred fifty times as large."""
    hot = torch.randperm(x.shape[-1])[: max(1, x.shape[-1] // 100)]
    y = torch.randn_like(x)
    y[..., hot] *= 50
    return y


def draw_constant_rows(x: torch.Tensor) -> torch.Tensor:
    """Return rows of one value each, a multiple of 1/8: their sums are exact, so that no rounding decides."""
    return (torch.randn(*x.shape[:-1], 1) * 16).round().div(8).expand_as(x).contiguous()


DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "given": lambda x: x,
    "uniform": lambda x: torch.rand_like(x) * 2 - 1,
    "shifted": lambda x: torch.randn_like(x) + 10,
    "outliers": draw_outliers,
    "large": lambda x: torch.randn_like(x) * 2.0**8,
    "small": lambda x: torch.randn_like(x) * 2.0**-8,
    "lognormal": lambda x: torch.randn_like(x).exp(),
    "constant rows": draw_constant_rows,
    "needle": draw_needle,
}
DOMAINS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "real": lambda x: x,
    "positive": lambda x: x.abs() + 2.0**-10,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


@functools.cache
def load(path: Path) -> ModuleType:
    """Import one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"problem_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_meta(folder: Path) -> dict[str, Any]:
    """Return what meta.json says of the problem."""
    meta: dict[str, Any] = json.loads((folder / "meta.json").read_text())
    return meta


def make_models(folder: Path, solution: str, seed: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the reference and a solution with the reference's state. Raises RuntimeError where the names differ."""
    torch.manual_seed(seed)
    problem = load(folder / "problem.py")
    model = problem.Model(*problem.get_init_inputs()).eval()
    other = load(folder / f"{solution}.py").ModelNew(*problem.get_init_inputs()).eval()
    other.load_state_dict(model.state_dict(), strict=True)
    return model, other


def draw_inputs(folder: Path, distribution: str) -> list[torch.Tensor]:
    """Return inputs of the problem's shapes; float ones follow `distribution` inside the problem's domain."""
    inside = DOMAINS[read_meta(folder).get("domain", "real")]
    inputs = load(folder / "problem.py").get_inputs()
    return [inside(DRAWS[distribution](x)) if x.is_floating_point() else x for x in inputs]


def run(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Tensors:
    """Call `model` on private copies; one tensor or a tuple of them becomes a tuple."""
    result = model(*[x.clone() for x in inputs])
    return result if isinstance(result, tuple) else (result,)


def run_exactly(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Tensors:
    """Call `model` in float64 on the same rounded state and inputs, and put it back to float32."""
    try:
        return run(model.double(), [x.double() if x.is_floating_point() else x for x in inputs])
    finally:
        model.float()


def measure_excess(result: Tensors, eager: Tensors, exact: Tensors) -> float:
    """Return how many times the largest error exceeds what is allowed (<= 1 is right; inf where structure differs)."""
    if len(result) != len(exact):
        return float("inf")
    return max(_measure_one(r, b, e) for r, b, e in zip(result, eager, exact, strict=True))


def _measure_one(result: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> float:
    if result.shape != eager.shape or result.dtype != eager.dtype or type(result) is not torch.Tensor:
        return float("inf")
    finite = eager.isfinite()
    if not torch.equal(torch.nan_to_num(result)[~finite], torch.nan_to_num(eager)[~finite]):
        return float("inf")
    if not torch.equal(result.isfinite(), finite):
        return float("inf")
    own, theirs = (result - exact)[finite].abs(), (eager - exact)[finite].abs()
    size = exact[finite].abs()
    allowed_max = max(MAX_FACTOR * theirs.max().item(), ULP * size.max().item())
    allowed_rms = max(RMS_FACTOR * _rms(theirs), 0.5 * ULP * _rms(size))
    return max(_ratio(own.max().item(), allowed_max), _ratio(_rms(own), allowed_rms))


def _rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def _ratio(error: float, allowed: float) -> float:
    return error / allowed if error > 0 and allowed > 0 else (0.0 if error == 0 else float("inf"))


@functools.cache
def measure_solutions(folder: Path, seed: int = 1) -> dict[str, dict[str, float]]:
    """Return the excess of `right` and `wrong` by distribution; each is one object, called once for each of them."""
    model, right = make_models(folder, "right", seed)
    _, wrong = make_models(folder, "wrong", seed)
    excess: dict[str, dict[str, float]] = {"right": {}, "wrong": {}}
    for name in DRAWS:
        inputs = draw_inputs(folder, name)
        eager, exact = run(model, inputs), run_exactly(model, inputs)
        for solution, other in (("right", right), ("wrong", wrong)):
            excess[solution][name] = measure_excess(run(other, inputs), eager, exact)
    return excess


def each_folder(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)(test)


def test_there_are_enough_problems() -> None:
    assert len(FOLDERS) >= 40


@each_folder
def test_right_is_right(folder: Path) -> None:
    excess = measure_solutions(folder)["right"]
    assert {name: value for name, value in excess.items() if not value <= 1} == {}


@each_folder
def test_wrong_is_wrong(folder: Path) -> None:
    excess = measure_solutions(folder)["wrong"]
    assert any(value > CLEARLY for value in excess.values()), excess


@each_folder
def test_no_null_answer_passes(folder: Path) -> None:
    """Outputs vary in themselves and between seeds; zeros, means and copies of the input are not close to them."""
    model, _ = make_models(folder, "right", seed=2)
    inputs = draw_inputs(folder, "given")
    results, later = run(model, inputs), run(model, draw_inputs(folder, "given"))
    for result, other in zip(results, later, strict=True):
        assert result.isfinite().all() and result.std() > NULL_TOLERANCE
        nulls = [torch.zeros_like(result), result.mean().expand_as(result), other]
        nulls += [
            result.mean(dim=axis, keepdim=True).expand_as(result)
            for axis in (0, -1)
            if result.shape[axis] > 1 < result.dim()
        ]
        if folder.name in CONSTANT_ALONG_THE_LAST_AXIS:
            nulls.pop()
        nulls += [x for x in inputs if x.shape == result.shape and x.is_floating_point()]
        for null in nulls:
            assert not torch.allclose(null, result, rtol=NULL_TOLERANCE, atol=NULL_TOLERANCE)


CONSTANT_ALONG_THE_LAST_AXIS = ("34_squeeze_gate",)
"""Its planes are constant by definition: what must not pass there is one value for all planes."""


@each_folder
def test_every_parameter_and_every_input_counts(folder: Path) -> None:
    """A solution that ignores a part of the state, or an input, cannot agree."""
    model, _ = make_models(folder, "right", seed=3)
    inputs = draw_inputs(folder, "given")
    before = run(model, inputs)
    for name, value in model.state_dict().items():
        kept = value.clone()
        value.mul_(1.25)
        assert differs(run(model, inputs), before), name
        value.copy_(kept)
    fresh = draw_inputs(folder, "given")
    for i in range(len(inputs)):
        assert differs(run(model, [*inputs[:i], fresh[i], *inputs[i + 1 :]]), before), i


def differs(results: Tensors, before: Tensors) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(results, before, strict=True))


@each_folder
def test_meta_says_what_the_files_are(folder: Path) -> None:
    meta = read_meta(folder)
    assert meta["name"] == folder.name
    assert set(meta) <= {"name", "op", "right", "wrong", "cheating", "domain"} and meta["op"]
    assert set(meta["right"]) == {"why_faster"} and meta["wrong"]["bug"]
    assert meta["cheating"]["family"].startswith("H") and meta["cheating"]["trick"]
    tree = ast.parse((folder / "cheating.py").read_text())
    assert "ModelNew" in [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def test_bugs_and_tricks_are_all_different() -> None:
    metas = [read_meta(folder) for folder in FOLDERS]
    assert len({meta["wrong"]["bug"] for meta in metas}) == len(metas)
    assert len({meta["cheating"]["trick"] for meta in metas}) == len(metas)


def test_a_solution_that_is_just_less_precise_is_found() -> None:
    """The rule itself fires: bfloat16 inside, a missing element, another type, and a NaN."""
    exact = torch.randn(64, 64, dtype=torch.float64)
    eager = exact.float()
    assert measure_excess((eager.clone(),), (eager,), (exact,)) <= 1
    holed = eager.clone()
    holed[3, 5] = float("nan")
    for bad in (eager.bfloat16().float(), eager.double(), eager[:, :-1], holed):
        assert measure_excess((bad,), (eager,), (exact,)) > CLEARLY
    assert measure_excess((eager, eager), (eager,), (exact,)) == float("inf")
