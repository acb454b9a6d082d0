from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kernelwright.engine.openai_api import ChatRequest, CompletionRequest, ScoreRequest, error_body

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("prompt", "batch"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, batch: list[Any]) -> None:
    assert CompletionRequest(model="m", prompt=prompt).prompts == batch


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": []},
        {"prompt": [1.5]},
        {"prompt": [-1]},
        {"prompt": "a", "temperature": -0.1},
        {"prompt": "a", "temperature": float("nan")},
        {"prompt": "a", "top_p": 0},
        {"prompt": "a", "n": 0},
        {"prompt": "a", "n": 65},
        {"prompt": "a", "max_tokens": -1},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "logprobs": 21},
        {"prompt": "a", "stop": ""},
        {"prompt": "a", "stop": ["x"] * 17},
        {"prompt": "a", "stream_options": {"include_usage": True}},
        {"prompt": "a", "best_of": 3},
        {"prompt": "a", "seed": 2**63},
        {"prompt": "a", "frequency_penalty": 2.5},
        {"prompt": "a", "echo": True, "logprobs": 1, "stream": True},
    ],
)
def test_what_cannot_be_served_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompletionRequest.model_validate({"model": "m"} | fields)


def test_fields_that_ask_for_nothing_are_fine() -> None:
    fields = {"frequency_penalty": 0, "logit_bias": {}, "user": "someone", "best_of": 1, "suffix": None}
    CompletionRequest.model_validate({"model": "m", "prompt": "a"} | fields)
    ChatRequest.model_validate({"model": "m", "messages": HELLO, "response_format": {"type": "text"}, "tools": []})


def test_sampling_defaults_are_openais() -> None:
    sampling = CompletionRequest(model="m", prompt="a").sampling(16, None, 0)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (1.0, 1.0, 0, None)


def test_every_choice_has_a_seed_of_its_own() -> None:
    asked = ChatRequest.model_validate({"model": "m", "messages": HELLO, "n": 2, "seed": 5, "top_k": -1})
    assert [asked.sampling(4, None, i).seed for i in range(2)] == [5, 6]
    assert asked.sampling(4, None, 0).top_k == 0


def test_the_newer_limit_wins_and_logprobs_are_counted() -> None:
    asked = {"model": "m", "messages": HELLO, "max_tokens": 5, "max_completion_tokens": 7}
    assert ChatRequest.model_validate(asked).limit == 7
    assert ChatRequest.model_validate(asked).wanted_logprobs is None
    assert ChatRequest.model_validate(asked | {"logprobs": True}).wanted_logprobs == 0
    assert ChatRequest.model_validate(asked | {"logprobs": True, "top_logprobs": 3}).wanted_logprobs == 3
    with pytest.raises(ValidationError, match="top_logprobs"):
        ChatRequest.model_validate(asked | {"top_logprobs": 3})


def test_messages_are_flattened_and_other_parts_refused() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = ChatRequest.model_validate({"model": "m", "messages": [{"role": "developer", "content": parts}]})
    assert asked.messages[0].flat() == {"role": "system", "content": "ab"}
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": image}]})


def test_a_score_needs_sequences_and_a_phase() -> None:
    with pytest.raises(ValidationError):
        ScoreRequest.model_validate({"sequences": [], "phase": "decode"})
    with pytest.raises(ValidationError):
        ScoreRequest.model_validate({"sequences": [{"prompt": [1]}], "phase": "both"})


def test_errors_have_openais_form() -> None:
    assert error_body("gone", 404, "model", "model_not_found")["error"] == {
        "message": "gone",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert error_body("broken", 500)["error"]["type"] == "server_error"
