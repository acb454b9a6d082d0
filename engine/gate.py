"""The engine gate: incumbent against the whole pack, in the engine that `serve` starts, judged from outside both.

    null       the incumbent against itself, before anything else; the patched one likewise     gate_modes
    fidelity   forced tokens through decode at batch 1 and 8 and through prefill, row by row   gate_score, gate_fidelity
    layers     hidden states behind every layer                                                 gate_hidden
    collapse   greedy and drawn generations of both, prefix cache                               gate_generate
    tools      which tools both call, with which arguments                                      gate_tools
    speed      decode and prefill over HTTP, ABBA over fresh launches                           gate_speed
    liveness   every kernel switched off in turn: what changes without it                       gate_liveness

Both engines run caged; the clock, the judge of the logits and the reader of /proc are here. Hit counts are what the
patched engine says about itself, taken from the scoring run; what they claim is confirmed from outside by switching the
kernel off.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient
from kernelwright.engine.gate_generate import compare_generations
from kernelwright.engine.gate_hidden import judge_hidden, measure_hidden
from kernelwright.engine.gate_judge import judge_rest, judge_speed, worst
from kernelwright.engine.gate_limits import State, rule
from kernelwright.engine.gate_liveness import LOOK_S, LiveKernel, confirm_live, count_hits
from kernelwright.engine.gate_modes import (
    NULL_OF,
    compare_modes,
    judge_modes,
    measure_modes,
    mode_runs,
    null_of,
)
from kernelwright.engine.gate_plan import GatePlan, plan_gate
from kernelwright.engine.gate_report import write_gate_report
from kernelwright.engine.gate_result import GateResult
from kernelwright.engine.gate_row import Row
from kernelwright.engine.gate_score import Scores
from kernelwright.engine.gate_server import Arm, EngineOptions, GateServer, start_engines
from kernelwright.engine.gate_speed import Timings, time_launch
from kernelwright.engine.gate_tools import ToolCheck, compare_tools, judge_tools
from kernelwright.engine.pack import read_manifest
from kernelwright.engine.pack_load import build_pack, kernel_cache
from kernelwright.engine.tool_cases import load_cases
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.cage import open_cage

Progress = Callable[[int, int, str], None]
"""(done, total, what is being done)."""


def run_gate(
    model: Path,
    pack_dir: Path,
    *,
    session_dir: Path,
    budget_s: float = 240.0,
    threads: int | None = None,
    cache_dir: Path | None = None,
    cage: str = "bubblewrap",
    leave_one_out: bool = True,
    on_progress: Progress = lambda done, total, text: None,
) -> GateResult:
    """Gate the pack at `pack_dir` on `model`; write `gate.json` and `gate.html` into `session_dir`, return it.

    `budget_s` decides how many pairs beyond the least are measured and whether kernels are switched off in turn; the
    tokens of the fidelity runs and three launches with one ABBA round each are never cut. Raises BrokenInput on a
    pack without kernels for this machine, EnvironmentLacks without a cage, EngineFailed when an engine does not do as
    asked.
    """
    started = time.monotonic()
    arm = prepare_arms(model, pack_dir, threads, cache_dir or kernel_cache(), cage)
    plan = plan_gate(model, budget_s)
    gate = Gate(arm, plan, on_progress, started + budget_s, leave_one_out)
    with contextlib.ExitStack() as stack:
        engines = gate.start(stack)
        gate.measure_null(*engines)
        gate.score(*engines)
        gate.generate(*engines)
        gate.time(*engines)
    for launch in range(1, plan.launches):
        with contextlib.ExitStack() as stack:
            engines = gate.start(stack)
            gate.time(*engines)
            if leave_one_out and launch == plan.launches - 1:
                gate.switch_off(*engines)
    result = gate.rule(read_manifest(pack_dir))
    session_dir.mkdir(parents=True, exist_ok=True)
    (session_dir / "gate.json").write_text(result.model_dump_json(indent=2) + "\n")
    write_gate_report(result, session_dir / "gate.html")
    return result


def prepare_arms(model: Path, pack_dir: Path, threads: int | None, cache: Path, cage: str) -> Arm:
    """Build the pack into `cache` and return what both engines share. Raises BrokenInput without a kernel to run."""
    cache.mkdir(parents=True, exist_ok=True)  # nothing is built of a pack that holds no native kernel
    built = [kernel for kernel in build_pack(pack_dir, cache) if kernel.state != "skipped"]
    if not built:
        raise BrokenInput(f"{pack_dir} has no kernel for this machine", "Optimise on this machine first")
    return Arm(open_cage(cage), model, pack_dir, cache, threads)


class Gate:
    """The gate's state while it runs: what has been measured so far, and the time left."""

    def __init__(
        self, arm: Arm, plan: GatePlan, on_progress: Progress, deadline: float, leave_one_out: bool = True
    ) -> None:
        self.arm, self.plan, self._deadline, self._leave_one_out = arm, plan, deadline, leave_one_out
        self._tell, self._done = on_progress, 0
        self.scores, self.timings = Scores(), Timings()
        self.seconds: dict[str, float] = {}
        self.kernels: list[LiveKernel] = []

    def start(self, stack: contextlib.ExitStack) -> tuple[GateServer, GateServer]:
        """Start a fresh launch of both engines."""
        with self._stage("start"):
            self._say("starting the incumbent and the patched engine")
            both = start_engines(self.arm, EngineOptions(patched=False), EngineOptions(patched=True))
            incumbent, patched = stack.enter_context(both)
        return incumbent, patched

    def measure_null(self, incumbent: GateServer, patched: GateServer) -> None:
        """Compare the incumbent with itself in all modes, then the patched engine with itself."""
        with self._stage("modes"), incumbent.client() as base, patched.client() as new:
            runs = list(mode_runs(self.plan.library, int(base.card()["max_model_len"]) - 1))
            self._say("null: the incumbent against itself")
            begun = time.monotonic()
            calm = measure_modes(runs, base)
            took = time.monotonic() - begun
            self.null: dict[str, list[Row]] = {phase: null_of(phase, calm) for phase in NULL_OF}
            self._say("batch invariance of the patched engine")
            self.modes = compare_modes(calm, measure_modes(runs, new))
        self.plan = self.plan.within(self._deadline - time.monotonic(), took)

    def score(self, incumbent: GateServer, patched: GateServer) -> None:
        """Compare the logits of forced tokens in all phases, and the hidden states; count hits; read memory and
        isolation from outside.
        """
        with self._stage("fidelity"), incumbent.client() as base, patched.client() as new:
            card, seen = base.card(), [new.kernels()]
            by_phase: dict[str, dict[str, int]] = {}
            for phase, runs in groupby(self.plan.runs(card), key=lambda run: run.name):
                for run in runs:
                    self._say(f"fidelity: {phase}")
                    self.scores.add(run, base, new, self._step)
                    if self._is_untouched(phase, seen[-1], new):
                        break
                seen.append(new.kernels())
                by_phase[phase] = {str(k.candidate): k.hits for k in count_hits(*seen[-2:])}
            for kernel in count_hits(seen[0], seen[-1]):
                hits = {phase: found[str(kernel.candidate)] for phase, found in by_phase.items()}
                self.kernels.append(kernel.model_copy(update={"hits_by_phase": hits}))
            self.model_digest = str(seen[-1].get("model_digest", ""))
        with self._stage("layers"), incumbent.client() as base, patched.client() as new:
            self._say("hidden states by layer")
            layers, longest = int(card["num_hidden_layers"]), int(card["max_model_len"]) - 1
            self.hidden = measure_hidden(self.plan.library, base, new, layers, longest)
        self.resident = (incumbent.resident_bytes(), patched.resident_bytes())
        self.ready = (incumbent.ready_s, patched.ready_s)
        weakest = min((incumbent, patched), key=lambda engine: engine.isolation)
        self.isolation, self.facts = weakest.isolation, weakest.isolation_facts

    def _is_untouched(self, phase: str, before: dict[str, Any], patched: EngineClient) -> bool:
        """Return whether enough rows of prefill have shown that the pack does nothing there."""
        rows = self.scores.rows[phase]
        if phase != "prefill" or len(rows) < self.plan.untouched_tokens or not all(row.identical for row in rows):
            return False
        return not any(kernel.hits for kernel in count_hits(before, patched.kernels()))

    def generate(self, incumbent: GateServer, patched: GateServer) -> None:
        with self._stage("generate"):
            self._say("greedy generations")
            self.generation = compare_generations(incumbent.client, patched.client)
        self.tools: ToolCheck | None = None
        cases = load_cases()
        if self.plan.tool_cases:
            with self._stage("tools"):
                self._say("tool calls")
                chosen = cases[:: max(1, len(cases) // self.plan.tool_cases)]
                self.tools = compare_tools(incumbent.client, patched.client, chosen)

    def time(self, incumbent: GateServer, patched: GateServer) -> None:
        """Measure one launch; the first one shows how many rounds the budget allows for the others."""
        with self._stage("speed"):
            self._say("speed: decode and prefill, ABBA")
            rounds = self.plan.rounds(self.timings, self._deadline - time.monotonic() - self._kept_back_s())
            time_launch(self.timings, incumbent, patched, rounds, self._step)

    def switch_off(self, incumbent: GateServer, patched: GateServer) -> None:
        """Switch the live kernels off in turn while the patched engine runs, as far as the time goes."""
        with self._stage("leave_one_out"):
            incumbent.stop()
            self.kernels = confirm_live(patched, self.kernels, self.plan, self._deadline, self._say)
            incumbent.resume()

    def _kept_back_s(self) -> float:
        """Return what switching the live kernels off in turn will take, seconds."""
        live = {kernel.definition for kernel in self.kernels if kernel.hits}
        return (1 + len(live)) * LOOK_S if self._leave_one_out else 0.0

    def rule(self, manifest: BaseModel) -> GateResult:
        """Weigh everything measured and return the result."""
        fidelity = self.scores.fidelity(self.null)
        rulings = {phase.phase: rule(phase) for phase in fidelity}
        decode, prefill = self.timings.compare("decode"), self.timings.compare("prefill")
        states: list[State] = []
        reasons: list[str] = []
        for name, ruling in rulings.items():
            states.append(ruling.state)
            reasons += [f"{name}: {reason}" for reason in ruling.reasons]
        for state, reason in (
            *judge_speed(decode, prefill),
            *judge_modes(self.modes),
            *judge_hidden(self.hidden),
            *judge_tools(self.tools),
            *judge_rest(self.kernels, self.generation, self.isolation),
        ):
            states.append(state)
            reasons.append(reason)
        return GateResult(
            pack=digest_of(manifest), model_digest=self.model_digest, state=worst(states), reasons=tuple(reasons),
            isolation=self.isolation, isolation_facts=self.facts, decode=decode, prefill=prefill, fidelity=fidelity,
            rulings=rulings, kernels=tuple(self.kernels), generation=self.generation, modes=self.modes,
            hidden=self.hidden, tools=self.tools, brief=self.plan.brief, resident_bytes=self.resident,
            ready_s=self.ready, threads=self.arm.threads, seconds=self.seconds,
        )  # fmt: skip

    @contextlib.contextmanager
    def _stage(self, name: str):  # type: ignore[no-untyped-def]
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun

    def _say(self, text: str) -> None:
        self._text = text
        self._tell(self._done, max(self.plan.total, self._done), text)

    def _step(self) -> None:
        self._done += 1
        if self._done % 64 == 0 or self._done > self.plan.rows:
            self._tell(self._done, max(self.plan.total, self._done), self._text)
