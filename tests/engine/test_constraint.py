"""Constraints: they follow a request's tokens, on any tokenizer, through preemption, and stop nobody else."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernelwright.engine import wire
from kernelwright.engine.adapt import EmbeddedEngine, load_served_engine
from kernelwright.engine.answer_form import StructuredOutputs
from kernelwright.engine.checkpoint import read_tokenizer
from kernelwright.engine.constraint import Constraint, GrammarCompiler
from kernelwright.engine.grammar import check_grammar, choice_grammar, json_grammar, lark_grammar, regex_grammar
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.scripted import END, VOCAB, ByteText
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.text import load_text
from kernelwright.engine.tokenizer import build_tokenizer
from kernelwright.engine.tools import FunctionSpec, ToolPlan
from kernelwright.profiles.errors import WrongUse

sys.path.append(str(Path(__file__).parent))
from checkpoints import make_folder
from random_schemas import check_answer

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["é", "日本", '"']}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def constrain(grammar: str, text: ByteText | None = None) -> Constraint:
    return GrammarCompiler(text or ByteText(), VOCAB, (END,)).compile(grammar).result(30)


def allowed(constraint: Constraint, said: bytes) -> set[int]:
    masked = constraint.mask(torch.zeros(VOCAB), list(said))
    return set(torch.isfinite(masked).nonzero().flatten().tolist())


def test_only_what_the_grammar_allows_is_left_and_the_end_only_at_its_end() -> None:
    yes_no = constrain(choice_grammar(["yes", "yesterday", "né"]))
    assert allowed(yes_no, b"") == set(b"yn")
    assert allowed(yes_no, b"yes") == {ord("t"), END}
    assert allowed(yes_no, b"n") == {0xC3}, "a byte of a character"
    assert allowed(yes_no, "né".encode()) == {END} and yes_no.has_ended


def test_what_is_allowed_keeps_its_logit() -> None:
    logits = torch.randn(VOCAB)
    masked = constrain(regex_grammar("[0-9]+")).mask(logits, [])
    digits = list(b"0123456789")
    assert torch.equal(masked[digits], logits[digits]) and int(torch.isfinite(masked).sum()) == 10


def test_it_follows_the_tokens_also_when_some_are_taken_back() -> None:
    constraint = constrain(regex_grammar("(ab){2}c"))
    assert allowed(constraint, b"aba") == {ord("b")}
    assert allowed(constraint, b"a") == {ord("b")}
    assert allowed(constraint, b"abab") == {ord("c")}
    assert allowed(constraint, b"") == {ord("a")}


def test_after_a_token_that_is_forbidden_only_the_end_is_left() -> None:
    constraint = constrain(regex_grammar("ab"))
    assert allowed(constraint, b"x") == {END} and constraint.has_failed
    assert allowed(constraint, b"a") == {ord("b")} and not constraint.has_failed, "nor is it lost for ever"


def test_a_control_token_is_no_text() -> None:
    anything = constrain(regex_grammar("(.|\n)*"))
    assert END in allowed(anything, b"") and END in allowed(anything, b"<en")
    assert allowed(constrain(choice_grammar(["<end>"])), b"") == {ord("<")}


class Indented(ByteText):
    """A tokenizer that puts a blank before every text, as some do."""

    def encode(self, text: str) -> list[int]:
        return list(b" " + text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return super().decode(token_ids).removeprefix(" ")


def test_a_tokenizer_that_adds_a_blank_changes_nothing() -> None:
    constraint = constrain(choice_grammar(["a fixed text"]), Indented())
    for at, byte in enumerate(b"a fixed text"):
        assert allowed(constraint, b"a fixed text"[:at]) == {byte}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_it_holds_with_tokenizers_of_every_kind(tmp_path: Path, architecture: str) -> None:
    """Byte-level with a leading token, byte-level with ids beyond the vocabulary, and words with byte fallback."""
    described = read_tokenizer(make_folder(tmp_path / "model", architecture))
    text, tokenizer = load_text(described), build_tokenizer(described)
    vocab = tokenizer.vocab_size + 7
    compiler = GrammarCompiler(text, vocab, tokenizer.eos_ids)
    torch.manual_seed(1)
    for _ in range(5):
        constraint, said = compiler.compile(json_grammar(SCHEMA)).result(30), list[int]()
        while not constraint.has_ended:
            masked = constraint.mask(torch.randn(vocab), said)
            assert not torch.isfinite(masked[tokenizer.vocab_size :]).any(), "ids that no token has"
            said.append(int(masked.argmax()))
            constraint.follow(said)
        check_answer(SCHEMA, text.decode(said))


def test_strict_tools_hold_a_call_in_free_text_to_their_schema() -> None:
    f = FunctionSpec(name="f", parameters=SCHEMA, strict=True)
    grammar = ToolPlan((f,), False, 16, "hermes", False).grammar(None)
    assert grammar is not None
    constraint = constrain(grammar)
    assert allowed(constraint, b"Well <tool") > set(b" _abc{\n") | {END}
    assert allowed(constraint, b"<tool_call>") == {ord("\n")}
    head = b'Well.\n<tool_call>\n{"name": "f", "arguments": {"a": 7'
    assert allowed(constraint, head) == set(b"0123456789, ")
    assert allowed(constraint, head + b', "b": "\xc3\xa9"}') == {ord("}")}
    assert END in allowed(constraint, head + b', "b": "\xc3\xa9"}}\n</tool_call>')


def test_llama3_text_cannot_begin_like_a_call_unless_it_is_one() -> None:
    f = FunctionSpec(name="f", parameters=SCHEMA, strict=True)
    grammar = ToolPlan((f,), False, 1, "llama3", True).grammar(None)
    assert grammar is not None
    constraint = constrain(grammar)
    assert allowed(constraint, b"{") == {ord('"')} and allowed(constraint, b'{"') == {ord("n")}
    assert ord("{") in allowed(constraint, b"Well "), "in the middle of words a brace is a brace"


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        (json_grammar({"type": "strin"}), "Invalid type: strin"),
        (json_grammar({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (json_grammar({"type": "integer", "minimum": 3, "maximum": 1}), "Unsatisfiable"),
        (regex_grammar("a("), "unclosed group"),
        (lark_grammar("start: nowhere"), "nowhere"),
        (lark_grammar("x" * 600_000), "at most"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(grammar: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        check_grammar(grammar)


def test_a_structured_output_is_one_thing() -> None:
    assert StructuredOutputs.model_validate({"json": '{"type": "object"}'}).schema_asked == {"type": "object"}
    for fields in ({}, {"regex": "a", "choice": ["b"]}, {"json": "[1]"}, {"json": "{"}, {"json": {}, "grammar": "x"}):
        with pytest.raises(ValueError):
            StructuredOutputs.model_validate(fields)


# ---- in the engine -------------------------------------------------------------------------------------------------


def run_all(engine: LLMEngine) -> dict[str, list[int]]:
    said: dict[str, list[int]] = {}
    for _ in range(2000):
        for output in engine.step():
            assert output.token_id is not None
            said.setdefault(output.request_id, []).append(output.token_id)
        if not engine.has_work():
            return said
    raise AssertionError("it did not end")


def constraint_for(engine: LLMEngine, grammar: str) -> Constraint:
    text = load_text(read_tokenizer(engine.model_path))
    return GrammarCompiler(text, engine.config.vocab, engine.tokenizer.eos_ids).compile(grammar).result(30)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_preempted_requests_say_the_same(tiny_model: Path, temperature: float) -> None:
    def answers(num_pages: int) -> tuple[dict[str, list[int]], int]:
        engine = LLMEngine(tiny_model, threads=1, num_pages=num_pages)
        for index in range(4):
            params = SamplingParams(max_tokens=60, temperature=temperature, seed=index)
            constraint = constraint_for(engine, regex_grammar("([a-f]{3}-){12}z"))
            engine.add_request(f"r{index}", [40 + index] * 20, params, constraint)
        return run_all(engine), engine.num_preemptions

    roomy, none = answers(256)
    tight, some = answers(10)
    assert none == 0 and some > 0, "the small cache has to preempt, or this shows nothing"
    assert tight == roomy
    decode = LLMEngine(tiny_model, threads=1).tokenizer.decode
    assert all(re.fullmatch("([a-f]{3}-){12}z", decode(ids)) for ids in tight.values())


def test_without_the_mask_the_answer_is_another(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Constraint, "mask", lambda self, logits, generated: logits)
    engine = LLMEngine(tiny_model, threads=1)
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=1)
    engine.add_request("r", [40] * 20, params, constraint_for(engine, json_grammar(SCHEMA)))
    with pytest.raises(ValueError):
        json.loads(engine.tokenizer.decode(run_all(engine)["r"]))


@pytest.fixture(scope="module")
def served(tiny_model: Path) -> EmbeddedEngine:
    return load_served_engine(tiny_model, threads=1)[0]


def drain(engine: EmbeddedEngine, until: str) -> list[wire.Token]:
    tokens: list[wire.Token] = []
    for _ in range(2000):
        tokens += engine.step()
        if any(token.id == until and token.finish for token in tokens):
            return tokens
    raise AssertionError(f"{until} did not end")


def test_log_probabilities_are_the_models_own(served: EmbeddedEngine) -> None:
    """Of a token the grammar forces, too: its probability under the grammar would be 1."""
    served.submit(
        "lp", [40] * 5, wire.Sampling(max_tokens=20, temperature=0, logprobs=1, grammar=choice_grammar(["xyz"]))
    )
    tokens = drain(served, "lp")
    assert all(token.logprob is not None and token.logprob < -0.5 for token in tokens)
    assert tokens[-1].finish == "stop"


def test_a_bias_cannot_leave_the_grammar(served: EmbeddedEngine) -> None:
    bias = tuple((token, 100.0) for token in range(3, 60))
    served.submit("b", [40] * 5, wire.Sampling(max_tokens=9, logit_bias=bias, grammar=choice_grammar(["~~"])))
    decode = served.engine.tokenizer.decode
    assert decode([token.token for token in drain(served, "b") if token.token is not None]) == "~~"


def test_others_go_on_while_a_grammar_is_compiled(served: EmbeddedEngine) -> None:
    gate = threading.Event()
    served._compiler._pool.submit(gate.wait, 60)  # the compiler is busy until we say otherwise
    served.submit("held", [50] * 4, wire.Sampling(max_tokens=3, grammar=choice_grammar(["abc"])))
    served.submit("plain", [50] * 4, wire.Sampling(max_tokens=2, ignore_eos=True))
    assert not any(token.id == "held" for token in drain(served, "plain"))
    assert served.step() == []
    gate.set()
    assert [token.finish for token in drain(served, "held")] == [None, None, "stop"]


def test_a_grammar_that_fails_and_one_that_nobody_waits_for(served: EmbeddedEngine) -> None:
    served.submit("bad", [50] * 4, wire.Sampling(max_tokens=3, grammar=lark_grammar("start: nowhere")))
    refused: list[wire.Ended] = []
    for _ in range(200):
        assert not served.step()
        refused += served.refused()
        if refused:
            break
    assert refused[0].id == "bad" and refused[0].status == 400 and "nowhere" in (refused[0].error or "")
    served.submit("left", [50] * 4, wire.Sampling(max_tokens=3, grammar=choice_grammar(["abc"])))
    served.abort("left")
    served.submit("last", [50] * 4, wire.Sampling(max_tokens=3))
    assert all(token.id == "last" for token in drain(served, "last"))
