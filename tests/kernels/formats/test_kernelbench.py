"""KernelBench: ordinary modules are read and compute what they computed, odd ones are refused with their reason."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings

from kernelwright.kernels.formats import adapters, kernelbench, probing
from kernelwright.kernels.formats.imported import candidate_key
from kernelwright.kernels.formats.result import Judged, Result
from kernelwright.kernels.formats.table import read_any
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse
from tests.kernels.formats.sampling import SAMPLES, draw_inputs, outputs_of, probe_here, problems

FOLDER = SAMPLES / "kernelbench"
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def write(folder: Path, body: str, inputs: str, init: str = "", name: str = "3_case.py") -> Path:
    """Write a problem whose Model has `body` as its methods."""
    path = folder / name
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = f"{HEAD}class Model(nn.Module):\n{lines}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
    path.write_text(f"{text}def get_init_inputs():\n    return [{init}]\n")
    return path


def layer(expression: str) -> str:
    made = f"def __init__(self):\n    super().__init__()\n    self.layer = {expression}\n"
    return made + "def forward(self, x):\n    return self.layer(x)"


def function(expression: str, arguments: str = "x") -> str:
    return f"def forward(self, {arguments}):\n    return {expression}"


X = "torch.randn(4, 6)"
IMAGE = "torch.randn(2, 3, 8, 8)"
ATTENTION = """def __init__(self):
    super().__init__()
    self.qkv = nn.Linear(8, 24)
    self.register_buffer('mask', torch.tril(torch.ones(5, 5)).bool())
    self.scale = torch.tensor(0.5)
