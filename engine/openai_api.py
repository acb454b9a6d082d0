"""What a client may ask, in OpenAI's form. A field that would change the answer and is not served is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kernelwright.engine import wire
from kernelwright.engine.answer_form import FormFields
from kernelwright.engine.chat_messages import Messages
from kernelwright.engine.tools import ToolFields

TokenId = Annotated[int, Field(ge=0, strict=True)]
_UNSERVED: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    # vLLM's
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (-1,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "chat_template": (),
}
"""Field → the values that ask for nothing, as null always does."""
_INSTEAD = {"functions": "give `tools`", "function_call": "give `tool_choice`"}


class StreamOptions(BaseModel):
    include_usage: bool = False


class _Request(FormFields):
    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    model: str
    n: int = Field(1, ge=1, le=64)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    """By token id, as text, as JSON's keys are."""
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    guard: Literal["on", "off"] = "on"
    """Extension: `off` lets this answer repeat itself as it likes."""
    return_token_ids: bool = False
    """Extension (vLLM's name): each choice also carries `token_ids`."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _asks_only_what_is_served(self) -> _Request:
        for name, value in (self.model_extra or {}).items():
            if name in _UNSERVED and value not in _UNSERVED[name]:
                raise ValueError(f"`{name}` is not served by this engine; {_INSTEAD.get(name, 'leave it out')}")
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` needs `stream: true`")
        if len(self.stops) > 16 or any(not stop for stop in self.stops):
            raise ValueError("`stop` takes at most 16 strings, none of them empty")
        return self

    @field_validator("logit_bias")
    @classmethod
    def _names_tokens(cls, given: dict[str, float] | None) -> dict[str, float] | None:
        if given is not None and not all(key.isascii() and key.isdecimal() for key in given):
            raise ValueError("its keys are token ids")
        return given

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int, logprobs: int | None, choice: int, grammar: str | None = None) -> wire.Sampling:
        """Return how choice number `choice` is drawn; with a seed every choice has its own, and all are repeatable."""
        return wire.Sampling(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            logit_bias=tuple((int(token), bias) for token, bias in (self.logit_bias or {}).items()),
            seed=None if self.seed is None else self.seed + choice,
            ignore_eos=self.ignore_eos,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            logprobs=logprobs,
            guarded=self.guard == "on",
            grammar=grammar,
        )


class CompletionRequest(_Request):
    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    max_tokens: int | None = Field(None, ge=0)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20)
    best_of: int | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("`best_of` other than `n` is not served by this engine")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("`max_tokens` of 0 makes sense only with `echo`")
        if self.echo and self.stream and self.logprobs is not None:
            raise ValueError("`echo` with `logprobs` is not served as a stream; ask without `stream`")
        if isinstance(self.prompt, list) and not self.prompt:
            raise ValueError("`prompt` is an empty list")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The batch, one entry per prompt."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]  # type: ignore[list-item]
        return list(self.prompt)  # type: ignore[arg-type]


class ChatRequest(_Request, ToolFields, Messages):
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @model_validator(mode="after")
    def _is_consistent(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs: true`")
        return self

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class ScoreSequence(BaseModel, extra="forbid"):
    prompt: list[TokenId] = Field(min_length=1)
    forced: list[TokenId] = []


class ScoreRequest(BaseModel, extra="forbid"):
    sequences: list[ScoreSequence] = Field(min_length=1)
    phase: Literal["decode", "prefill"]
    what: Literal["logits", "hidden"] = "logits"
    chunk: int | None = Field(None, ge=1)


class SwitchRequest(BaseModel, extra="forbid"):
    enabled: Annotated[bool, Field(strict=True)]


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return OpenAI's usage object; `cached_tokens` of the prompt's were found computed."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return OpenAI's error object; `code` is a stable word for programs, the message is for people."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
