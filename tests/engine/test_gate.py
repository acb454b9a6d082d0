"""The gate's parts on scripted engines, and the whole gate on a tiny model in real cages."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelwright.engine.client import EngineClient, EngineFailed, ScoreRow
from kernelwright.engine.gate import run_gate
from kernelwright.engine.gate_collapse import Generation, describe, find_alarms, find_set_alarms
from kernelwright.engine.gate_generate import GenerationCheck, compare_generations, first_divergence
from kernelwright.engine.gate_judge import judge_rest, judge_speed
from kernelwright.engine.gate_limits import rule
from kernelwright.engine.gate_liveness import LiveKernel, count_hits
from kernelwright.engine.gate_modes import ModeDrift, compare_modes, judge_modes, measure_modes, mode_runs, null_of
from kernelwright.engine.gate_score import Scores
from kernelwright.engine.gate_speed import EngineComparison, Timings, time_launch
from kernelwright.engine.gate_texts import Library, plan_batched, plan_decode, plan_prefill
from kernelwright.engine.scripted import ScriptedEngine, serve_scripted
from kernelwright.profiles.errors import BrokenInput


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(lambda text: list(text.encode()))


class Noisy:
    """Logits made from the tokens so far, plus noise that depends on how many sequences go together."""

    def __init__(self, noise: float = 1e-6, damage: Callable[[int, np.ndarray], np.ndarray] | None = None) -> None:
        self.noise, self.damage, self.rows = noise, damage, 0

    def score(
        self, sequences: Sequence[Any], phase: Any, what: str = "logits", chunk: Any = None
    ) -> Iterator[ScoreRow]:
        for number, (prompt, forced) in enumerate(sequences):
            tokens = prompt if phase == "prefill" else (*prompt, *forced)
            for position in range(0 if phase == "prefill" else len(prompt), len(tokens)):
                seed = hash(tuple(tokens[: position + 1])) % 2**32
                clean = np.random.default_rng(seed).standard_normal(300) * 3
                wiggle = (
                    np.random.default_rng([seed, len(sequences), len(phase), chunk or 0]).standard_normal(300)
                    * self.noise
                )
                logits = (clean + wiggle).astype(np.float32)
                self.rows += 1
                yield ScoreRow(number, position, self.damage(self.rows, logits) if self.damage else logits)


def scores(library: Library, incumbent: Noisy, patched: Noisy) -> Scores:
    found = Scores()
    for run in (*plan_decode(library, 100, 500), *plan_batched(library, 1024, 500), *plan_prefill(library, 600, 500)):
        found.add(run, incumbent, patched)
    return found


def test_the_same_engine_passes_beside_its_null(library: Library) -> None:
    calm = measure_modes(list(mode_runs(library, 500)), Noisy())
    null = {phase: null_of(phase, calm) for phase in ("decode", "decode_batch8", "prefill")}
    phases = scores(library, Noisy(), Noisy()).fidelity(null)
    assert [phase.phase for phase in phases] == ["decode", "decode_batch8", "prefill"]
    for phase in phases:
        assert phase.mean_kld == 0.0 and phase.top1 == phase.identical == 1.0 and rule(phase).state == "pass"
        assert phase.null_tokens >= 192 and 1e-14 < phase.null_kld < 1e-10


def test_one_wrong_row_among_hundreds_is_refused(library: Library) -> None:
    def wrong_once(row: int, logits: np.ndarray) -> np.ndarray:
        return logits[::-1].copy() if row == 700 else logits

    found = scores(library, Noisy(), Noisy(damage=wrong_once)).fidelity({})
    assert {phase.phase: rule(phase).state for phase in found} == {
        "decode": "pass", "decode_batch8": "refuse", "prefill": "pass",
    }  # fmt: skip


class Moody(Noisy):
    """Answers the same question differently each time."""

    def score(
        self, sequences: Sequence[Any], phase: Any, what: str = "logits", chunk: Any = None
    ) -> Iterator[ScoreRow]:
        self.calls = getattr(self, "calls", 0) + 1
        for row in super().score(sequences, phase, what, chunk):
            mood = np.random.default_rng([self.calls, row.position]).standard_normal(300) * self.mood
            yield ScoreRow(row.sequence, row.position, (row.logits + mood).astype(np.float32))


@pytest.mark.parametrize(
    ("noise", "mood", "states"),
    [
        (1e-6, 0.0, []),
        (1e-2, 0.0, ["refuse"] * 4),  # depends on who else is in the batch, on chunks, on the phase
        (1e-6, 1e-5, ["review"]),  # not the same twice, though as near as rounding
        (1e-6, 1e-2, ["refuse"] * 5),
    ],
)
def test_an_engine_less_invariant_than_the_incumbent_is_told(
    library: Library, noise: float, mood: float, states: list[str]
) -> None:
    runs, patched = list(mode_runs(library, 500)), Moody(noise)
    patched.mood = mood
    modes = compare_modes(measure_modes(runs, Noisy()), measure_modes(runs, patched))
    assert [mode.mode for mode in modes] == ["together", "neighbours", "prefill", "chunked", "again"]
    assert modes[-1].incumbent_identical == 1.0 and modes[0].tokens == 96 and modes[-1].tokens == 192
    assert [state for state, _ in judge_modes(modes)] == states


def test_a_mode_that_gives_no_numbers_is_refused() -> None:
    broken = ModeDrift(
        mode="again", tokens=8, incumbent_kld=0, patched_kld=float("nan"), incumbent_max=0, patched_max=0,
        incumbent_identical=1, patched_identical=0,
    )  # fmt: skip
    assert judge_modes([broken])[0][0] == "refuse"


class Shirking(Noisy):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def score(
        self, sequences: Sequence[Any], phase: Any, what: str = "logits", chunk: Any = None
    ) -> Iterator[ScoreRow]:
        rows = list(super().score(sequences, phase, what, chunk))
        if self.kind == "leaves one out":
            return iter(rows[:-1])
        if self.kind == "says one twice":
            return iter([*rows, rows[-1]])
        return iter([ScoreRow(row.sequence, row.position + 7, row.logits) for row in rows])


@pytest.mark.parametrize("kind", ["leaves one out", "says one twice", "answers something else"])
def test_an_engine_that_does_not_answer_what_was_asked_is_refused(library: Library, kind: str) -> None:
    with pytest.raises(EngineFailed, match=r"left out|not asked for"):
        scores(library, Noisy(), Shirking(kind))


def comparison(kind: str, low: float, high: float, floor: float = 0.0) -> EngineComparison:
    return EngineComparison(
        kind=kind, incumbent_tok_s=10, patched_tok_s=10, ratio=(low + high) / 2, low=low, high=high, n=6, launches=3,
        floor=floor, prompt_tokens=128, new_tokens=128, pairs=(),
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("decode", "prefill", "states"),
    [
        ((2.9, 3.3), (0.98, 1.02), []),
        ((0.99, 1.01), (1.2, 1.3), []),
        ((0.99, 1.01), (0.99, 1.01), ["refuse"]),  # nothing gained
        ((1.005, 1.02), (0.99, 1.01), ["refuse"]),  # less than one per cent
        ((2.9, 3.3), (0.90, 0.96), ["refuse"]),  # prefill slower
        ((2.9, 3.3), (0.93, 1.05), ["review"]),  # prefill may be slower
        ((0.80, 0.90), (1.2, 1.3), ["refuse"]),  # decode slower
    ],
)
def test_speed_rules(decode: tuple[float, float], prefill: tuple[float, float], states: list[str]) -> None:
    found = judge_speed(comparison("decode", *decode), comparison("prefill", *prefill))
    assert [state for state, _ in found] == states


def test_a_gain_below_this_hosts_own_noise_is_none() -> None:
    calm = comparison("prefill", 0.99, 1.01)
    assert judge_speed(comparison("decode", 1.1, 1.2, floor=0.02), calm) == []
    assert judge_speed(comparison("decode", 1.1, 1.2, floor=0.15), calm)[0][0] == "refuse"


def generation(**more: Any) -> Generation:
    return Generation(
        **{"tokens": 48, "finish": "length", "longest_run": 2, "repeated_4grams": 0.1, "replacement_characters": 0}
        | more
    )


@pytest.mark.parametrize(
    ("patched", "alarms"),
    [
        (generation(), 0),
        (generation(longest_run=17), 1),
        (generation(repeated_4grams=0.8), 1),
        (generation(replacement_characters=9), 1),
        (generation(finish="stop"), 1),
        (generation(compression=3.0), 1),
        (generation(odd_characters=4), 1),
    ],
)
def test_collapse_is_seen_against_the_incumbent(patched: Generation, alarms: int) -> None:
    assert len(find_alarms(generation(), patched, same_text=True)) == alarms
    assert find_alarms(patched, patched, same_text=True) == []  # an incumbent that does the same is no news


@pytest.mark.parametrize(
    ("change", "alarms"),
    [({}, 0), ({"vocabulary": 20}, 1), ({"vocabulary": 90}, 0), ({"tokens": 40}, 1), ({"repeated_4grams": 0.3}, 1)],
)
def test_all_answers_together_are_compared(change: dict[str, Any], alarms: int) -> None:
    before = [generation(vocabulary=30)] * 8
    assert len(find_set_alarms(before, [generation(**{"vocabulary": 30, **change})] * 8)) == alarms


def test_generations_are_described() -> None:
    seen = describe([7] * 20, "aaaa\x07\ufffd" * 40, "stop")
    assert (seen.tokens, seen.finish, seen.longest_run, seen.vocabulary) == (20, "stop", 20, 1)
    assert seen.repeated_4grams == 1 - 1 / 17 and seen.replacement_characters == seen.odd_characters == 40
    assert seen.compression > 10
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 9, 3]) == 1 and first_divergence([1, 2], [1, 2, 3]) == 2


def calm_generation() -> GenerationCheck:
    one = (generation(),)
    return GenerationCheck(prompts=1, max_tokens=48, identical=1, first_divergence=(None,), incumbent=one, patched=one)


def test_a_pack_that_does_nothing_and_a_weak_cage_are_no_pass() -> None:
    live = LiveKernel(definition="d", candidate="c", state="live", hits=3)
    idle = LiveKernel(definition="e", candidate="f", state="failed", hits=0)
    assert judge_rest([live, idle], calm_generation(), "L3") == []
    assert judge_rest([idle], calm_generation(), "L3")[0][0] == "refuse"
    assert judge_rest([live], calm_generation(), "L1")[0][0] == "review"


def test_a_prefix_cache_that_changes_answers_is_no_pass() -> None:
    live = [LiveKernel(definition="d", candidate="c", state="live", hits=3)]
    for drift, states in (((1e-5, 2e-5), []), ((1e-5, 2e-2), ["review"]), ((1e-2, 2e-2), [])):
        check = calm_generation().model_copy(update={"cached_drift": drift})
        assert [state for state, _ in judge_rest(live, check, "L3")] == states


def test_hits_are_those_of_the_scoring_run() -> None:
    kernel = {
        "definition": "d",
        "candidate": "c",
        "state": "live",
        "hits": 5,
        "fallbacks": {"out of range": 2},
        "reason": "",
    }
    none = {"definition": "e", "candidate": None, "state": "incumbent-only", "hits": 0, "fallbacks": {}}
    after = kernel | {"hits": 12, "fallbacks": {"out of range": 2, "failed": 1}}
    (live,) = count_hits({"kernels": [kernel, none]}, {"kernels": [after, none]})
    assert live.hits == 7 and live.fallbacks == {"failed": 1}


class Served:
    """A scripted engine behind the real front end, with the face of a caged one."""

    def __init__(self, url: str) -> None:
        self.url, self.calls = url, []

    def client(self, timeout_s: float = 30.0) -> EngineClient:
        return EngineClient(self.url, timeout_s=timeout_s)

    def stop(self) -> None:
        self.calls.append("stop")

    def resume(self) -> None:
        self.calls.append("resume")


def serve(stack: ExitStack, **script: Any) -> Served:
    return Served(stack.enter_context(serve_scripted(ScriptedEngine(**script), max_model_len=1024)))


@pytest.mark.alone
def test_times_both_engines_over_http_in_turn() -> None:
    timings, pairs = Timings(), []
    with ExitStack() as stack:
        slow, fast = serve(stack, step_s=0.004), serve(stack, step_s=0.001)
        for _ in range(2):
            time_launch(timings, slow, fast, {"decode": 1}, lambda: pairs.append(1))
    decode = timings.compare("decode")
    assert (decode.n, decode.launches, len(pairs)) == (4, 2, 4)
    assert 1.2 < decode.low <= decode.ratio <= decode.high < 9
    assert slow.calls[-1] == fast.calls[-1] == "resume" and slow.calls.count("stop") >= 6


def test_generations_of_two_engines_over_http() -> None:
    def broken(prompt: list[int]) -> list[int]:
        return [65]

    with ExitStack() as stack:
        good, bad = serve(stack, says=lambda prompt: [*b"Paris is a city on the Seine."]), serve(stack, says=broken)
        same = compare_generations(good.client, good.client)
        check = compare_generations(good.client, bad.client)
    assert same.identical == same.prompts == 16 and not same.alarms and same.drawn_identical == same.drawn
    assert same.cached_drift == (0.0, 0.0)
    assert check.identical == 0 and len(check.alarms) >= 16 and "64 times in a row" in check.alarms[0]
    assert any("all answers together: vocabulary" in alarm for alarm in check.alarms)


RIGHT_AT_FIRST = """
  static long calls = 0;
  if (x.size[0] == 1 && ++calls > 400) y.data[0] += 1.0f;
