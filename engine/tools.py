"""Tools that a chat may call: what is offered, what the model is told of it, and the grammar of the calls it owes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from kernelwright.engine.answer_form import Schema
from kernelwright.engine.grammar import lark_grammar, quoted, with_blanks

CallForm = Literal["hermes", "llama3"]
"""How a model writes a call: `<tool_call>{"name", "arguments"}</tool_call>`, or `{"name", "parameters"}` alone."""
MOST_CALLS = 16
"""Calls in one answer that is made to call; a small model would go on until its limit."""

_PREFACE = """You may call functions. Their signatures, as JSON schemas:
{tools}
To call one, write its name and its arguments as JSON, and nothing else, in this form:
<tool_call>
{{"name": "function-name", "arguments": {{"argument": "value"}}}}
</tool_call>
{rule}"""
_RULES = {
    "auto": "Call a function only where it is needed; else answer in plain words.",
    "required": "Answer with a call.",
}


class FunctionSpec(BaseModel):
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    type: str
    function: FunctionSpec

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("type", "function") != "function":
            raise ValueError(f"tools of type {given['type']!r} are not served, only functions")
        return given


class _Named(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: _Named


class _Allowed(BaseModel):
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedTools(BaseModel):
    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


class ToolFields(BaseModel):
    """The part of a request that is about tools."""

    tools: list[Tool] = Field([], max_length=128)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedTools | None = None
    parallel_tool_calls: bool = True

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _is_known(cls, given: Any) -> Any:
        kinds = ("function", "allowed_tools")
        if isinstance(given, str) and given not in ("none", "auto", "required"):
            raise ValueError(f"{given!r} is none of `none`, `auto`, `required`")
        if isinstance(given, dict) and given.get("type") not in kinds:
            raise ValueError(f"its type is one of {', '.join(kinds)}")
        return given

    @model_validator(mode="after")
    def _chooses_what_is_offered(self) -> ToolFields:
        names = [tool.function.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("`tools` has two functions of the same name")
        if self.tool_choice not in (None, "none", "auto") and not names:
            raise ValueError("`tool_choice` needs `tools`")
        unknown = [name for name in self._chosen or () if name not in names]
        if unknown:
            raise ValueError(f"`tool_choice` names {unknown[0]!r}, which is not among `tools`")
        return self

    @property
    def _chosen(self) -> list[str] | None:
        if isinstance(self.tool_choice, NamedTool):
            return [self.tool_choice.function.name]
        if isinstance(self.tool_choice, AllowedTools):
            return [tool.function.name for tool in self.tool_choice.allowed_tools.tools]
        return None

    def plan(self, form: CallForm | None) -> ToolPlan | None:
        """Return what follows from these fields for a model whose template writes calls in `form` (None: it knows no
        tools, and is told of them in Hermes' words). None when no tool may be called.
        """
        choice = self.tool_choice or "auto"
        if not self.tools or choice == "none":
            return None
        chosen = self._chosen
        offered = [tool.function for tool in self.tools if chosen is None or tool.function.name in chosen]
        mode = choice.allowed_tools.mode if isinstance(choice, AllowedTools) else choice
        forced = mode == "required" or isinstance(mode, NamedTool)
        one = not self.parallel_tool_calls or isinstance(mode, NamedTool)
        return ToolPlan(tuple(offered), forced, 1 if one else MOST_CALLS, form or "hermes", form is not None)


@dataclass(frozen=True, slots=True)
class ToolPlan:
    functions: tuple[FunctionSpec, ...]
    forced: bool
    """Whether the answer has to be a call."""
    most: int
    """Calls there may be."""
    form: CallForm
    is_native: bool
    """Whether the model's own chat template tells it of the tools."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(function.name for function in self.functions)

    @property
    def is_strict(self) -> bool:
        return any(function.strict for function in self.functions)

    def declared(self) -> list[dict[str, Any]]:
        """Return the tools as chat templates take them."""
        return [
            {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})}
            for function in self.functions
        ]

    def preface(self) -> str:
        """Return the system's words for a model whose template knows no tools."""
        tools = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in self.declared())
        return _PREFACE.format(tools=tools, rule=_RULES["required" if self.forced else "auto"])

    def grammar(self, answer: Schema | None) -> str | None:
        """Return the grammar of calls, or else of an answer by the schema `answer` or (None) of free text.

        None where nothing has to be kept to: the model may call or not, and no function is strict.
        """
        if not self.forced and not self.is_strict and answer is None:
            return None
        calls = self._hermes() if self.form == "hermes" else self._llama3()
        lark = f"%llguidance {{}}\nstart: {self._start(answer)}\n{calls}"
        if self.forced:
            return lark_grammar(lark)
        if answer is not None:
            return lark_grammar(f"{lark}answer: %json {json.dumps(with_blanks(answer), ensure_ascii=False)}\n")
        return lark_grammar(lark + self._free())

    def _start(self, answer: Schema | None) -> str:
        calls = "call" if self.most == 1 or self.form == "llama3" else f'call ("\\n" call){{0,{self.most - 1}}}'
        if self.forced:
            return calls
        if answer is not None:
            return f"{calls} | answer"
        return "call | free" if self.form == "llama3" else f"(begun rest){{0,{self.most}}} free"

    def _hermes(self) -> str:
        rests = " | ".join(f"rest_{i}" for i in range(len(self.functions)))
        bodies = self._bodies("rest", '\n{"name": NAME, "arguments": ', "}\n</tool_call>")
        return f'call: "<tool_call>" rest\nrest: {rests}\n{bodies}'

    def _llama3(self) -> str:
        bodies = self._bodies("call", '{"name": NAME, "parameters": ', "}")
        return f"call: {' | '.join(f'call_{i}' for i in range(len(self.functions)))}\n{bodies}"

    def _bodies(self, rule: str, head: str, tail: str) -> str:
        """Return a rule for each function: `head` with its name, its arguments, `tail`."""
        rules = []
        for number, function in enumerate(self.functions):
            begins = quoted(head.replace("NAME", json.dumps(function.name)))
            rules.append(f"{rule}_{number}: {begins} %json {self._schema(function)} {quoted(tail)}\n")
        return "".join(rules)

    def _schema(self, function: FunctionSpec) -> str:
        kept = self.forced or function.strict
        schema = (function.parameters or {"type": "object", "properties": {}}) if kept else {"type": "object"}
        return json.dumps(with_blanks({"type": "object"} | schema), ensure_ascii=False)

    def _free(self) -> str:
        """Return the rules of free text: until a call begins, or (Llama 3) text that could not be taken for one."""
        if self.form == "llama3":
            return "free: TEXT\nTEXT: /([^{\\[\\s](.|\\n)*)?/\n"
        return 'begun[lazy]: TEXT "<tool_call>"\nfree: TEXT\nTEXT: /(.|\\n)*/\n'
