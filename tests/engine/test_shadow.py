"""Live calls of kernels beside the reference: the wrong one goes, the right one stays, nobody knows which is next."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from kernelwright.engine.dispatch import KernelState
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.shadow import Shadow
from kernelwright.profiles.errors import WrongUse

_spec = importlib.util.spec_from_file_location("planting", Path(__file__).with_name("planting.py"))
assert _spec is not None and _spec.loader is not None
planting = importlib.util.module_from_spec(_spec)
sys.modules["planting"] = planting
_spec.loader.exec_module(planting)
fault_after, kernels_of = planting.fault_after, planting.kernels_of

HEAD, DOWN, NORM = "q8_0_linear_n300_k64", "q4_1_linear_n64_k96", "add_rmsnorm_h64"
ROPE, DECODE = "rope_cache_q2_kv1_d32_p16", "decode_attention_q2_kv1_d32_p16"
MLP, ATTENTION = "q4_1_mlp_block_f96_h64", "q4_1_attention_block_h64_q2_kv1_d32_p16"
PROMPTS = [list(range(20, 60)), list(range(100, 119)), [7, 8, 9]]


def say(engine: LLMEngine, new: int = 12) -> list[list[int | None]]:
    """Return what the engine answers to three prompts at once, greedily."""
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=new, ignore_eos=True))
    said: dict[str, list[int | None]] = {str(index): [] for index in range(len(PROMPTS))}
    while engine.has_work():
        for output in engine.step():
            said[output.request_id].append(output.token_id)
    return list(said.values())


def state(engine: LLMEngine, name: str) -> KernelState:
    return next(s for s in engine.kernels() if s.definition == name)


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[list[int | None]]:
    return say(LLMEngine(tiny_model, num_pages=32))


# ---- right kernels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [None, [MLP, ATTENTION]], ids=["ops", "regions"])
def test_right_kernels_are_checked_in_both_phases_and_every_layer_and_stay(
    tiny_model: Path, expected: list[list[int | None]], names: list[str] | None
) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model, names), num_pages=32, shadow=1.0)
    heard: list[str] = []
    engine.watch.say = heard.append
    assert say(engine) == expected and heard == []
    for found in engine.kernels():
        if found.candidate is not None:
            assert found.state == "live" and sum(found.checks.values()) == found.hits > 0
            assert found.checked_layers == (1 if found.definition == HEAD else 3 if found.definition == NORM else 2)
    assert state(engine, names[0] if names else NORM).checks.keys() == {"prefill", "decode"}


@pytest.mark.weights
def test_real_activations_trip_nothing(smollm2: Path) -> None:
    engine = LLMEngine(smollm2, kernels_of(smollm2), num_pages=64, shadow=1.0)
    heard: list[str] = []
    engine.watch.say = heard.append
    engine.add_request("a", engine.tokenizer.encode("The capital of France is"), SamplingParams(max_tokens=3))
    while engine.has_work():
        engine.step()
    assert heard == [] and engine.shadow.seconds > 0


# ---- wrong kernels --------------------------------------------------------------------------------------------------

FAULTS = {
    "one row slightly": (DOWN, "outputs[0][-1, 3] *= 1.01; outputs[0][-1, :3] += 0.01"),
    "a wrong value in the cache": (ROPE, "inputs[6].view(-1, 1, 32)[inputs[4][-1:], :, 5] += 0.5"),
    "another page of the cache": (ROPE, "inputs[5][10:] += 0.25"),
    "its input": (NORM, "inputs[0].mul_(1.5)"),
    "no value": (DECODE, "outputs[0][0, 1, 3] = float('nan')"),
    "an infinite one": (MLP, "outputs[0][0, 0] = float('inf')"),
    "an error": (HEAD, "raise RuntimeError('a device is gone')"),
    "a shape": (ATTENTION, "outputs = (outputs[0][:, :-1].contiguous(), outputs[1])"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_goes_and_the_text_is_the_incumbents(
    tiny_model: Path, expected: list[list[int | None]], name: str
) -> None:
    definition, fault = FAULTS[name]
    packs = kernels_of(tiny_model, [definition], fault_after(9, fault))
    engine = LLMEngine(tiny_model, packs, num_pages=32, shadow=1.0)
    heard: list[str] = []
    engine.watch.say = heard.append
    assert engine.check_kernels() == [], "the check at load does not see it"
    assert say(engine) == expected
    found = state(engine, definition)
    kind = {"no value": "not_finite", "an infinite one": "not_finite", "an error": "raised"}.get(name, "shadow")
    assert found.state == "tripped" and found.trips == {kind: 1} and found.tripped_at
    assert found.fallbacks["tripped"] > 0 and "layer" in found.reason
    assert len([text for text in heard if "switched off" in text]) == 1 and found.reason in heard[0]
    assert engine.stats()["pages"] | {"held": 0} == engine.stats()["pages"], "all pages came back"


def test_without_shadow_checks_the_wrong_kernel_would_speak(tiny_model: Path, expected: list[list[int | None]]) -> None:
    packs = kernels_of(tiny_model, [HEAD], fault_after(9, "outputs[0][:, 65] += 1e3"))
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    said = say(engine)
    assert said != expected and said[0][-3:] == [65, 65, 65] and state(engine, HEAD).state == "live"


def test_what_was_said_before_stays_and_all_else_is_computed_anew(tiny_model: Path) -> None:
    """A kernel that poisons the cache for a while before it is seen: the answer goes on as the incumbent's would."""
    packs = kernels_of(tiny_model, [ROPE], fault_after(9, "inputs[6].view(-1, 1, 32)[inputs[4]] *= -1"))
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    engine.add_request("a", PROMPTS[0], SamplingParams(max_tokens=24, ignore_eos=True))
    said = [output.token_id for _ in range(12) for output in engine.step()]
    engine.shadow.rate = 1.0
    while engine.has_work():
        said += [output.token_id for output in engine.step()]
    plain = LLMEngine(tiny_model, num_pages=32)
    plain.add_request("a", [*PROMPTS[0], *[t for t in said[:12] if t is not None]], SamplingParams(12, ignore_eos=True))
    rest = []
    while plain.has_work():
        rest += [output.token_id for output in plain.step()]
    assert state(engine, ROPE).state == "tripped" and said[12:] == rest
    engine.add_request("b", PROMPTS[0], SamplingParams(max_tokens=1))
    assert engine.step()[0].num_cached == 32, "of what was computed since"


