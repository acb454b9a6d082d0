"""Grammars for constrained decoding, as one string each: what an answer may be, in llguidance's form.

The string crosses the wire; both ends read it with llguidance (MIT). Neither compiling nor checking holds Python's
lock, so a large schema stops nobody else's answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kernelwright.profiles.errors import WrongUse

WHITESPACE = " ?"
"""Regular expression of the blanks between two parts of JSON. With blanks without end, a small model writes nothing
else until its limit."""
MAX_GRAMMAR = 512 * 1024
"""Characters; longer grammars are refused before anything reads them."""


def json_grammar(schema: dict[str, Any] | bool) -> str:
    """Return the grammar of the JSON texts that are valid under `schema` (the part of JSON Schema llguidance knows)."""
    return _single({"json_schema": with_blanks(schema)})


def regex_grammar(pattern: str) -> str:
    """Return the grammar of the texts that `pattern` (Rust's regular expressions) matches as a whole."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_regex(pattern)


def choice_grammar(options: Sequence[str]) -> str:
    """Return the grammar of exactly these texts."""
    return lark_grammar("start: " + " | ".join(quoted(option) for option in options))


def lark_grammar(text: str) -> str:
    """Return `text`, a grammar in llguidance's variant of Lark."""
    return _single({"lark_grammar": text})


def with_blanks(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """Return `schema` with our rule for blanks; `True` allows any value. Raises WrongUse for `False`."""
    if schema is False:
        raise WrongUse("the schema `false` allows no value at all", "Give a schema that something satisfies")
    given = {} if schema is True else schema
    own = given.get("x-guidance")
    return given | {"x-guidance": (own if isinstance(own, dict) else {}) | {"whitespace_pattern": WHITESPACE}}


def quoted(text: str) -> str:
    """Return `text` as a literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)


def check_grammar(grammar: str) -> None:
    """Raise WrongUse, with the library's reason, for a grammar that cannot be followed. May take a second."""
    from llguidance import LLMatcher

    if len(grammar) > MAX_GRAMMAR:
        raise WrongUse(f"the grammar has {len(grammar)} characters, at most {MAX_GRAMMAR} are taken", "Make it smaller")
    failed, reasons = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        raise WrongUse(" ".join(reasons[0].split()), "Mend the schema or the grammar, or leave that part out")


def _single(form: dict[str, Any]) -> str:
    return json.dumps({"grammars": [form]}, ensure_ascii=False)