def forward(self, x):
    q, k, v = self.qkv(x).split(8, dim=2)
    s = (q @ k.transpose(1, 2) * self.scale).masked_fill(~self.mask, -1e9)
    return torch.softmax(s, dim=-1) @ v + torch.zeros(5, 8)"""
ORDINARY = {
    "relu": (function("torch.relu(x)"), X), "gelu": (function("F.gelu(x)"), X),
    "softmax": (function("torch.softmax(x, dim=1)"), X), "leaky": (layer("nn.LeakyReLU(0.1)"), X),
    "prelu": (layer("nn.PReLU(6)"), X),
    "layernorm": (layer("nn.LayerNorm(6)"), X), "batchnorm": (layer("nn.BatchNorm2d(3)"), IMAGE),
    "groupnorm": (layer("nn.GroupNorm(3, 6)"), X), "instancenorm": (layer("nn.InstanceNorm2d(3)"), IMAGE),
    "matmul": (function("a @ b", "a, b"), "torch.randn(3, 4), torch.randn(4, 5)"),
    "linear": (layer("nn.Linear(6, 2)"), X), "linear without bias": (layer("nn.Linear(6, 2, bias=False)"), X),
    "conv": (layer("nn.Conv2d(3, 4, 3, padding=1)"), IMAGE),
    "conv without bias": (layer("nn.ConvTranspose2d(3, 4, 3, bias=False)"), IMAGE),
    "pooling": (layer("nn.MaxPool2d(2)"), IMAGE), "average": (layer("nn.AvgPool2d(2)"), IMAGE),
    "cross entropy": (function("F.cross_entropy(x, t)", "x, t"), f"{X}, torch.randint(0, 6, (4,))"),
    "smooth l1": (function("F.smooth_l1_loss(x, t)", "x, t"), f"{X}, {X}"),
    "sum": (function("x.sum(dim=1, keepdim=True)"), X), "max": (function("x.max(dim=1)[0]"), X),
    "argmax": (function("x.argmax(dim=1)"), X), "cumsum": (function("torch.cumsum(x, dim=1)"), X),
    "masked": (function("torch.cumsum(x * m, dim=1)", "x, m"), f"{X}, torch.randint(0, 2, (4, 6)).bool()"),
    "half": (function("x * 2"), "torch.randn(4, 6).half()"),
    "transposed": (function("x.T @ x"), "torch.randn(6, 4).T"),
    "upper": (function("torch.triu(a @ b)", "a, b"), "torch.triu(torch.randn(5, 5)), torch.triu(torch.randn(5, 5))"),
    "several results": (function("{'a': x + 1, 'b': [x.sum(), x.long()]}"), X),
    "nested arguments": (function("xs[0] + xs[1] * k['gain']", "xs, k"), f"[{X}, {X}], {{'gain': 0.5}}"),
    "attention": (ATTENTION, "torch.randn(2, 5, 8)"),
    "tied": (
        "def __init__(self):\n    super().__init__()\n    self.a = nn.Linear(6, 6)\n    self.b = nn.Linear(6, 6)\n"
        "    self.b.weight = self.a.weight\ndef forward(self, x):\n    return self.b(self.a(x))",
        X,
    ),
    "gru": (
        "def __init__(self):\n    super().__init__()\n    self.rnn = nn.GRU(6, 5)\ndef forward(self, x):\n"
        "    return self.rnn(x, torch.zeros(1, 3, 5))",
        "torch.randn(7, 3, 6)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_module_is_read_and_computes_what_it_did(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, *ORDINARY[name])
    problem = kernelbench.read_problem(path, probe_here).problem()
    inputs = draw_inputs(problem, distribution=(problem.distributions or ("normal",))[0])
    truth = outputs_of(problem.definition.reference, inputs)
    incumbent = outputs_of(problem.incumbent.sources[0].content, inputs)
    wide = outputs_of(problem.definition.reference, inputs, wide=True)
    own = run_by_hand(path, problem, inputs)
    assert len(own) == len(truth) == len(problem.definition.outputs)
    for a, b, c, d in zip(own, truth, incumbent, wide, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)
        assert torch.allclose(a.double(), d.double(), rtol=2e-2 if a.dtype == torch.float16 else 1e-3, atol=1e-3)
        assert d.dtype == (torch.float64 if a.is_floating_point() else a.dtype)


def run_by_hand(path: Path, problem: Problem, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Return what the module itself gives, its parameters set to the drawn ones by name."""
    module = probing.load(path.read_text(), "problem.py")
    torch.manual_seed(probing.SEED)
    model = module["Model"](*module["get_init_inputs"]())
    known = kernelbench.facts_of(problem.definition)
    assert known is not None
    with torch.no_grad():
        for name, dotted in known["parameters"].items():
            dict(model.named_parameters())[dotted].copy_(inputs[name])
        arguments = eval(f"({known['call']},)", {n: v for n, v in inputs.items()})
        return tuple(probing.tensors_in(model(*arguments)))


def test_parameters_are_weights_and_drawn_away_from_the_constructor() -> None:
    problem = kernelbench.read_problem(FOLDER / "7_norm_linear.py", probe_here).problem()
    assert problem.contract.weights == ("gain", "linear__weight", "linear__bias", "norm__weight", "norm__bias")
    assert (
        problem.num_weight_sets > 1 and problem.timed_axes == {} and problem.contract.int_ranges == {"target": (0, 4)}
    )
    drawn = draw_inputs(problem)
    assert not torch.equal(drawn["norm__weight"], torch.ones(5)) and bool(drawn["norm__bias"].all())


def test_distributions_that_leave_the_domain_are_dropped() -> None:
    found = kernelbench.read_problem(FOLDER / "20_log.py", probe_here)
    kept = set(found.problem().distributions)
    assert {"lognormal", "shifted"} <= kept and not kept & {"normal", "uniform", "outliers", "needle"}
    assert any("not finite there" in note.why for note in found.notes)


def test_a_triangular_input_stays_triangular(tmp_path: Path) -> None:
    problem = kernelbench.read_problem(write(tmp_path, *ORDINARY["upper"]), probe_here).problem()
    assert not bool(torch.tril(draw_inputs(problem)["a"], -1).any())