def test_nothing_of_a_wrong_kernel_is_found_in_the_prefix_cache(tiny_model: Path) -> None:
    packs = kernels_of(tiny_model, [ROPE], fault_after(9, "inputs[6].view(-1, 1, 32)[inputs[4]] *= -1"))
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    say(engine)
    assert engine.stats()["pages_known"] > 0
    engine.shadow.rate = 1.0
    engine.add_request("b", PROMPTS[0], SamplingParams(max_tokens=1))
    assert engine.step() == []
    outputs = engine.step()
    assert outputs[0].num_cached == 0


# ---- logits that are not finite --------------------------------------------------------------------------------------


def test_a_kernel_whose_values_are_not_finite_is_found_without_shadow_checks(
    tiny_model: Path, expected: list[list[int | None]]
) -> None:
    packs = kernels_of(tiny_model, [DOWN], fault_after(9, "outputs[0][0] = float('nan')"))
    engine = LLMEngine(tiny_model, packs + kernels_of(tiny_model, [NORM]), num_pages=32)
    assert say(engine) == expected
    assert state(engine, DOWN).trips == {"not_finite": 1} and "layer 0" in state(engine, DOWN).reason
    assert state(engine, NORM).state == "live", "only the one to blame goes"


def test_where_none_can_be_found_the_incumbents_try_and_all_kernels_go(
    tiny_model: Path, expected: list[list[int | None]]
) -> None:
    once = fault_after(9, "outputs[0].fill_(float('nan') if _calls[0] == 12 else 0) if _calls[0] == 12 else None")
    engine = LLMEngine(tiny_model, kernels_of(tiny_model, [DOWN], once) + kernels_of(tiny_model, [NORM]), num_pages=32)
    heard: list[str] = []
    engine.watch.say = heard.append
    assert say(engine) == expected
    assert state(engine, DOWN).state == state(engine, NORM).state == "tripped"
    assert len(heard) == 2 and all("are without" in text for text in heard)


