"""Solving one problem with scripted proposers and a scripted judge: what is accepted, and what is never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.agent.events import Event
from kernelwright.agent.options import OptimizeOptions
from kernelwright.agent.propose import History
from kernelwright.agent.session import Session, open_session
from kernelwright.agent.solve import solve
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Verdict
from tests.agent.scripted_bench import ScriptedBench


def candidate(text: str, proposer: str = "templates") -> Candidate:
    source = SourceFile(path="kernel.cpp", content=text)
    return Candidate(
        definition="q4_1_linear_n64_k64", language="cpp", sources=(source,), proposer=proposer, author="scripted"
    )


class Scripted:
    name = "scripted"

    def __init__(self, *candidates: Candidate) -> None:
        self.left = list(candidates)

    def propose(self, problem: Problem, target: Target, history: History) -> Candidate | None:
        return self.left.pop(0) if self.left else None


def problem() -> Problem:
    definition = define("q4_1_linear", n=64, k=64)
    op = op_of(definition)
    return Problem(
        target=None, definition=definition, contract=op.contract(definition), incumbent=op.incumbent(definition),
        workloads=(), ranges={}, timed_axes={"T": 1}, num_weight_sets=1,
    )  # fmt: skip


def target() -> Target:
    return Target(
        profile="0" * 64, definition="q4_1_linear_n64_k64", phase="decode", tokens=1, share=0.5, ns_per_call=1e5,
        headroom=3.0, roofline_ns=3e4, bound="memory", ceiling=1.5, reachable=True,
    )  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    options = OptimizeOptions(model=tmp_path / "m.gguf", out=tmp_path / "s", threads=1)
    heard: list[Event] = []
    opened = open_session(options, heard.append, resume=False)
    yield opened
    opened.ledger.close()


def run(
    session: Session, speed: Callable[[Candidate], float | None], *candidates: Candidate
) -> tuple[dict, ScriptedBench]:
    bench = ScriptedBench(speed)
    return solve(session, bench, problem(), target(), [Scripted(*candidates)], seconds=1e9), bench


def test_the_fastest_right_candidate_is_confirmed_and_accepted(session: Session) -> None:
    speeds = {"slow": 1.2, "fast": 3.0, "wrong": None}
    result, bench = run(session, lambda c: speeds[c.sources[0].content], *map(candidate, speeds))
    accepted = session.ledger.load(result["candidate"], Candidate)
    assert accepted.sources[0].content == "fast"
    assert [phase for phase, _ in bench.asked].count("confirm") == 1
    assert result["searched"] == 3 and result["rejected"] == 1


def test_a_wrong_candidate_is_never_confirmed_however_fast(session: Session) -> None:
    result, bench = run(session, lambda c: None, candidate("a"), candidate("b"))
    assert result["candidate"] is None
    assert {phase for phase, _ in bench.asked} == {"search"}


def test_what_does_not_beat_the_incumbent_is_not_accepted(session: Session) -> None:
    result, _ = run(session, lambda c: 1.0, candidate("a"))
    assert result["candidate"] is None


def test_a_search_win_that_confirm_does_not_repeat_is_not_accepted(session: Session) -> None:
    bench = ScriptedBench(lambda c: 2.0)
    bench.confirm = lambda c: ScriptedBench(lambda _: 1.0).confirm(c)  # type: ignore[method-assign]
    result = solve(session, bench, problem(), target(), [Scripted(candidate("a"))], seconds=1e9)
    assert result["candidate"] is None


def test_verdicts_recorded_before_an_interruption_are_not_taken_again(session: Session) -> None:
    run(session, lambda c: 2.0, candidate("a"))
    again, bench = run(session, lambda c: 2.0, candidate("a"))
    assert bench.asked == [], "everything was in the ledger"
    assert again["candidate"] is not None


def test_the_attempt_in_flight_is_marked_interrupted_and_run_once_more(session: Session) -> None:
    class Dies(ScriptedBench):
        def search(self, candidate: Candidate):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(session, Dies(lambda c: 2.0), problem(), target(), [Scripted(candidate("a"))], seconds=1e9)
    session.ledger.mark_interrupted()
    assert [a.state for a in session.ledger.attempts()] == ["interrupted"]
    run(session, lambda c: 2.0, candidate("a"))
    (search, _) = session.ledger.attempts()
    assert search.state == "judged" and search.times_begun == 2


def test_a_confirm_in_flight_is_run_again_though_a_faster_candidate_has_come_up(session: Session) -> None:
    class Dies(ScriptedBench):
        def confirm(self, candidate: Candidate):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(session, Dies(lambda c: 2.0), problem(), target(), [Scripted(candidate("a"))], seconds=1e9)
    session.ledger.mark_interrupted()
    run(session, lambda c: 3.0 if c == candidate("b") else 2.0, candidate("b"))
    confirms = session.ledger.attempts(phase="confirm")
    assert [(a.state, a.times_begun) for a in confirms] == [("judged", 2), ("judged", 1)]


def test_the_attempts_budget_stops_the_search(session: Session) -> None:
    session.budget.max_attempts = 2
    _, bench = run(session, lambda c: None, *(candidate(str(i)) for i in range(10)))
    assert len(bench.asked) == 2


@pytest.mark.parametrize(("seconds", "searched"), [(120.0, 1), (200.0, 6)])
def test_a_slow_first_search_leaves_room_for_a_slow_confirm(
    session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float, searched: int
) -> None:
    now = [0.0]
    monkeypatch.setattr("kernelwright.agent.solve.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(ScriptedBench):
        def search(self, candidate: Candidate) -> Verdict:
            now[0] += 10.0 if self.asked else 30.0
            return super().search(candidate)

    proposer = Scripted(*[candidate(name) for name in "abcdef"])
    proposer.name = "templates"
    result = solve(session, Slow(lambda c: 2.0), problem(), target(), [proposer], seconds=seconds)
    assert result["searched"] == searched
