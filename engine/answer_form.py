"""What form an answer must have: OpenAI's `response_format`, and vLLM's `structured_outputs` and `guided_*`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernelwright.engine.grammar import choice_grammar, json_grammar, lark_grammar, regex_grammar

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Schema = dict[str, Any] | bool


class NamedSchema(BaseModel):
    """The schema of an answer. It is kept to with `strict` and without."""

    model_config = ConfigDict(populate_by_name=True)

    name: Name
    description: str | None = None
    schema_: Schema = Field(True, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("`json_schema` goes with `type: json_schema`, and that with it")
        return self

    @property
    def schema_asked(self) -> Schema | None:
        if self.json_schema is not None:
            return self.json_schema.schema_
        return {"type": "object"} if self.type == "json_object" else None


class StructuredOutputs(BaseModel, extra="forbid"):
    """vLLM's extension: one of these."""

    json_: Schema | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1)
    grammar: str | None = None
    """In llguidance's variant of Lark."""
    json_object: bool | None = None

    @property
    def schema_asked(self) -> Schema | None:
        if isinstance(self.json_, str):
            schema = json.loads(self.json_)
            if not isinstance(schema, (dict, bool)):
                raise ValueError("`json` is a JSON schema: an object")
            return schema
        return {"type": "object"} if self.json_ is None and self.json_object else self.json_

    def other_grammar(self) -> str | None:
        """Return the grammar of what is not told by a schema, None where nothing is."""
        if self.regex is not None:
            return regex_grammar(self.regex)
        if self.choice is not None:
            return choice_grammar(self.choice)
        return None if self.grammar is None else lark_grammar(self.grammar)

    @model_validator(mode="after")
    def _asks_one_thing(self) -> StructuredOutputs:
        asked = (self.schema_asked, self.regex, self.choice, self.grammar)
        if sum(part is not None for part in asked) != 1:
            raise ValueError("give exactly one of `json`, `json_object`, `regex`, `choice` and `grammar`")
        return self


class FormFields(BaseModel):
    """The part of a request that says what form its answer must have; at most one of these asks for something."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = Field(None, min_length=1)
    guided_grammar: str | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> FormFields:
        if len(self._forms()) > 1:
            raise ValueError(f"one form at a time: `{'`, `'.join(self._forms())}` were given")
        return self

    def _forms(self) -> dict[str, StructuredOutputs]:
        """Return what is asked for, by the name of the field that asks."""
        asked: dict[str, StructuredOutputs] = {}
        if self.response_format is not None and self.response_format.schema_asked is not None:
            asked["response_format"] = StructuredOutputs(json=self.response_format.schema_asked)
        if self.structured_outputs is not None:
            asked["structured_outputs"] = self.structured_outputs
        for name in ("json", "regex", "choice", "grammar"):
            value = getattr(self, f"guided_{name}")
            if value is not None:
                asked[f"guided_{name}"] = StructuredOutputs(**{name: value})
        return asked

    @property
    def form_field(self) -> str | None:
        """Name of the field that asks for a form."""
        return next(iter(self._forms()), None)

    @property
    def schema_asked(self) -> Schema | None:
        return next((form.schema_asked for form in self._forms().values()), None)

    def form_grammar(self) -> str | None:
        """Return the grammar of the answer, None where any text will do."""
        for form in self._forms().values():
            schema = form.schema_asked
            return form.other_grammar() if schema is None else json_grammar(schema)
        return None