def test_a_model_whose_own_logits_are_not_finite_speaks_against_no_kernel(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model, [DOWN]), num_pages=32)
    engine.dispatch.weights._tensors["output_norm.weight"].data[3] = float("nan")  # a private copy of the mapped page
    engine.add_request("a", PROMPTS[0], SamplingParams(max_tokens=4))
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    assert [(o.token_id, o.finish_reason) for o in outputs] == [(None, "error")]
    assert state(engine, DOWN).state == "live" and engine.stats()["pages_known"] == 0


def test_values_left_in_a_page_harm_no_later_request(tiny_model: Path, expected: list[list[int | None]]) -> None:
    packs = kernels_of(tiny_model, [ROPE], fault_after(9, "inputs[6].fill_(float('nan'))"))
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    assert say(engine) == expected
    assert all(bool(torch.isfinite(cache).all()) for caches in engine.dispatch.caches for cache in caches)


# ---- which calls are drawn -------------------------------------------------------------------------------------------


def test_samples_come_at_the_rate_and_reach_every_kernel_layer_and_phase(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model), num_pages=32)
    shadow = Shadow(engine.dispatch, 0.05)
    plans = {phase: engine.dispatch.plan(phase, 3, 3, 3, 2) for phase in ("prefill", "decode")}  # type: ignore[arg-type]
    drawn: Counter[tuple[str, str, int]] = Counter()
    calls = 0
    for turn in range(6000):
        phase = "prefill" if turn % 10 == 0 else "decode"
        calls += len(plans[phase].kernel_calls)
        drawn.update((phase, c.key, c.site.layer) for c in shadow._draw(plans[phase].kernel_calls, phase))  # type: ignore[arg-type]
    total = sum(drawn.values())
    assert abs(total - 0.05 * calls) < 6 * math.sqrt(0.05 * calls)
    assert drawn.keys() == {(p, c.key, c.site.layer) for p, plan in plans.items() for c in plan.kernel_calls}
    each = [count for (phase, *_), count in drawn.items() if phase == "decode"]
    assert min(each) > 0.6 * max(each)


def test_two_engines_draw_differently_from_the_same_calls(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model), num_pages=32)
    calls = engine.dispatch.plan("decode", 3, 3, 3, 2).kernel_calls
    draws = []
    for _ in range(2):
        shadow = Shadow(engine.dispatch, 0.05)
        draws.append([len(shadow._draw(calls, "decode")) for _ in range(200)])
    assert draws[0] != draws[1]


def test_switched_off_none_is_drawn_and_a_share_beyond_one_is_refused(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model), num_pages=32, shadow=0.0)
    say(engine, new=2)
    assert engine.shadow.seconds == 0.0 and not state(engine, NORM).checks
    with pytest.raises(ValueError, match="share of calls"):
        Shadow(engine.dispatch, 1.5)


def test_scores_profiles_and_the_incumbents_are_not_checked(tiny_model: Path) -> None:
    from kernelwright.engine.score import ForcedSequence

    engine = LLMEngine(tiny_model, kernels_of(tiny_model), num_pages=32, shadow=1.0)
    list(engine.score([ForcedSequence((1, 2), (3, 4))], "decode"))
    engine.set_wrap(lambda site, bound: bound.call)
    say(engine, new=2)
    assert not state(engine, NORM).checks


# ---- an operator's switch --------------------------------------------------------------------------------------------


