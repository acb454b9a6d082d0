"""The messages of a chat, in OpenAI's form, and how a chat template gets them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator


class TextPart(BaseModel):
    type: Literal["text", "refusal"] = "text"
    text: str = ""
    refusal: str = ""


class CalledFunction(BaseModel):
    name: str
    arguments: str = "{}"

    def parsed(self) -> Any:
        """Return the arguments as a template wants them: an object where they are one, else the text."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return self.arguments


class PastCall(BaseModel):
    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[PastCall] = []
    tool_call_id: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _is_text(cls, given: Any) -> Any:
        for part in given if isinstance(given, list) else []:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in ("text", "refusal"):
                raise ValueError(f"this model reads text alone; a part of type {kind!r} cannot be served")
        return given

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _none_is_no_call(cls, given: Any) -> Any:
        return given or []

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.content is None and not (self.role == "assistant" and (self.tool_calls or self.refusal)):
            raise ValueError(f"a message of role {self.role} needs a content")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of role tool needs the `tool_call_id` that it answers")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only messages of role assistant have `tool_calls`")
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or part.refusal for part in self.content)
        return self.content or self.refusal or ""

    def flat(self) -> dict[str, Any]:
        """Return what a chat template expects: `developer` is the newer word for `system`, parts are joined."""
        flat: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": self.text}
        if self.name is not None:
            flat["name"] = self.name
        if self.tool_calls:
            flat["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.function.name, "arguments": c.function.parsed()},
                }
                for c in self.tool_calls
            ]
        if self.tool_call_id is not None:
            flat["tool_call_id"] = self.tool_call_id
        return flat


class Messages(BaseModel):
    """The part of a request that is the chat so far."""

    messages: list[Message] = Field(min_length=1)


def native(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return `messages` for a template that knows tools: it is given calls and answers as they are."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    flat = [message.flat() for message in messages]
    for message in flat:
        if message["role"] == "tool":
            message.setdefault("name", names.get(message["tool_call_id"], ""))
    return flat


def spelled_out(messages: Sequence[Message], preface: str | None) -> list[dict[str, Any]]:
    """Return `messages` for a template that does not know tools, with Hermes' words for them.

    `preface` is put behind the system's words. A call reads `<tool_call>{…}</tool_call>`; answers of tools are a user's
    `<tool_response>…</tool_response>`, those that follow one another in one message.
    """
    flat: list[dict[str, Any]] = []
    joins = False
    for message in messages:
        if message.role == "tool":
            text = f"<tool_response>\n{message.text}\n</tool_response>"
            if joins:
                flat[-1]["content"] += f"\n{text}"
            else:
                flat.append({"role": "user", "content": text})
        else:
            calls = [_spelled_call(call.function) for call in message.tool_calls]
            plain = {
                "role": message.flat()["role"],
                "content": "\n".join([*([message.text] if message.text else []), *calls]),
            }
            flat.append(plain)
        joins = message.role == "tool"
    if preface is not None:
        if flat[0]["role"] == "system":
            flat[0]["content"] = f"{flat[0]['content']}\n\n{preface}"
        else:
            flat.insert(0, {"role": "system", "content": preface})
    return flat


def _spelled_call(function: CalledFunction) -> str:
    call = json.dumps({"name": function.name, "arguments": function.parsed()}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"
