"""The shipped texts: enough of five kinds, no padding by repetition, each with its source."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

import pytest

from kernelwright.engine.gate_texts import KINDS, LONG, Library, read_documents
from kernelwright.engine.gguf import read_metadata
from kernelwright.engine.tokenizer import build_tokenizer
from kernelwright.engine.weights import cached_default_model

LEAST_TOKENS, LEAST_OF_A_KIND, UNIQUE_8GRAMS = 64_000, 12_000, 0.9


@pytest.fixture(scope="module")
def library() -> Library:
    model = cached_default_model()
    if model is None:
        pytest.skip("the default model, whose tokenizer counts, is not in the cache: run `kernelwright serve` once")
    return Library(build_tokenizer(read_metadata(model)).encode)


def unique_share(tokens: list[int]) -> float:
    grams = Counter(tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7))
    return sum(count == 1 for count in grams.values()) / sum(grams.values())


@pytest.mark.weights
def test_there_is_enough_of_each_kind_and_hardly_any_repetition(library: Library) -> None:
    streams = {kind: library.stream(kind) for kind in KINDS}
    assert library.size >= LEAST_TOKENS
    assert min(map(len, streams.values())) >= LEAST_OF_A_KIND, {kind: len(s) for kind, s in streams.items()}
    shares = {kind: unique_share(stream) for kind, stream in streams.items()}
    assert min(shares.values()) >= UNIQUE_8GRAMS, shares
    assert unique_share([token for stream in streams.values() for token in stream]) >= UNIQUE_8GRAMS
    assert unique_share(streams["prose"] * 2) < 0.01, "the check sees a text that is there twice"


@pytest.mark.weights
def test_there_are_texts_for_long_contexts(library: Library) -> None:
    assert all(len(library.stream(kind)) > LONG for kind in KINDS)


def test_every_text_has_its_source() -> None:
    sources = (files("kernelwright.engine") / "texts" / "SOURCES.md").read_text(encoding="utf-8")
    for kind in KINDS:
        documents = read_documents(kind)
        assert documents
        for name, text in documents.items():
            assert f"{kind}/{name}.txt" in sources, f"{kind}/{name}.txt is not in SOURCES.md"
            assert "gutenberg" not in text.lower()
