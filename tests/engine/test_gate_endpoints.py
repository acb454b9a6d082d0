"""Two running servers compared by what they show: lower bounds that hold, differences that are found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.engine.bench import Target
from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.gate_endpoints import gate_endpoints, time_endpoints
from kernelwright.engine.gate_openai import Endpoint, prompts_of, rows_until_they_part
from kernelwright.engine.gate_row import compare_row
from kernelwright.engine.gate_texts import KINDS
from kernelwright.engine.gate_top import Top, compare_top
from kernelwright.engine.scripted import ScriptedEngine, serve_scripted

Arm = tuple[str, EngineClient, Target]


def top_of(logits: np.ndarray, shown: int) -> Top:
    logprobs = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    best = np.argsort(-logprobs)[:shown]
    return Top({f"t{i}": float(logprobs[i]) for i in best}, f"t{best[0]}", float(logprobs[best[0]]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-3, 1e-1, 1.0]), st.sampled_from([1, 5, 20, 400]))
def test_what_is_shown_is_a_lower_bound_and_exact_when_all_is_shown(seed: int, noise: float, shown: int) -> None:
    generator = np.random.default_rng(seed)
    base = (generator.standard_normal(400) * 3).astype(np.float32)
    new = (base + generator.standard_normal(400) * noise).astype(np.float32)
    whole, part = compare_row(base, new, None, "d", 1), compare_top(top_of(base, shown), top_of(new, shown), "d", 1)
    assert part.kld <= whole.kld * (1 + 1e-6) + 1e-9
    assert part.agrees == whole.agrees
    if shown == 400:
        assert part.kld == pytest.approx(whole.kld, rel=1e-3, abs=1e-9)
        assert part.entropy[0] == pytest.approx(whole.entropy[0], rel=1e-3)


def test_the_same_answer_is_the_same_and_no_numbers_are_no_agreement() -> None:
    top = Top({"a": math.log(0.5), "b": math.log(0.25)}, "a", math.log(0.5))
    same = compare_top(top, top, "d", 0)
    assert same.kld == 0.0 and same.identical and same.agrees and same.margin == pytest.approx(0.25)
    assert same.same_draws == 2 and same.has_target and same.delta_p == 0.0
    for broken in (Top({}), Top({"a": math.nan})):
        assert compare_top(top, broken, "d", 0).degenerate and compare_top(broken, top, "d", 0).degenerate


def test_answers_are_compared_as_long_as_both_have_read_the_same() -> None:
    a = [Top({"x": -0.1, "y": -3.0}, "x", -0.1), Top({"x": -0.7, "y": -0.8}, "x", -0.7), Top({"x": -0.1}, "x", -0.1)]
    b = [Top({"x": -0.1, "y": -3.0}, "x", -0.1), Top({"y": -0.7, "x": -0.8}, "y", -0.7), Top({"z": -0.1}, "z", -0.1)]
    rows = rows_until_they_part(a, b, "d")
    assert [row.agrees for row in rows] == [True, False] and rows[1].has_target is False


def test_prompts_are_of_all_kinds_and_lengths() -> None:
    prompts = list(prompts_of(5))
    assert {name.split("@")[0] for name, _ in prompts} == set(KINDS) and len(prompts) == 25
    assert min(len(text) for _, text in prompts) <= 60 and max(len(text) for _, text in prompts) >= 900


@pytest.fixture
def serve() -> Iterator[object]:
    with ExitStack() as stack:

        def start(**script: object) -> Arm:
            url = stack.enter_context(serve_scripted(ScriptedEngine(**script), max_model_len=8192))  # type: ignore[arg-type]
            client = stack.enter_context(EngineClient(url, timeout_s=30.0))
            return url, client, Target(url, client.model, fields={"temperature": 0, "ignore_eos": True})

        yield start


def test_a_server_passes_beside_itself_and_another_one_is_refused(serve) -> None:  # type: ignore[no-untyped-def]
    good, bad = serve(), serve(says=lambda prompt: [*b"something else altogether"])
    same = gate_endpoints(good, good, precision="fp32", speed=False, prefill_tokens=5000, prompts=2)
    assert same.state == "pass", same.reasons
    assert {phase.phase for phase in same.fidelity} == {"decode", "decode_batch8", "prefill"}
    assert same.fidelity[2].tokens >= 5000 and same.shown <= 20
    other = gate_endpoints(good, bad, precision="fp32", speed=False, prefill_tokens=5000, prompts=2)
    assert other.state == "refuse" and any("decode" in reason for reason in other.reasons)


class Mute(Endpoint):
    def read(self, text: str) -> None:
        return None


def test_a_server_without_echo_is_reviewed(serve, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("kernelwright.engine.gate_endpoints.Endpoint", Mute)
    found = gate_endpoints(serve(), serve(), precision="fp32", speed=False, prompts=1)
    assert found.state == "review" and "prefill was not compared" in found.reasons[-1]


@pytest.mark.alone
def test_two_servers_are_timed_by_turns(serve) -> None:  # type: ignore[no-untyped-def]
    timings = time_endpoints(serve(step_s=0.004)[2], serve(step_s=0.001)[2], rounds=3)
    assert timings.compare("decode").low > 1.2 and timings.compare("decode").n == timings.compare("prefill").n == 6


def test_a_server_that_refuses_is_an_error_with_a_reason(serve) -> None:  # type: ignore[no-untyped-def]
    _, _, target = serve()
    target.model = "nobody"
    with pytest.raises(EngineFailed, match="nobody"):
        time_endpoints(target, target, rounds=1)
