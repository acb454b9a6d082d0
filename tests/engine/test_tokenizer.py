"""Text goes to ids and back; the real model's ids are the published ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.engine.gguf import read_metadata
from kernelwright.engine.tokenizer import Tokenizer, build_tokenizer
from kernelwright.profiles.errors import WrongUse

# from the model's published tokenizer; spaces, digits, accents and runs of blanks are where a wrong cut shows
KNOWN_IDS = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
    "\n": [198],
}


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return build_tokenizer(read_metadata(tiny_model))


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60))
def test_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40).filter(lambda t: "<|" not in t))
def test_a_stream_gives_whole_characters_and_the_same_text(tokenizer: Tokenizer, text: str) -> None:
    stream = tokenizer.stream()
    pieces = [stream.add(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


def test_merges_and_digits(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token(i) for i in tokenizer.encode("the and 123")] == ["the", " ", "and", " ", "1", "2", "3"]


def test_chat_uses_the_files_template_and_control_tokens(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "the"}]
    assert tokenizer.render_chat(messages) == "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode_chat(messages)
    assert ids[0] == 1 and ids.count(2) == 1 and tokenizer.eos_ids == (2,)


def test_a_template_cannot_reach_out_of_its_sandbox(make_tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    evil = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    path = make_tiny_model(tmp_path / "evil.gguf", metadata={"tokenizer.chat_template": evil})
    with pytest.raises(WrongUse, match="template refuses"):
        build_tokenizer(read_metadata(path)).render_chat([{"role": "user", "content": "x"}])


def test_messages_the_template_cannot_use_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WrongUse, match="template refuses"):
        tokenizer.render_chat([{"role": "user", "content": None}])


def test_no_template_is_said(make_tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "plain.gguf", metadata={"tokenizer.chat_template": None})
    with pytest.raises(WrongUse, match="no chat template"):
        build_tokenizer(read_metadata(path)).render_chat([{"role": "user", "content": "x"}])


def test_a_leading_token_is_added_where_the_file_asks_for_it(
    make_tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_tiny_model(tmp_path / "bos.gguf", metadata={"tokenizer.ggml.add_bos_token": True})
    tokenizer = build_tokenizer(read_metadata(path))
    assert tokenizer.encode("a")[0] == 1
    assert tokenizer.encode("<|im_start|>a").count(1) == 1


@pytest.mark.weights
def test_the_real_models_ids_are_the_published_ones(smollm2: Path) -> None:
    tokenizer = build_tokenizer(read_metadata(smollm2))
    for text, ids in KNOWN_IDS.items():
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.eos_ids == (2,) and tokenizer.vocab_size == 49152
    assert tokenizer.decode(tokenizer.encode("naïve 日本 😀")) == "naïve 日本 😀"
