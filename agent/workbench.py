"""Workbench: the engine under work and what the steps share. Heavy parts start when a step needs them, not before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kernelwright.agent.compose import Accepted, compose
from kernelwright.agent.events import ProblemPosed, ProfileTaken, TargetsRanked
from kernelwright.agent.observe import measure_engine, profile_engine
from kernelwright.agent.pose import pose, write_problem
from kernelwright.agent.regions import add_regions
from kernelwright.agent.schedule import LEAST_SECONDS, next_target, plan_targets
from kernelwright.agent.session import Session
from kernelwright.agent.solve import solve
from kernelwright.agent.traffic import bytes_per_token
from kernelwright.engine.mix import Mix, read_mix
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import KernelwrightError
from kernelwright.profiles.profile import Ceilings, Profile
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Verdict

if TYPE_CHECKING:
    from kernelwright.engine.capture import CapturedWorkload
    from kernelwright.engine.server import ServeOptions

FLOORS = 2
"""Problems on which the incumbent is timed against itself."""
SHORT_MINUTES = 8
"""Sessions below this observe the engine with fewer requests."""
MAX_MODEL_LEN = 2048
"""Context of the engines a session starts; part of the configuration that is measured and reported."""


class Workbench:
    """The steps of one session. A context manager: leaving it stops the engine."""

    def __init__(self, session: Session) -> None:
        from kernelwright.engine.model_slots import ModelSlots

        self.session = session
        self.slots = ModelSlots(session.options.model, MAX_MODEL_LEN)
        self._server: Any = None
        self._floors: list[float] = []
        self._proposers: Any = None

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop_engine()

    # The engine: the incumbent, without packs. It is profiled, and it is the model proposer's default brain.

    def engine(self) -> Any:
        """Return a client of the running incumbent, started on first use."""
        if self._server is None:
            from kernelwright.engine.client import ServerProcess

            self._server = ServerProcess.start(self.serve_options(), log=self.session.folder / "incumbent.log")
            self._server.wait_until_healthy()
        return self._server.client()

    def serve_options(self) -> ServeOptions:
        """Return how the session serves the incumbent."""
        from kernelwright.engine.server import ServeOptions

        return ServeOptions(
            model=self.session.options.model,
            port=0,
            threads=self.session.options.threads,
            max_model_len=MAX_MODEL_LEN,
            profile_dir=self.session.folder / "traces",
            no_packs=True,
        )

    def stop_engine(self) -> None:
        """Stop the incumbent, so that nothing runs beside the gate's own engines; it starts again when needed."""
        self._proposers = None
        if self._server is not None:
            self._server.stop()
            self._server = None

    # The steps. Each returns what the ledger keeps.

    def measure_incumbent(self) -> dict[str, Any]:
        repeats = 1 if self._is_short else 2
        return measure_engine(self.engine(), repeats, self.session.options.seed)

    def measure_control(self) -> dict[str, Any]:
        from kernelwright.agent.control import measure_compiled

        if self._is_short:
            return {"decode_tok_s": None, "n": 0, "reason": "not measured in a short session"}
        self.stop_engine()
        return measure_compiled(self.serve_options(), 1, self.session.options.seed)

    def take_profile(self) -> dict[str, Any]:
        from kernelwright.engine.checkpoint import model_bytes
        from kernelwright.profiles.ceilings import measure_ceilings

        session = self.session
        session.progress("profile", 0, 2, "measuring what this machine can reach")
        ceilings: Ceilings = measure_ceilings(session.options.threads, model_bytes(session.options.model))
        session.progress("profile", 1, 2, "serving the mix under the profiler")
        mix, cap = self._mix(24)
        profile = profile_engine(self.engine(), self.slots, mix, ceilings, cap, session.options.seed)
        session.emit(ProfileTaken())
        return profile.model_dump(mode="json")

    def capture(self) -> dict[str, Any]:
        from kernelwright.engine.capture import capture_apart

        self.stop_engine()  # two engines on the same cores would only wait for each other
        mix, _ = self._mix(12)
        options = self.session.options
        captured = capture_apart(
            options.model, mix, self.session.folder / "captures", limit=1 if self._is_short else 2, seed=options.seed
        )
        return {"captured": {name: len(items) for name, items in captured.items()}}

    def test_judge(self) -> dict[str, Any]:
        """Have the judge tested on this machine, or take the record of the last day. Raises EnvironmentLacks."""
        from kernelwright.sandbox.selftest import FAST, run_selftest
        from kernelwright.sandbox.selftest_record import is_fresh, load_record, require_selftest, save_record

        session, record = self.session, load_record()
        if session.options.cage == "process":  # exploits are not let loose without a cage
            return {"passed": False, "failures": ["there is no cage: verdicts are unverified, nothing is committed"]}
        if not is_fresh(record):
            record = run_selftest(
                FAST,
                cage=session.options.cage,
                cache_dir=session.folder / "cache" / "selftest",
                on_progress=lambda done, total, text: session.progress("selftest", done, total, text),
            )
            save_record(record)
        return require_selftest().counts()

    def rank(self) -> dict[str, Any]:
        from kernelwright.profiles.rank import rank_targets

        contracts = self.slots.contracts()
        uses = {name: self.slots.num_uses(name) for name in contracts}
        targets = rank_targets(self.profile(), contracts.keys())
        ranked = add_regions(targets, contracts.values(), uses)
        self.session.emit(TargetsRanked())
        return {"targets": [target.model_dump(mode="json") for target in ranked]}

    def worklist(self, targets: list[dict[str, Any]]) -> Iterator[tuple[Target, float]]:
        """Yield what to work on and for how many seconds, until the budget ends; decided anew after each."""
        session, contracts = self.session, self.slots.contracts()
        uses = {name: self.slots.num_uses(name) for name in contracts}
        ranked = [Target.model_validate(t) for t in targets]
        planned = plan_targets(ranked, session.options.only, self.slots.definitions())
        done = {t.definition for t in planned if session.ledger.step_result(f"solve:{t.definition}") is not None}
        while session.budget.exhausted() is None:
            left = session.budget.solve_left_s
            following = next_target(planned, done, self.accepted(), contracts, uses, left)
            if following is None or (done and left < LEAST_SECONDS):
                return
            target, seconds = following
            yield target, seconds
            done.add(target.definition)

    def solve(self, target: Target, seconds: float) -> dict[str, Any]:
        from kernelwright.agent.proposers import make_proposers

        session = self.session
        problem = pose(target, self.slots, self.captured(target.definition), MAX_MODEL_LEN)
        folder = session.folder / "problems" / target.definition
        write_problem(problem, folder)
        session.ledger.put(problem)
        session.emit(ProblemPosed(definition=target.definition))
        if self._proposers is None:
            self._proposers = make_proposers(session, self.engine)
        try:
            return self._solve_caged(problem, folder, target, seconds)
        except (KernelwrightError, OSError, ValueError, RuntimeError) as error:
            # One problem that the bench cannot handle must not end a session that has others; it is told in the report.
            session.progress(f"solve:{target.definition}", 0, 0, f"given up: {error}")
            return {"candidate": None, "verdict": None, "searched": 0, "rejected": 0, "error": str(error)}

    def _solve_caged(self, problem: Problem, folder: Path, target: Target, seconds: float) -> dict[str, Any]:
        from kernelwright.sandbox.attempts import Attempts
        from kernelwright.sandbox.selftest_record import record_path
        from kernelwright.sandbox.verify import Bench

        session, options = self.session, self.session.options

        def say(text: str) -> None:
            session.progress(f"solve:{target.definition}", 0, 0, text)

        with Bench(
            problem,
            problem_dir=folder,
            weights=self.slots.weights(target.definition),
            cage=options.cage,
            threads=options.threads,
            cache_dir=session.folder / "cache",
            ceilings=self.profile().ceilings,
            attempts=Attempts(record_path().with_name("attempts.json")),
            lineage="optimize",  # its proposers share one history
            # calibrated on the first two problems; after that the larger of the two stands for this host today
            floor=max(self._floors) if len(self._floors) >= FLOORS else None,
            on_progress=say,
        ) as bench:
            result = solve(session, bench, problem, target, self._proposers, seconds)
            if bench.floor is not None:
                self._floors.append(bench.floor)
            return result

    def compose(self) -> dict[str, Any]:
        contracts = self.slots.contracts()
        lone = {t.definition: t for t in self.targets() if t.phase == "decode" and t.tokens == 1}
        accepted = self.accepted()
        chosen, left_out = compose(accepted, contracts, lone)
        return {
            "chosen": chosen,
            "left_out": left_out,
            "gate_lacks": self.session.budget.lacks_for_gate(self._incumbent_tok_s()),
            "bytes_per_token": bytes_per_token(self.slots, chosen, accepted),
        }

    def _mix(self, most_tokens: int) -> tuple[Mix, int]:
        """Return the shipped mix, its answers capped at `most_tokens`, and the cap; less of both in a short session."""
        mix, cap = read_mix("chat"), most_tokens
        requests = mix.requests
        if self._is_short:
            requests, cap = requests[:4], min(cap, 8)
        capped = tuple(r.model_copy(update={"max_tokens": min(r.max_tokens, cap)}) for r in requests)
        return mix.model_copy(update={"requests": capped}), cap

    @property
    def _is_short(self) -> bool:
        return self.session.options.minutes < SHORT_MINUTES

    # What earlier steps left in the ledger.

    def profile(self) -> Profile:
        return Profile.model_validate(self.session.ledger.step_result("profile"))

    def targets(self) -> list[Target]:
        ranked = self.session.ledger.step_result("rank") or {"targets": []}
        return [Target.model_validate(t) for t in ranked["targets"]]

    def captured(self, definition: str) -> list[CapturedWorkload]:
        from kernelwright.engine.capture import read_captures

        return read_captures(self.session.folder / "captures").get(definition, [])

    def _incumbent_tok_s(self) -> float:
        return float((self.session.ledger.step_result("incumbent") or {}).get("decode_tok_s", 10.0))

    def accepted(self) -> dict[str, Accepted]:
        """Return the accepted kernels by definition, in the order in which they were solved."""
        ledger, found = self.session.ledger, {}
        for step in ledger.steps():
            result = ledger.step_result(step.name) if step.name.startswith("solve:") else None
            if result and result["candidate"]:
                kernel = Accepted(ledger.load(result["candidate"], Candidate), ledger.load(result["verdict"], Verdict))
                found[kernel.candidate.definition] = kernel
        return found

    def problem_folder(self, definition: str) -> Path:
        return self.session.folder / "problems" / definition
