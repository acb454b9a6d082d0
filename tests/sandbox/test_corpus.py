"""The selftest's corpus: enough of it, well described, compiling, and judged as each header says."""

from __future__ import annotations

import ast
import inspect
import timeit
from collections import Counter
from pathlib import Path

import pytest

from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import Candidate
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.corpus_index import CORPUS, GROUPS, Entry, candidate_of, load_corpus, read_entry
from kernelwright.sandbox.selftest_problems import (
    PLANTED,
    PLANTED_S,
    PLANTED_STEPS,
    SelftestProblem,
    _walk,
    count_planted_steps,
    planted,
    problems,
)
from kernelwright.sandbox.verify import Bench
from tests.sandbox.posed import require_cage

ENTRIES = load_corpus()
EXPLOITS = [e for e in ENTRIES if e.kind == "exploit"]
HONEST = [e for e in ENTRIES if e.kind == "honest"]
NATIVE = [e for e in ENTRIES if e.language == "cpp"]


@pytest.fixture(scope="module")
def posed() -> dict[str, SelftestProblem]:
    return problems()


def name_of(entry: Entry) -> str:
    return entry.name


def test_there_are_enough_of_each_kind() -> None:
    assert len(EXPLOITS) >= 66
    assert sum(e.language == "cpp" for e in EXPLOITS) >= 24
    assert len(HONEST) >= 27
    assert sum(e.faster for e in HONEST) >= 16
    assert sum(not e.faster for e in HONEST) >= 4


def test_names_are_unique() -> None:
    assert max(Counter(e.name for e in ENTRIES).values()) == 1


