"""A session folder with SYNTHETIC data, written through the real ledger, for the tests of the screens.

No number in here was measured. `python tests/tui/scripted_session.py FOLDER` writes one to look at.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from kernelwright.agent import events
from kernelwright.agent.ledger import Ledger
from kernelwright.engine.gate_fidelity import PhaseFidelity
from kernelwright.engine.gate_generate import GenerationCheck
from kernelwright.engine.gate_limits import rule
from kernelwright.engine.gate_liveness import LiveKernel
from kernelwright.engine.gate_result import GateResult
from kernelwright.engine.gate_speed import EngineComparison
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.profile import Ceilings, Machine, Phase, Profile, SlotTime
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Comparison, Correctness, Evaluation, Outcome, Verdict

NAME = "synthetic-test-data"
# definition, share of the decode step, headroom, bound, excluded, best scripted ratio
SLOTS: list[tuple[str, float, float | None, str, str | None, float]] = [
    ("q4_1_gate_up_silu_f1536_h576", 0.312, 6.9, "memory", None, 4.21),
    ("q8_0_linear_n49152_k576", 0.214, 3.6, "memory", None, 2.78),
    ("q4_1_linear_n576_k1536", 0.158, 7.0, "memory", None, 4.05),
    ("q4_1_linear_n960_k576", 0.121, 6.4, "memory", None, 3.37),
    ("q4_1_linear_n576_k576", 0.068, 6.1, "memory", None, 3.12),
    ("decode_attention_q9_kv3_d64_p16", 0.047, 4.4, "overhead", None, 1.86),
    ("add_rmsnorm_h576", 0.031, 9.8, "overhead", None, 1.44),
    (
        "q4_1_attention_block_h576_q9_kv3_d64_p16",
        0.019,
        None,
        "unknown",
        "below 2 % of the step: not worth a problem",
        0.0,
    ),
]

SOURCE = """\
// Rows of Q4_1 blocks times one vector, {rows} rows at a time.
#include <immintrin.h>
#include "kernelwright.h"

static inline float dot_block(const std::uint8_t* block, const float* x) {{
    const float d = half_to_float(block), m = half_to_float(block + 2);
    float sum = 0.0f, bias = 0.0f;
    for (int i = 0; i < 16; ++i) {{
        sum += (block[4 + i] & 15) * x[i] + (block[4 + i] >> 4) * x[i + 16];
        bias += x[i] + x[i + 16];
    }}
    return d * sum + m * bias;
}}

