"""Where a JSON value ends, in text that may go on or end within it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.profiles.jsontext import end_of_value

texts = st.text(alphabet='ab"\\{}[],: \n\u00e9\x01', max_size=6)
containers = st.recursive(
    st.one_of(texts, st.integers(-9, 9), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict | list))


@given(containers, st.booleans(), st.sampled_from(["", ", 1]", '} "']), st.data())
def test_a_value_ends_where_it_does_and_a_cut_one_nowhere(
    value: Any, escaped: bool, behind: str, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    assert end_of_value(b" " + text + behind.encode(), 1) == 1 + len(text)
    assert end_of_value(text[: data.draw(st.integers(1, len(text) - 1))], 0) is None


def test_a_long_string_without_an_end_is_looked_at_once() -> None:
    assert end_of_value(b'{"a": "' + b"x\\\\" * 200_000, 0) is None
