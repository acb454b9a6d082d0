"""The engine in process: batching, chunking and preemption change no token; what it cannot do it says."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.score import ForcedSequence
from kernelwright.engine.sequence import SamplingParams, StepOutput
from kernelwright.profiles.errors import WrongUse

GENERATOR = torch.Generator().manual_seed(11)
PROMPTS = [torch.randint(3, 300, (n,), generator=GENERATOR).tolist() for n in (1, 15, 16, 17, 40, 3, 33)]

NEW = 36
"""Tokens a request generates: enough to grow by some pages."""


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> LLMEngine:
    return LLMEngine(tiny_model, num_pages=32)


def drain(engine: LLMEngine) -> dict[str, list[StepOutput]]:
    found: dict[str, list[StepOutput]] = {}
    while engine.has_work():
        for output in engine.step():
            found.setdefault(output.request_id, []).append(output)
    return found


def generate(engine: LLMEngine, prompt: list[int], **params: Any) -> list[StepOutput]:
    engine.add_request("one", prompt, SamplingParams(**{"ignore_eos": True, **params}))
    return drain(engine)["one"]


def ids(outputs: list[StepOutput]) -> list[int | None]:
    return [output.token_id for output in outputs]


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> list[list[int | None]]:
    """Greedy continuations, each request by itself."""
    engine = LLMEngine(tiny_model, num_pages=32)
    return [ids(generate(engine, prompt, max_tokens=NEW)) for prompt in PROMPTS]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pages=st.integers(5, 24),
    seqs=st.integers(1, 7),
    budget=st.integers(3, 64),
    arrivals=st.lists(st.integers(0, 12), min_size=len(PROMPTS), max_size=len(PROMPTS)),
)
def test_company_chunks_and_preemption_change_no_token(
    tiny_model: Path, alone: list[list[int | None]], pages: int, seqs: int, budget: int, arrivals: list[int]
) -> None:
    engine = LLMEngine(tiny_model, num_pages=pages, max_num_seqs=seqs, token_budget=budget)
    found: dict[str, list[int | None]] = {str(index): [] for index in range(len(PROMPTS))}
    for turn in range(10_000):
        for index, arrival in enumerate(arrivals):
            if arrival == turn:
                engine.add_request(str(index), PROMPTS[index], SamplingParams(max_tokens=NEW, ignore_eos=True))
        if turn > max(arrivals) and not engine.has_work():
            break
        for output in engine.step():
            found[output.request_id].append(output.token_id)
    assert list(found.values()) == alone
    assert engine.stats()["pages_free"] == pages


def test_the_continuations_are_no_mere_repetition(alone: list[list[int | None]]) -> None:
    assert len({token for tokens in alone for token in tokens}) > 20


def test_a_beginning_that_was_seen_is_not_computed_again(tiny_model: Path, alone: list[list[int | None]]) -> None:
    engine = LLMEngine(tiny_model, num_pages=32)
    prompt = PROMPTS[4]
    first = generate(engine, prompt, max_tokens=NEW)
    steps = engine.stats()["steps"]["prefill"]
    again = generate(engine, prompt, max_tokens=NEW)
    assert ids(first) == ids(again) == alone[4]
    assert (first[0].num_cached, again[0].num_cached) == (0, 32) and engine.stats()["steps"]["prefill"] == steps + 1
    assert engine.stats()["prefix_tokens_found"] == 32
    assert engine.reset_prefix_cache() > 2
    assert generate(engine, prompt, max_tokens=2)[0].num_cached == 0


def test_an_answer_is_the_beginning_of_the_next_question(engine: LLMEngine) -> None:
    engine.reset_prefix_cache()
    said = generate(engine, PROMPTS[1], max_tokens=20)
    conversation = [*PROMPTS[1], *[token for token in ids(said) if token is not None]]
    assert generate(engine, conversation, max_tokens=1)[0].num_cached == 32, "15 + 20 tokens, of which 34 are computed"


def test_other_kernels_find_nothing_of_what_those_before_computed(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=32)
    generate(engine, PROMPTS[4], max_tokens=1)
    engine.disable([])
    assert generate(engine, PROMPTS[4], max_tokens=1)[0].num_cached == 0


def test_a_score_takes_nothing_from_the_cache_and_leaves_nothing(engine: LLMEngine) -> None:
    engine.reset_prefix_cache()
    prompt = tuple(PROMPTS[4])
    cold = [row.clone() for *_, row in engine.score([ForcedSequence(prompt)], "prefill")]
    assert engine.reset_prefix_cache() == 0
    generate(engine, PROMPTS[4], max_tokens=1)
    steps = engine.stats()["steps"]["prefill"]
    warm = [row for *_, row in engine.score([ForcedSequence(prompt)], "prefill")]
    assert len(warm) == len(cold) == 40 and engine.stats()["steps"]["prefill"] > steps
    assert all(torch.equal(a, b) for a, b in zip(cold, warm, strict=True))


def test_switched_off_every_prompt_is_computed(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=32, prefix_cache=False)
    for _ in range(2):
        assert generate(engine, PROMPTS[4], max_tokens=1)[0].num_cached == 0


def test_preemption_happens_in_that_test(tiny_model: Path, alone: list[list[int | None]]) -> None:
    engine = LLMEngine(tiny_model, num_pages=9)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=NEW, ignore_eos=True))
    found = drain(engine)
    assert engine.stats()["preemptions"] > 0
    assert [ids(found[str(index)]) for index in range(len(PROMPTS))] == alone


def test_decode_and_prefill_score_the_same_logits(engine: LLMEngine) -> None:
    whole = [ForcedSequence(tuple(prompt)) for prompt in PROMPTS[3:]]
    split = [ForcedSequence(s.prompt[:2], s.prompt[2:]) for s in whole]
    prefill = {(s, p): logits for s, p, logits in engine.score(whole, "prefill")}
    decode = {(s, p): logits for s, p, logits in engine.score(split, "decode")}
    assert set(decode) == {(s, p) for s, p in prefill if p >= 2}
    scale = max(float(logits.abs().max()) for logits in prefill.values())
    assert max(float((decode[key] - prefill[key]).abs().max()) for key in decode) < 1e-5 * scale
    assert engine.stats()["pages_free"] == 32


def test_scoring_decodes_all_sequences_together(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=32)
    list(engine.score([ForcedSequence((1, 2), (3, 4, 5)), ForcedSequence((7,), (8,))], "decode"))
    assert engine.stats()["steps"] == {"prefill": 2, "decode": 3}
    attention = next(s for s in engine.kernels() if s.definition.startswith("decode_attention"))
    assert attention.incumbent_calls == 2 * 3, "two layers, three steps: both sequences shared the first one"


def test_scoring_amid_requests_disturbs_neither(tiny_model: Path, alone: list[list[int | None]]) -> None:
    engine = LLMEngine(tiny_model, num_pages=32)
    engine.add_request("a", PROMPTS[4], SamplingParams(max_tokens=NEW, ignore_eos=True))
    first = [o.token_id for _ in range(4) for o in engine.step()]
    rows = engine.score([ForcedSequence(tuple(PROMPTS[2]))], "prefill")
    next(rows)
    more = [o.token_id for _ in range(3) for o in engine.step()]
    rows.close()  # type: ignore[attr-defined]
    assert first + more + ids(drain(engine)["a"]) == alone[4]
    assert engine.stats()["pages_free"] == 32, "an abandoned score gives its pages back"


def test_a_score_that_cannot_be_held_is_refused_at_once(engine: LLMEngine) -> None:
    with pytest.raises(WrongUse, match="cache pages"):
        engine.score([ForcedSequence(tuple(range(200)), (1,))] * 8, "decode")
    with pytest.raises(WrongUse, match="too many"):
        engine.score([ForcedSequence((1,) * 200, (1,) * 100)], "decode")
    with pytest.raises(WrongUse, match="unknown phase"):
        engine.score([], "mixed")  # type: ignore[arg-type]


def test_the_last_token_says_why(engine: LLMEngine, alone: list[list[int | None]]) -> None:
    outputs = generate(engine, PROMPTS[0], max_tokens=3)
    assert [o.finish_reason for o in outputs] == [None, None, "length"]
    stop = alone[0][1]
    assert stop is not None
    stopped = generate(engine, PROMPTS[0], max_tokens=12, stop_token_ids=(stop,))
    assert stopped[-1] == StepOutput("one", stop, "stop") and len(stopped) == alone[0].index(stop) + 1


def test_the_end_token_ends_unless_ignored(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = generate(engine, PROMPTS[0], max_tokens=1)[0].token_id
    assert first is not None
    monkeypatch.setattr(engine.tokenizer, "eos_ids", (first,))
    assert generate(engine, PROMPTS[0], max_tokens=5, ignore_eos=False)[0].finish_reason == "stop"
    assert generate(engine, PROMPTS[0], max_tokens=5)[-1].finish_reason == "length"


def test_generation_ends_at_the_context(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=2)
    outputs = generate(engine, [5] * 30, max_tokens=100)
    assert engine.max_model_len == 32 and len(outputs) == 2 and outputs[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "match"), [([], "empty"), ([5] * 32, "too many"), ([-1], "outside"), ([300], "outside")]
)
def test_prompts_that_cannot_be_served_are_refused(tiny_model: Path, prompt: list[int], match: str) -> None:
    engine = LLMEngine(tiny_model, num_pages=2)
    with pytest.raises(WrongUse, match=match):
        engine.add_request("a", prompt, SamplingParams())
    assert not engine.has_work()


def test_a_name_in_use_is_refused(engine: LLMEngine) -> None:
    engine.add_request("a", [1], SamplingParams())
    with pytest.raises(WrongUse, match="running already"):
        engine.add_request("a", [1], SamplingParams())
    engine.abort("a")


def test_an_aborted_request_leaves_no_trace(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=8)
    for name in ("running", "other"):
        engine.add_request(name, PROMPTS[3], SamplingParams(max_tokens=20, ignore_eos=True))
    engine.step()
    engine.abort("running")
    engine.abort("never heard of")
    assert set(drain(engine)) == {"other"} and engine.stats()["pages_free"] == 8


def test_seeded_sampling_does_not_depend_on_company(engine: LLMEngine) -> None:
    params = {"temperature": 1.0, "seed": 4, "max_tokens": 8}
    by_itself = ids(generate(engine, PROMPTS[1], **params))
    for name, seed in (("x", 1), ("y", 4)):
        engine.add_request(name, PROMPTS[1], SamplingParams(temperature=1.0, seed=seed, max_tokens=8, ignore_eos=True))
    found = drain(engine)
    assert ids(found["y"]) == by_itself != ids(found["x"])


def test_logprobs_come_with_the_tokens(engine: LLMEngine) -> None:
    for output in generate(engine, PROMPTS[1], max_tokens=3, logprobs=2):
        assert output.logprob is not None and output.logprob.top[0] == (output.token_id, output.logprob.logprob)


def test_broken_logits_end_the_request(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.dispatch.weights, "embed", lambda tokens: torch.full((len(tokens), 64), torch.nan))
    assert generate(engine, [1], max_tokens=5) == [StepOutput("one", None, "error")]
    assert not engine.has_work()


def test_a_profile_names_every_step_and_slot(tiny_model: Path, tmp_path: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=8)
    with pytest.raises(WrongUse, match="no profile"):
        engine.stop_profile()
    engine.start_profile(tmp_path / "deep" / "trace.json")
    with pytest.raises(WrongUse, match="already"):
        engine.start_profile(tmp_path / "other.json")
    before = ids(generate(engine, PROMPTS[1], max_tokens=4))
    path = engine.stop_profile()
    names = [event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]]
    slots = [name for name in names if name.startswith("slot|")]
    assert names.count("step|prefill|15|1") == 1 and names.count("step|decode|1|1") == 3
    assert slots.count("slot|decode_attention_q2_kv1_d32_p16|decode|1|1") == 3
    assert len(slots) == 4 * (2 * 8 + 2), "four steps, two layers of eight slots, norm and head"
    assert ids(generate(engine, PROMPTS[1], max_tokens=4)) == before, "and profiling changes no token"
    assert [p.name for p in path.parent.iterdir()] == ["trace.json"]


def test_a_bad_configuration_is_refused(tiny_model: Path) -> None:
    with pytest.raises(WrongUse, match="num_pages must be at least 1"):
        LLMEngine(tiny_model, num_pages=0)
    with pytest.raises(WrongUse, match="no such definition: nonsense"):
        LLMEngine(tiny_model, num_pages=2, disable=["nonsense"])


@pytest.mark.weights
def test_the_real_model_knows_the_capital_of_france(smollm2: Path) -> None:
    engine = LLMEngine(smollm2, num_pages=64)
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    engine.add_request("a", prompt, SamplingParams(max_tokens=20))
    outputs = drain(engine)["a"]
    assert outputs[-1].finish_reason == "stop"
    assert "Paris" in engine.tokenizer.decode([i for i in ids(outputs) if i is not None])


def test_hidden_states_lead_to_the_logits_whatever_the_chunks(engine: LLMEngine) -> None:
    tokens = tuple(range(3, 90))
    whole = [row.clone() for *_, row in engine.score([ForcedSequence(tokens)], "prefill", "hidden")]
    pieces = [row.clone() for *_, row in engine.score([ForcedSequence(tokens)], "prefill", "hidden", 13)]
    decoded = [row.clone() for *_, row in engine.score([ForcedSequence(tokens[:80], tokens[80:])], "decode", "hidden")]
    shape = (engine.config.num_layers, engine.config.hidden)
    assert len(whole) == len(tokens) and whole[0].numel() == shape[0] * shape[1]
    torch.testing.assert_close(torch.stack(whole), torch.stack(pieces), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.stack(whole[80:]), torch.stack(decoded), rtol=1e-4, atol=1e-5)
    layers = whole[-1].view(shape)
    assert all((a - b).abs().max() > 1e-3 for a, b in pairwise(layers)), "each layer adds something"