extern "C" int __tvm_ffi_run(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {{
    const auto x = view<float>(args[0]);
    const auto w = view<std::uint8_t>(args[1]);
    auto y = view<float>(args[2]);
    #pragma omp parallel for schedule({schedule})
    for (int row = 0; row < y.size(1); row += {rows}) {{
        for (int r = row; r < row + {rows}; ++r)
            y(0, r) = dot_row(w.row(r), x.row(0));
    }}
    return 0;
}}
"""


def scripted_candidate(definition: str, rows: int, parent: str | None = None, by_model: bool = False) -> Candidate:
    schedule = "static" if rows < 8 else "guided"
    return Candidate(
        definition=definition,
        language="cpp",
        sources=(SourceFile(path="kernel.cpp", content=SOURCE.format(rows=rows, schedule=schedule)),),
        isa="x86-64-v3",
        proposer="model" if by_model else "templates",
        author="SmolLM2-135M-Instruct" if by_model else "_".join([*definition.split("_")[:2], "rows"]),
        parent=parent,
        parameters={} if by_model else {"rows": rows, "schedule": schedule},
    )


class ScriptedSession:
    """Writes a session stage by stage; each method is one stage, in the order of the walk."""

    def __init__(self, folder: Path, started_s_ago: float = 400.0) -> None:
        self.ledger = Ledger.create(
            folder,
            {"model": f"{NAME}.Q4_1.gguf", "minutes": 15.0, "max_attempts": 500, "max_tokens": 4000, "threads": 2},
        )
        self.now = time.time() - started_s_ago
        self.random = random.Random(20)
        self.profile_digest = ""
        self.emit(events.SessionStarted)

    def emit(self, kind: type[events.Event], after_s: float = 0.1, **fields: Any) -> None:
        self.now += after_s
        self.ledger.emit(kind(at=self.now, **fields))

    def begin(self, phase: str, budget_s: float | None = None) -> None:
        self.ledger.begin_step(phase)
        self.emit(events.PhaseStarted, phase=phase, budget_s=budget_s)

    def finish(self, phase: str, seconds: float, result: dict[str, Any]) -> None:
        self.ledger.finish_step(phase, result)
        self.ledger.spend("wall_s", seconds)
        self.emit(events.PhaseEnded, seconds, phase=phase, seconds=seconds)

    def up_to_ranking(self) -> None:
        self.begin("selftest", 30.0)
        self.finish("selftest", 8.4, {"exploits_refused": 12})
        self.begin("incumbent", 60.0)
        self.finish("incumbent", 21.3, {"decode_tok_s": 12.41, "prefill_tok_s": 214.0, "n": 3, "facts": {}})
        self.begin("profile", 45.0)
        profile = scripted_profile()
        self.profile_digest = digest_of(profile)
        self.finish("profile", 17.9, profile.model_dump(mode="json"))
        self.emit(events.ProfileTaken)
        self.begin("capture")
        self.finish("capture", 6.2, {})
        self.begin("rank")
        targets = [target.model_dump(mode="json") for target in scripted_targets(self.profile_digest)]
        self.finish("rank", 0.4, {"targets": targets})
        self.emit(events.TargetsRanked)

    def solve(self, definition: str, best: float, attempts: int = 8) -> None:
        """Search around the family's points, confirm the best, accept it."""
        phase = f"solve:{definition}"
        self.begin(phase, 50.0)
        self.emit(events.ProblemPosed, definition=definition)
        default = self.judge(scripted_candidate(definition, 1), "search", "faster", best * 0.62)
        for n in range(1, attempts):
            outcome, share = self._draw(n, attempts)
            by_model = n % 5 == 4
            candidate = scripted_candidate(definition, n + 1, parent=default if n % 3 == 2 else None, by_model=by_model)
            digest = self.judge(candidate, "search", outcome, best * share)
            self.emit(
                events.ProgressMade, 2.0, phase=phase, done=n + 1, total=attempts, text=f"best {best:.2f}× so far"
            )
        self.judge(candidate, "confirm", "faster", best)
        self.emit(events.KernelAccepted, definition=definition, candidate=digest, ratio=best)
        (confirmed,) = self.ledger.attempts(definition, digest, "confirm")
        result = {"candidate": digest, "verdict": confirmed.verdict, "searched": attempts, "gain_over_default": 1.6}
        self.finish(phase, attempts * 2.1 + 9, result)

    def _draw(self, n: int, attempts: int) -> tuple[Outcome, float]:
        if n == attempts - 1:
            return "faster", 1.0
        outcomes: list[Outcome] = ["faster", "slower", "incorrect", "inconclusive", "invalid", "faster", "suspect"]
        return outcomes[n % len(outcomes)], self.random.uniform(0.5, 0.95)

    def judge(self, candidate: Candidate, phase: Any, outcome: Outcome, ratio: float) -> str:
        digest = self.ledger.put(candidate)
        attempt = self.ledger.begin_attempt(candidate.definition, digest, candidate.proposer, candidate.author, phase)
        if phase == "search":
            self.emit(
                events.CandidateProposed, definition=candidate.definition, candidate=digest,
                proposer=candidate.proposer, author=candidate.author,
            )  # fmt: skip
        verdict = scripted_verdict(digest, phase, outcome, ratio)
        timed = verdict.comparison
        numbers = {"ratio": timed.ratio, "low": timed.low, "high": timed.high} if timed else {}
        self.ledger.finish_attempt(
            attempt, verdict=self.ledger.put(verdict), outcome=outcome, reason=verdict.reason, **numbers
        )
        self.ledger.spend("attempts", 1)
        self.emit(
            events.CandidateJudged, 1.4, definition=candidate.definition, candidate=digest, phase=phase,
            outcome=outcome, reason=verdict.reason, **numbers,
        )  # fmt: skip
        return digest

    def gate(self, passed: bool = True) -> None:
        self.begin("compose")
        chosen = [step.name.partition(":")[2] for step in self.ledger.steps() if step.name.startswith("solve:")]
        bytes_per_token = {"incumbent": 538_000_000, "patched": 96_400_000}
        self.finish("compose", 0.2, {"chosen": chosen, "left_out": {}, "bytes_per_token": bytes_per_token})
        self.begin("gate", 200.0)
        self.emit(events.ProgressMade, phase="gate", done=3, total=8, text="decode at batch 8")
        result = scripted_gate(chosen, passed)
        self.emit(events.GateFinished, passed=passed, reason="; ".join(result.reasons))
        self.finish("gate", 96.0, {"passed": passed, "result": result.model_dump(mode="json")})

    def end(self, committed: bool = True) -> None:
        if committed:
            self.begin("commit")
            patch = {"branch": f"kernelwright/{NAME}", "commit": "5e7a" * 10, "repository": "pack-repository"}
            self.emit(events.PatchCommitted, branch=patch["branch"], commit=patch["commit"])
            self.finish("commit", 3.1, patch)
        self.emit(events.ReportWritten, path="report.html")
        self.ledger.end("done", "every target was tried")


def scripted_profile() -> Profile:
    step = 80_600_000
    slots: list[SlotTime] = []
    phases: tuple[Phase, ...] = ("decode", "prefill")
    for phase, tokens, steps in zip(phases, (1, 128), (64, 4), strict=True):
        for name, share, *_ in SLOTS:
            slots.append(
                SlotTime(
                    definition=name, phase=phase, tokens=tokens, calls=30 * steps, self_ns=int(step * share) * steps
                )
            )
    rest = int(step * 0.03) * 68
    busy = sum(slot.self_ns for slot in slots) + rest
    return Profile(
        engine="embedded", model=NAME, model_digest="0" * 64, configuration="1" * 64,
        machine=Machine(cpu="Synthetic CPU 2-Core", isa="x86-64-v3", cores=2, torch="2.13.0", kernel="6.1"),
        ceilings=Ceilings(
            dram_bytes_per_s=21.4e9, cache_bytes_per_s=88e9, fp32_flops_per_s=140e9, threads=2,
            working_set_bytes=96_000_000,
        ),
        trace="2" * 64, busy_ns=busy, unattributed_ns=rest, steps={"decode": 64, "prefill": 4},
        step_ns={"decode": step * 64, "prefill": step * 4}, step_ms_profiled=84.1, step_ms_unprofiled=80.6,
        slots=tuple(slots),
    )  # fmt: skip


def scripted_targets(profile: str) -> list[Target]:
    phases: tuple[Phase, ...] = ("decode", "prefill")
    targets = []
    for phase in phases:
        for name, share, headroom, bound, excluded, _ in SLOTS:
            part = share if phase == "decode" else share * 0.4
            now = 80_600_000 * share / 30
            targets.append(
                Target(
                    profile=profile, definition=name, phase=phase, tokens=1 if phase == "decode" else 128, share=part,
                    ns_per_call=now, headroom=headroom, roofline_ns=now / headroom if headroom else None, bound=bound,
                    ceiling=1 / (1 - part + (part / headroom if headroom else 0)), reachable=True, excluded=excluded,
                )
            )  # fmt: skip
    return sorted(targets, key=lambda target: -target.share)


def scripted_verdict(candidate: str, phase: Any, outcome: Outcome, ratio: float) -> Verdict:
    ratio = {"slower": 0.81, "inconclusive": 1.004}.get(outcome, max(ratio, 1.06))
    reasons = {
        "faster": "faster than the incumbent",
        "slower": "slower than the incumbent",
        "inconclusive": "the interval holds 1",
        "incorrect": "wrong in row 17 of the output y on random inputs",
        "suspect": "faster than the memory this data lives in",
        "invalid": "does not compile",
    }
    timed = outcome in ("faster", "slower", "inconclusive", "suspect")
    wrong = outcome == "incorrect"
    return Verdict(
        problem="3" * 64, candidate=candidate, phase=phase, outcome=outcome, reason=reasons[outcome], isolation="L3",
        isolation_facts={"uid": "65534", "net": "own"}, binary=None if outcome == "invalid" else "4" * 64,
        evaluations=(
            Evaluation(
                workload="captured-decode-0", status="COMPILE_ERROR" if outcome == "invalid" else "PASSED",
                log="kernel.cpp:14:5: error: expected ';' before '}' token" if outcome == "invalid" else "",
                correctness=None if outcome == "invalid" else _error(2e-6),
            ),
            Evaluation(
                workload="hidden-batch-7", status="INCORRECT_NUMERICAL" if wrong else "PASSED",
                correctness=_error(0.7 if wrong else 3e-6),
            ),
        )[: 1 if outcome == "invalid" else 2],
        comparison=Comparison(
            ratio=ratio, low=ratio * 0.975, high=ratio * 1.022, n=240, launches=3, floor=0.012,
            incumbent_us=838.0, candidate_us=838.0 / ratio, level="kernel",
        ) if timed else None,
        prepare_ms=None, packed_bytes=1_105_920, seconds=1.9,
    )  # fmt: skip


def _error(size: float) -> Correctness:
    return Correctness(max_relative_error=size, max_absolute_error=size * 1.5)


def scripted_gate(chosen: list[str], passed: bool) -> GateResult:
    names = ("decode", "decode_batch8", "prefill")
    fidelity = tuple(_fidelity(name, 3.1e-9 if passed or name != "prefill" else 3.0e-6) for name in names)
    return GateResult(
        pack="6" * 64, model_digest="0" * 64, state="pass" if passed else "refuse",
        reasons=() if passed else ("prefill: mean KLD 3.00e-06 > 1e-06",), isolation="L3", isolation_facts={},
        decode=EngineComparison(
            kind="decode", incumbent_tok_s=12.41, patched_tok_s=41.8, ratio=3.37, low=3.31, high=3.42, n=40, launches=4,
            floor=0.011, prompt_tokens=128, new_tokens=128, pairs=(),
        ),
        prefill=EngineComparison(
            kind="prefill", incumbent_tok_s=214.0, patched_tok_s=231.0, ratio=1.08, low=1.05, high=1.11, n=40,
            launches=4, floor=0.013, prompt_tokens=256, new_tokens=1, pairs=(),
        ),
        fidelity=fidelity, rulings={phase.phase: rule(phase) for phase in fidelity},
        kernels=tuple(
            LiveKernel(definition=name, candidate="7" * 64, state="live", hits=3840 * (n + 1), confirmed=True)
            for n, name in enumerate(chosen)
        ),
        generation=GenerationCheck(
            prompts=0, max_tokens=48, identical=0, first_divergence=(), incumbent=(), patched=()
        ),
        resident_bytes=(910_000_000, 760_000_000), ready_s=(4.1, 6.0), threads=2, seconds={"speed": 50.0},
    )  # fmt: skip


def _fidelity(phase: str, mean_kld: float) -> PhaseFidelity:
    return PhaseFidelity(
        phase=phase, tokens=8192, documents=32, mean_kld=mean_kld, median_kld=mean_kld / 2,
        p99_kld=4e-8, p999_kld=8.7e-8, max_kld=2e-7, histogram=(0,) * 18, top1=1.0,
        mismatches=0, mismatches_beyond_ties=0, largest_mismatch_margin=0.0,
        ln_ppl_ratio=-1.2e-6, ln_ppl_interval=(-3e-6, 1e-6), rms_delta_p=1e-6, mean_delta_p=0.0,
        mean_delta_p_interval=(-1e-7, 1e-7), non_finite=0, first_quarter_kld=mean_kld, last_quarter_kld=mean_kld,
        null_kld=2.2e-9, null_p999_kld=5e-8, null_max_kld=1e-7, null_tokens=2048,
    )  # fmt: skip


def write_live(folder: Path) -> ScriptedSession:
    """Write a session in the middle of its fourth problem, its writer still at work."""
    session = ScriptedSession(folder, started_s_ago=330)
    with session.ledger.transaction():
        session.up_to_ranking()
        for name, _, _, _, _, best in SLOTS[:3]:
            session.solve(name, best)
    name = SLOTS[3][0]
    session.begin(f"solve:{name}", 50.0)
    session.judge(scripted_candidate(name, 1), "search", "faster", 2.1)
    session.judge(scripted_candidate(name, 2), "search", "incorrect", 2.1)
    session.emit(events.ProgressMade, phase=f"solve:{name}", done=2, total=24, text="best 2.10× by q4_1_linear_rows")
    return session


def write_finished(folder: Path, passed: bool = True) -> None:
    """Write a session that went through to its report."""
    session = ScriptedSession(folder, started_s_ago=660)
    # One transaction, because a real session's few hundred commits would each wait for the disk here.
    with session.ledger.transaction():
        session.up_to_ranking()
        for name, _, _, _, excluded, best in SLOTS:
            if excluded is None:
                session.solve(name, best)
        session.gate(passed)
        session.end(committed=passed)
    session.ledger.close()


if __name__ == "__main__":
    write_finished(Path(sys.argv[1]))