def test_buffers_reach_a_solution_and_inputs_may_have_any_name(tmp_path: Path) -> None:
    body = "def __init__(self):\n    super().__init__()\n    self.gain = nn.Parameter(torch.ones(6))\n"
    body += "    self.register_buffer('shift', torch.randn(6))\n"
    body += "def forward(self, weights, model, given, key):\n"
    body += "    return weights * self.gain + model + given + key + self.shift"
    posed = write(tmp_path, body, ", ".join([X] * 4))
    solved = tmp_path / "new.py"
    text = posed.read_text().replace("class Model(", "class ModelNew(").replace("torch.randn(6)", "torch.zeros(6)")
    solved.write_text(text.partition("def get_inputs")[0])
    problem, found = solve(posed, solved)
    inputs = draw_inputs(problem)
    (expected,) = outputs_of(problem.definition.reference, inputs)
    (result,) = outputs_of(found.candidates[0].sources[0].content, inputs)
    assert torch.equal(expected, result)


WEAK = {
    "zeros": (function("x * 0"), X, "does not depend"),
    "tiny": (function("torch.sigmoid(x) * 1e-3"), X, "within"),
    "shape only": (function("torch.ones_like(x)"), X, "does not depend"),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_oracle_is_called_so(name: str, tmp_path: Path) -> None:
    body, inputs, word = WEAK[name]
    notes = kernelbench.read_problem(write(tmp_path, body, inputs), probe_here).notes
    assert any("weak oracle" in note.why and word in note.why for note in notes)


REFUSED = {
    "dropout": (function("F.dropout(x, 0.5)"), X, "other results on equal inputs"),
    "no tensor": (function("3"), X, "returns no tensor"),
    "raises": (function("x.nonsense()"), X, "nonsense"),
    "exits": (function("exit(3)"), X, "SystemExit"),
    "complex": (function("torch.fft.fft(x)"), X, "complex64"),
    "too many": (function("x"), f"{X}, {X}", "forward takes 1"),
    "object": (function("x", "x, o"), f"{X}, object()", "holds a object"),
    "fixed precision": (function("x @ torch.ones(6, 2, dtype=torch.float32)"), X, "float64"),
    "never finite": (function("x / 0"), X, "not finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_judged_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    body, inputs, word = REFUSED[name]
    with pytest.raises(BrokenInput, match=word):
        kernelbench.read_problem(write(tmp_path, body, inputs), probe_here)


@pytest.mark.parametrize(
    ("text", "word"),
    [("def Model(:", "not valid python"), ("class Model:\n    pass\n", "does not define get_inputs"),
     ("def run(): pass\nclass Model:\n    def forward(self): run()\n", "defines run itself")],
)  # fmt: skip
def test_a_broken_file_is_refused(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    with pytest.raises(BrokenInput, match=word):
        kernelbench.read_problem(path, probe_here)


def solve(problem_file: Path, solution_file: Path) -> tuple[Problem, Any]:
    problem = kernelbench.read_problem(problem_file, probe_here).problem()
    return problem, kernelbench.read_solution(solution_file, problem, probe_here)


def test_a_solution_computes_the_problem_its_parameters_matched_by_order() -> None:
    problem, found = solve(FOLDER / "7_norm_linear.py", FOLDER / "7_norm_linear_new.py")
    (candidate,) = found.candidates
    inputs = draw_inputs(problem)
    for a, b in zip(
        outputs_of(candidate.sources[0].content, inputs), outputs_of(problem.definition.reference, inputs), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-4)
    assert any("by order and shape" in note.why for note in found.notes)


NEW = (
    HEAD
    + """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, {out})

    def forward(self, x):
        return self.layer(x)
"""
)


def test_parameters_of_equal_names_are_matched_by_name_and_others_not_at_all(tmp_path: Path) -> None:
    posed = write(tmp_path, *ORDINARY["linear"])
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(NEW.format(out=2))
    bad.write_text(NEW.format(out=3))
    assert [n.why for n in solve(posed, good)[1].notes] == ["matched by name"]
    problem, found = solve(posed, bad)
    assert any(n.kind == "lost" and "will not load" in n.why for n in found.notes)
    with pytest.raises(TypeError, match="are not"):
        outputs_of(found.candidates[0].sources[0].content, draw_inputs(problem))


def test_a_gpu_solution_is_unmeasured_and_says_why() -> None:
    _, found = solve(FOLDER / "20_log.py", FOLDER / "20_log_cuda.py")
    (candidate,) = found.candidates
    assert candidate.language == "cuda" and "CUDA" in found.unmeasured[candidate_key(candidate)]


def test_a_solution_needs_its_own_problem(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="name its problem"):
        read_any(FOLDER / "7_norm_linear_new.py", probe_here)
    problem = kernelbench.read_problem(FOLDER / "20_log.py", probe_here).problem()
    with pytest.raises(BrokenInput, match="does not define ModelNew"):
        kernelbench.read_solution(FOLDER / "20_log.py", problem, probe_here)


def test_a_problem_of_theirs_is_written_back_as_it_was() -> None:
    original = FOLDER / "7_norm_linear.py"
    problem, found = solve(original, FOLDER / "7_norm_linear_new.py")
    written = kernelbench.write(problem, found.candidates)
    assert written.files["7_norm_linear.py"] == original.read_text()
    assert (FOLDER / "7_norm_linear_new.py").read_text() in written.files.values()


@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(problems(dtypes=("float32", "int64", "bool"), stored=False))
def test_ours_keeps_shapes_dtypes_weights_and_results(problem: Problem) -> None:
    if any("int" in problem.definition.inputs[n].dtype or "bool" in problem.definition.inputs[n].dtype
           for n in problem.contract.weights):  # fmt: skip
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{problem.definition.name}.py"
        (text,) = kernelbench.write(problem, ()).files.values()
        path.write_text(text)
        back = kernelbench.read_problem(path, probe_here).problem()

    def interface(of: Problem, names: dict[str, Any]) -> list[Any]:
        return [(of.definition.shape_of(n, of.timed_axes), s.dtype) for n, s in names.items()]

    mine, theirs = problem.definition, back.definition
    tensors = {n: s for n, s in mine.inputs.items() if s.shape is not None}
    assert set(tensors) == set(theirs.inputs)
    assert set(back.contract.weights) == set(problem.contract.weights)
    assert interface(problem, {n: mine.inputs[n] for n in theirs.inputs}) == interface(back, theirs.inputs)
    assert interface(problem, mine.outputs) == interface(back, theirs.outputs)
    inputs = draw_inputs(back)
    for a, b in zip(outputs_of(mine.reference, inputs), outputs_of(theirs.reference, inputs), strict=True):
        assert torch.equal(a, b)


def test_results_have_the_fields_of_their_evaluation() -> None:
    timed = {"latency_ms": 1.5, "reference_ms": 3.0, "candidate_ms": (1.0, 2.0), "incumbent_ms": (3.0, 3.0)}
    common = {"candidate": "a", "reason": "r", "hardware": "h", "timestamp": "t", "verdict": "v", "isolation": "L3"}
    good = Result(outcome="faster", evaluations=(Judged(workload="w", status="PASSED"),), **common, **timed)  # type: ignore[arg-type]
    broken = Result(outcome="invalid", evaluations=(Judged(workload="build", status="COMPILE_ERROR"),), **common)  # type: ignore[arg-type]
    found = json.loads(kernelbench.write_results([good, broken], "7"))["7"]
    assert [f["sample_id"] for f in found] == [0, 1]
    assert (found[0]["compiled"], found[0]["correctness"], found[0]["runtime"]) == (True, True, 1.5)
    assert found[0]["runtime_stats"]["mean"] == 1.5 and found[0]["ref_runtime"] == 3.0
    assert (found[1]["compiled"], found[1]["correctness"], found[1]["runtime"]) == (False, False, -1.0)
    assert kernelbench.problem_id_of(Path("7_norm_linear.py")) == "7"


def test_an_adapter_comes_off_again() -> None:
    source = (FOLDER / "20_log.py").read_text()
    assert adapters.strip(adapters.with_adapter(source, "def run(x):\n    return (x,)")) == source