def test_a_kernel_is_switched_while_requests_run_and_no_token_changes(
    tiny_model: Path, expected: list[list[int | None]]
) -> None:
    engine = LLMEngine(tiny_model, kernels_of(tiny_model, [DOWN]), num_pages=32)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=12, ignore_eos=True))
    said: dict[str, list[int | None]] = {str(index): [] for index in range(len(PROMPTS))}
    for turn in range(40):
        if turn in (3, 6):
            changed = engine.switch(DOWN, enabled=turn == 6)
            assert changed.recomputed_requests == 3 and changed.forgotten_pages > 0
            assert engine.switch(DOWN, enabled=turn == 6) == type(changed)(0, 0), "twice is once"
            hits = state(engine, DOWN).hits
        for output in engine.step():
            said[output.request_id].append(output.token_id)
        if 3 <= turn < 6:
            assert state(engine, DOWN).state == "disabled" and state(engine, DOWN).hits == hits
    assert list(said.values()) == expected
    assert state(engine, DOWN).state == "live" and state(engine, DOWN).hits > hits


def test_a_tripped_kernel_is_on_again_when_an_operator_says_so(tiny_model: Path) -> None:
    packs = kernels_of(tiny_model, [HEAD], fault_after(9, "outputs[0][:, 65] += 1e3"))
    engine = LLMEngine(tiny_model, packs, num_pages=32, shadow=1.0)
    say(engine)
    assert state(engine, HEAD).state == "tripped"
    engine.switch(HEAD, enabled=True)
    assert state(engine, HEAD).state == "live" and state(engine, HEAD).trips == {"shadow": 1}
    say(engine)
    assert state(engine, HEAD).state == "tripped" and state(engine, HEAD).trips == {"shadow": 2}


def test_what_cannot_be_switched_is_said(tiny_model: Path) -> None:
    packs = kernels_of(tiny_model, [DOWN], "\ndef run(*inputs):\n    raise RuntimeError('no')\n")
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    engine.check_kernels()
    with pytest.raises(WrongUse, match="raises RuntimeError"):
        engine.switch(DOWN, enabled=True)
    with pytest.raises(WrongUse, match="no pack has a kernel"):
        engine.switch(NORM, enabled=False)


# ---- a request that the incumbents take over -------------------------------------------------------------------------


def test_a_retried_request_goes_on_with_the_incumbents_and_the_others_with_the_kernels(
    tiny_model: Path, expected: list[list[int | None]]
) -> None:
    """The head names one token from some call on; the first request is cut to what it said before."""
    packs = kernels_of(tiny_model, [HEAD], fault_after(9, "outputs[0][:, 65] += 1e3"))
    engine = LLMEngine(tiny_model, packs, num_pages=32)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=12, ignore_eos=True))
    said: dict[str, list[int | None]] = {str(index): [] for index in range(len(PROMPTS))}
    for _ in range(10):
        for output in engine.step():
            said[output.request_id].append(output.token_id)
    keep = next(n for n, token in enumerate(said["0"]) if token == 65)
    assert engine.retry("0", keep) == said["0"][:keep] == expected[0][:keep]
    assert engine.retry("0", keep) is None, "once"
    del said["0"][keep:]
    while engine.has_work():
        for output in engine.step():
            said[output.request_id].append(output.token_id)
    assert said["0"] == expected[0]
    assert said["1"][-3:] == said["2"][-3:] == [65, 65, 65]
    assert state(engine, HEAD).fallbacks["retry"] >= 12 - keep
    engine.add_request("again", PROMPTS[0], SamplingParams(max_tokens=1))
    assert engine.step()[0].num_cached == 32, "by the kernels' own pages, not by those of the retry"


def test_without_a_live_kernel_there_is_nothing_to_retry(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=32)
    engine.add_request("a", PROMPTS[0], SamplingParams(max_tokens=4))
    engine.step()
    assert engine.retry("a", 0) is None and engine.retry("nobody", 0) is None


def test_a_retried_request_with_a_seed_repeats_itself(tiny_model: Path) -> None:
    def draw() -> list[int | None]:
        engine = LLMEngine(tiny_model, kernels_of(tiny_model, [DOWN]), num_pages=32)
        engine.add_request("a", PROMPTS[0], SamplingParams(max_tokens=20, temperature=1.0, seed=5, ignore_eos=True))
        first = [output.token_id for _ in range(8) for output in engine.step()]
        engine.retry("a", 4)
        rest = []
        while engine.has_work():
            rest += [output.token_id for output in engine.step()]
        return first + rest

    said = draw()
    assert said == draw() and said[4:8] != said[8:12], "and does not draw the same again"