"""


def gate(tmp_path: Path, make_tiny_model: Callable[..., Path], source: str, **more: Any) -> Any:
    packing = load("packing")
    model = make_tiny_model(tmp_path / "tiny.gguf", metadata={"llama.context_length": 2048})
    tmp_path.chmod(0o755)
    pack = packing.make_pack(tmp_path / "pack", 64, source=source)
    return run_gate(
        model, pack, session_dir=tmp_path / "session", threads=1, cache_dir=tmp_path / "cache", **more
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.cage
@pytest.mark.timeout(600)
def test_a_right_kernel_is_live_and_true_in_the_engine(tmp_path: Path, make_tiny_model: Callable[..., Path]) -> None:
    result = gate(tmp_path, make_tiny_model, load("packing").SOURCE, budget_s=300)
    assert {name: ruling.state for name, ruling in result.rulings.items()} == dict.fromkeys(
        ("decode", "decode_batch8", "prefill"), "pass"
    )
    (kernel,) = result.kernels
    assert kernel.hits > 1000 and kernel.confirmed and kernel.decode_tok_s_without
    assert 0 < result.fidelity[0].mean_kld < 1e-8 and result.fidelity[0].null_kld > 0
    assert result.isolation == "L3" and min(result.resident_bytes) > 10**8
    assert result.decode.launches == result.prefill.launches == 3 and result.decode.n >= 6
    assert (tmp_path / "session" / "gate.json").read_text().startswith("{")


@pytest.mark.slow
@pytest.mark.cage
@pytest.mark.timeout(600)
def test_a_kernel_that_turns_wrong_once_it_is_live_is_refused(
    tmp_path: Path, make_tiny_model: Callable[..., Path]
) -> None:
    source = load("packing").SOURCE.rstrip().removesuffix("}") + RIGHT_AT_FIRST + "}\n"
    result = gate(tmp_path, make_tiny_model, source, budget_s=1, leave_one_out=False)
    assert result.state == "refuse" and not result.passed
    assert result.rulings["decode"].state == "refuse", result.rulings


def test_a_pack_without_a_kernel_for_this_machine_is_told(tmp_path: Path) -> None:
    packing = load("packing")
    problem = packing.make_problem(64)
    candidate = packing.make_candidate(problem, isa="armv8.2")
    from kernelwright.engine.pack import write_kernel

    verdict = packing.make_verdict(problem, candidate, "b" * 64)
    write_kernel(tmp_path / "pack", candidate, verdict, problem, model_digest="0" * 64, hardware="elsewhere")
    with pytest.raises(BrokenInput, match="no kernel for this machine"):
        run_gate(tmp_path / "none.gguf", tmp_path / "pack", session_dir=tmp_path, cache_dir=tmp_path / "cache")