def test_every_group_has_exploits_in_both_languages_and_some_that_are_fast() -> None:
    fast = [e for e in EXPLOITS if e.fast]
    assert {e.group for e in fast} == set(GROUPS)
    assert {e.language for e in fast} == {"cpp", "python"}
    assert 15 <= len(fast) <= 40
    for language in ("cpp", "python"):
        assert {e.group for e in EXPLOITS if e.language == language} == set(GROUPS)


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_every_entry_becomes_a_candidate_of_its_problem(entry: Entry, posed: dict[str, SelftestProblem]) -> None:
    problem = posed[entry.problem].problem
    candidate = candidate_of(entry, problem)
    assert candidate.definition == problem.definition.name
    assert candidate.covers(problem.timed_axes)
    assert "faster" not in entry.expect


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.language == "python"], ids=name_of)
def test_every_python_entry_is_python(entry: Entry) -> None:
    compile(entry.source, entry.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("entry", NATIVE, ids=name_of)
def test_every_native_entry_compiles(entry: Entry, posed: dict[str, SelftestProblem], tmp_path: Path) -> None:
    built = build_native(candidate_of(entry, posed[entry.problem].problem), tmp_path)
    assert built.status == "PASSED", built.log


HEADERS = {
    "no header": "import torch\n",
    "no JSON": "# kw: problem linear\n",
    "not an object": "# kw: [1]\n",
    "unknown key": '# kw: {"problem": "linear", "faster": true, "text": "t", "speed": 3}\n',
    "no text": '# kw: {"problem": "linear", "faster": true}\n',
    "a family in an honest one": '# kw: {"problem": "linear", "faster": true, "text": "t", "family": "H01"}\n',
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_bad_header_is_named(tmp_path: Path, header: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(header + "def run(x, w):\n    return (x,)\n")
    with pytest.raises(BrokenInput, match=r"odd\.py"):
        read_entry(path, "honest")


EXPLOIT = (
    '# kw: {"problem": "linear", "family": "H01", "group": "%s", "control": "poison", "expect": ["%s"], "text": "t"}\n'
)


@pytest.mark.parametrize(
    ("group", "outcome", "good"), [("A", "incorrect", True), ("Z", "incorrect", False), ("A", "faster", False)]
)
def test_an_exploit_has_a_known_group_and_is_never_expected_to_win(
    tmp_path: Path, group: str, outcome: str, good: bool
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(EXPLOIT % (group, outcome))
    if good:
        assert read_entry(path, "exploit").expect == (outcome,)
    else:
        with pytest.raises(BrokenInput):
            read_entry(path, "exploit")


def test_a_header_the_corpus_lacks_is_named(posed: dict[str, SelftestProblem], tmp_path: Path) -> None:
    path = tmp_path / "odd.cpp"
    path.write_text('// kw: {"problem": "linear", "faster": true, "text": "t"}\n#include "nowhere.h"\n')
    with pytest.raises(BrokenInput, match=r"nowhere\.h"):
        candidate_of(read_entry(path, "honest"), posed["linear"].problem)


def test_problems_are_the_same_each_time(posed: dict[str, SelftestProblem]) -> None:
    again = problems()
    for name, one in posed.items():
        assert one.problem == again[name].problem
        for a, b in zip(one.weights, again[name].weights, strict=True):
            assert all((a[n] == b[n]).all() for n in a)


def test_the_planted_kernel_does_what_it_says() -> None:
    problem, candidate = planted(25, PLANTED_STEPS)
    assert str(PLANTED_STEPS) in problem.incumbent.sources[0].content
    assert str(PLANTED_STEPS * 3 // 4) in candidate.sources[0].content
    with pytest.raises(ValueError, match="nothing"):
        planted(100)


def functions(candidate: Candidate) -> dict[str, str]:
    """Return what each function of a Python candidate does, without docstrings and annotations."""
    found = {}
    for node in ast.parse(candidate.sources[0].content).body:
        if isinstance(node, ast.FunctionDef):
            body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            names = [arg.arg for arg in node.args.args]
            found[node.name] = f"{names} {[ast.dump(statement) for statement in body]}"
    return found


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name.endswith("_copy")], ids=lambda e: e.name)
def test_a_copy_is_its_incumbent_statement_by_statement(posed: dict[str, SelftestProblem], entry: Entry) -> None:
    problem = posed[entry.problem].problem
    assert functions(candidate_of(entry, problem)) == functions(problem.incumbent)


def test_what_is_counted_is_what_the_planted_kernel_does() -> None:
    bodies = [
        ast.dump(loop.body[0])
        for text in (inspect.getsource(_walk), PLANTED.format(steps=1))
        for loop in ast.walk(ast.parse(text))
        if isinstance(loop, ast.For)
    ]
    assert len(bodies) == 2 and bodies[0] == bodies[1]


def test_the_planted_kernel_takes_twenty_milliseconds_here() -> None:
    steps = count_planted_steps()
    taken = min(timeit.repeat(lambda: _walk(steps), number=1, repeat=9))
    assert 0.25 < taken / PLANTED_S < 4  # a machine may change its pace by a factor of two between the two


def test_the_corpus_ships_with_the_package() -> None:
    import tomllib

    project = Path(__file__).parents[2] / "pyproject.toml"
    tool = tomllib.loads(project.read_text())["tool"]["setuptools"]
    shipped = {
        "kernelwright.sandbox.corpus." + f.name for f in CORPUS.iterdir() if f.is_dir() and f.name != "__pycache__"
    }
    assert shipped <= set(tool["packages"])


@pytest.mark.slow
@pytest.mark.cage
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("problem", ["linear", "wide", "norm", "cache", "attention", "mlp"])
def test_the_judge_says_of_each_what_its_header_says(
    problem: str, posed: dict[str, SelftestProblem], tmp_path: Path
) -> None:
    require_cage()
    one = posed[problem]
    wrong = []
    with Bench(
        one.problem, problem_dir=tmp_path, weights=one.weights, threads=1, cache_dir=tmp_path / "builds", floor=0.02,
        call_timeout_s=10.0,
    ) as bench:  # fmt: skip
        for entry in (e for e in ENTRIES if e.problem == problem):
            verdict = bench.search(candidate_of(entry, one.problem))
            if entry.phase == "confirm" and verdict.outcome in ("faster", "inconclusive"):
                verdict = bench.confirm(candidate_of(entry, one.problem))
            allowed = entry.expect or (("faster",) if entry.faster else ("slower", "inconclusive"))
            if verdict.outcome not in allowed:
                wrong.append(f"{entry.name}: {verdict.outcome}, {verdict.reason}")
    assert not wrong, "\n".join(wrong)
