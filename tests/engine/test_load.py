from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.load import Measurement, Shape, measure_decode, measure_mixed, measure_prefill
from kernelwright.engine.scripted import ScriptedEngine, serve_scripted


@contextmanager
def connected(engine: ScriptedEngine) -> Iterator[EngineClient]:
    with serve_scripted(engine) as url, EngineClient(url, timeout_s=20) as client:
        while not client.is_healthy():
            time.sleep(0.01)
        yield client


def test_decode_follows_the_engines_pace() -> None:
    engine = ScriptedEngine(step_s=0.02)
    with connected(engine) as client:
        taken = measure_decode(client, prompt_tokens=20, new_tokens=16, repeats=2)
    assert [(m.prompt_tokens, m.new_tokens, len(m.itl_s)) for m in taken] == [(20, 16, 15)] * 2
    for m in taken:
        assert m.decode_tok_s == pytest.approx(15 / sum(m.itl_s))
    # No step is shorter than 20 ms: no honest clock may show less.
    assert all(m.ttft_s >= 0.02 and m.total_s >= 16 * 0.02 for m in taken)


def test_every_prompt_is_new_and_a_seed_repeats_them() -> None:
    engine = ScriptedEngine()
    with connected(engine) as client:
        for seed in (1, 1, 2):
            measure_prefill(client, prompt_tokens=30, repeats=3, seed=seed)
    prompts = [tuple(prompt) for prompt, _ in engine.submitted]
    assert prompts[:3] == prompts[3:6]
    assert len(set(prompts)) == 6
    assert all(sampling.ignore_eos and sampling.temperature == 0 for _, sampling in engine.submitted)


def test_prefill_is_prompt_over_time_to_first_token() -> None:
    with connected(ScriptedEngine(step_s=0.05)) as client:
        (taken,) = measure_prefill(client, prompt_tokens=100, repeats=1)
    assert taken.new_tokens == 1
    assert taken.prefill_tok_s == taken.tok_s <= 100 / 0.05


def test_mixed_lengths_at_once() -> None:
    shapes = [Shape(10, 5), Shape(50, 20), Shape(3, 8), Shape(80, 1)]
    with connected(ScriptedEngine(step_s=0.01)) as client:
        url = str(client.http.base_url)
        taken = measure_mixed(lambda: EngineClient(url, timeout_s=20), shapes, concurrency=3)
    assert [Shape(m.prompt_tokens, m.new_tokens) for m in taken.requests] == shapes
    assert 0 < taken.output_tok_s < taken.total_tok_s
    assert taken.output_tok_s == pytest.approx(34 / taken.seconds)


class Stubborn(ScriptedEngine):
    """Ends early whatever it is asked."""

    def submit(self, request, token_ids, sampling):  # type: ignore[no-untyped-def]
        import msgspec

        super().submit(request, token_ids, msgspec.structs.replace(sampling, ignore_eos=False))


def test_an_answer_that_ends_early_is_no_measurement() -> None:
    with connected(Stubborn()) as client, pytest.raises(EngineFailed, match="asked for 30 tokens, got 7"):
        measure_decode(client, prompt_tokens=5, new_tokens=30, repeats=1)


def test_what_has_no_rate_says_so() -> None:
    with pytest.raises(ValueError, match="two new tokens"):
        measure_decode(None, new_tokens=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no decode rate"):
        _ = Measurement(kind="prefill", prompt_tokens=1, new_tokens=1, ttft_s=1, total_s=1).decode_tok_s
