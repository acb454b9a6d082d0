"""Random JSON schemas whose answers are short, and the check that an answer is one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
strings = st.builds(
    lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
    st.integers(0, 3),
    st.integers(0, 5),
)
integers = st.builds(
    lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
    st.integers(-(10**6), 10**6),
    st.integers(0, 10**4),
)
numbers = st.builds(
    lambda low, span: {"type": "number", "minimum": low, "maximum": low + span},
    st.integers(-1000, 1000),
    st.integers(1, 50),
)
enums = st.lists(st.one_of(names, st.integers(-99, 99), st.booleans(), st.none()), min_size=1, max_size=4).map(
    lambda values: {"enum": values}
)
patterns = st.sampled_from([r"^[a-z]{2,5}-\d{3}$", r"^(ä|日本|🙂){1,3}$", r"^\d{4}-\d{2}$"]).map(
    lambda p: {"type": "string", "pattern": p}
)
plain = st.sampled_from(
    [
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["boolean", "null"]},
        {"const": 'é"\\'},
        {"type": "string", "format": "date"},
    ]
)
leaves = st.one_of(strings, integers, numbers, enums, patterns, plain)


@st.composite
def objects(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, inner, min_size=1, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.builds(
        lambda items, most: {"type": "array", "items": items, "minItems": 0, "maxItems": most}, inner, st.integers(1, 3)
    )
    either = st.lists(inner, min_size=2, max_size=3).map(lambda options: {"anyOf": options})
    return st.one_of(objects(inner), arrays, either)


schemas = objects(st.recursive(leaves, _wider, max_leaves=5))


def check_answer(schema: dict[str, Any], text: str) -> None:
    """Raise ValueError (no JSON) or ValidationError (another one) unless `text` is valid under `schema`."""
    Draft202012Validator(schema).validate(json.loads(text))
