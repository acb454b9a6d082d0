"""Pack kernels run where they are proven and nowhere else; a wrong one is switched off; everything is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.engine.dispatch import KernelState, LoadedKernel
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.sequence import SamplingParams
from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.registry import define, op_of

LINEAR = "q4_1_linear_n128_k64"
MLP, ATTENTION = "q4_1_mlp_block_f96_h64", "q4_1_attention_block_h64_q2_kv1_d32_p16"
SHAPES: dict[str, dict[str, int]] = {
    LINEAR: {"n": 128, "k": 64},
    MLP: {"f": 96, "h": 64},
    ATTENTION: {"h": 64, "q": 2, "kv": 1, "d": 32, "p": 16},
}
PROMPT = list(range(20, 40))


def pack_kernel(
    name: str, ranges: dict[str, tuple[int, int]], source: str | None = None, **fields: Any
) -> LoadedKernel:
    """A kernel as a pack would bring it: the incumbent's own source (or `source`), proven for `ranges`."""
    op_type = name.rsplit("_n" if "linear" in name else "_f" if "mlp" in name else "_h", 1)[0]
    definition = define(op_type, **SHAPES[name])
    incumbent = op_of(definition).incumbent(definition)
    assert definition.name == name
    own = incumbent.sources[0].content + (source or "")
    changed = {
        "sources": (SourceFile(path="kernel.py", content=own),),
        "ranges": {axis: AxisRange(low=low, high=high) for axis, (low, high) in ranges.items()},
        "proposer": "import",
        "author": "a test",
        **fields,
    }
    return LoadedKernel(Candidate(**(incumbent.model_dump() | changed)))


def serve(engine: LLMEngine, new: int = 6, requests: int = 1) -> list[int | None]:
    for index in range(requests):
        engine.add_request(str(index), PROMPT, SamplingParams(max_tokens=new, ignore_eos=True))
    tokens = []
    while engine.has_work():
        tokens += [output.token_id for output in engine.step() if output.request_id == "0"]
    return tokens


def state(engine: LLMEngine, name: str) -> KernelState:
    return next(s for s in engine.kernels() if s.definition == name)


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[int | None]:
    return serve(LLMEngine(tiny_model, num_pages=16))


def test_a_kernel_serves_its_range_and_the_incumbent_the_rest(tiny_model: Path, expected: list[int | None]) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (1, 4)})], num_pages=16)
    assert serve(engine) == expected
    found = state(engine, LINEAR)
    assert found.state == "live" and found.author == "a test" and found.candidate
    assert found.hits == 2 * 5, "two layers, five decode steps"
    assert found.fallbacks == {"out of range": 2}, "the prefill step"
    assert state(engine, "add_rmsnorm_h64").state == "incumbent-only"


def test_the_bucket_decides_not_the_phase(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (2, 8)})], num_pages=16)
    serve(engine)
    assert state(engine, LINEAR).hits == 0
    serve(engine, requests=3)
    assert state(engine, LINEAR).hits == 2 * 5


def test_several_kernels_share_a_definition_by_range(tiny_model: Path, expected: list[int | None]) -> None:
    packs = [pack_kernel(LINEAR, {"T": (1, 1)}), pack_kernel(LINEAR, {"T": (2, 64)})]
    engine = LLMEngine(tiny_model, packs, num_pages=16)
    assert serve(engine) == expected
    hits = [s.hits for s in engine.kernels() if s.definition == LINEAR]
    assert hits == [10, 2] and state(engine, LINEAR).fallbacks == {}


def test_a_live_region_hides_its_ops(tiny_model: Path, expected: list[int | None]) -> None:
    packs = [pack_kernel(MLP, {"T": (1, 64)}), pack_kernel(ATTENTION, {"B": (1, 8)})]
    engine = LLMEngine(tiny_model, packs, num_pages=16)
    assert serve(engine) == expected
    assert state(engine, MLP).hits == 2 * 6
    assert state(engine, ATTENTION).hits == 2 * 5
    assert state(engine, ATTENTION).fallbacks == {"decode only": 2}
    assert state(engine, "q4_1_gate_up_silu_f96_h64").incumbent_calls == 0
    assert state(engine, LINEAR).incumbent_calls == 2, "prefill alone runs the ops of the attention region"
    assert state(engine, "add_rmsnorm_h64").incumbent_calls == 2 + 6, "and the final norm of every step"


def test_incumbent_weights_exist_only_where_they_are_used(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(MLP, {"T": (1, 64)})], num_pages=16)
    serve(engine)
    bound = {slot for _, slot, digest in engine.dispatch._bound if not digest}
    assert "gate_up" not in bound and "down" not in bound and "qkv" in bound


def test_disabled_means_the_incumbent_and_is_counted(tiny_model: Path, expected: list[int | None]) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (1, 64)})], num_pages=16, disable=[LINEAR])
    assert serve(engine) == expected
    found = state(engine, LINEAR)
    assert (found.state, found.hits, found.fallbacks) == ("disabled", 0, {"disabled": 12})
    engine.disable([])
    assert serve(engine) == expected
    found = state(engine, LINEAR)
    assert (found.state, found.hits, found.fallbacks) == ("live", 12, {"disabled": 12}), "counts survive the switch"


WRONG = "\n_right = run\n\ndef run(*inputs):\n    return (_right(*inputs)[0] * 1.01,)\n"


def test_a_wrong_kernel_is_switched_off_before_it_serves(tiny_model: Path, expected: list[int | None]) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (1, 64)}, WRONG)], num_pages=16)
    failed = engine.check_kernels()
    assert [f.definition for f in failed] == [LINEAR] and "off by" in failed[0].reason
    assert serve(engine) == expected
    found = state(engine, LINEAR)
    assert (found.state, found.hits, found.fallbacks) == ("failed", 0, {"failed": 12})


def test_without_the_check_the_wrong_kernel_would_serve(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (1, 64)}, WRONG)], num_pages=16)
    serve(engine)
    assert state(engine, LINEAR).hits == 12


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("\n_run = run\n\ndef run(x, dense):\n    y = _run(x, dense)[0]\n    y[9:10] = 0\n    return (y,)\n", "T=64"),
        ("\ndef run(x, dense):\n    return (x.new_full((len(x), 128), float('nan')),)\n", "not finite"),
        ("\ndef run(x, dense):\n    return (x,)\n", "shape"),
        ("\ndef run(x, dense):\n    raise RuntimeError('no')\n", "raises RuntimeError: no"),
    ],
    ids=["wrong at the far end only", "nan", "shape", "raises"],
)  # fmt: skip
def test_the_check_looks_at_both_ends_of_the_range(tiny_model: Path, source: str, reason: str) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(LINEAR, {"T": (1, 64)}, source)], num_pages=16)
    assert reason in engine.check_kernels()[0].reason


def test_right_kernels_pass_the_check_regions_included(tiny_model: Path) -> None:
    packs = [
        pack_kernel(LINEAR, {"T": (1, 64)}),
        pack_kernel(MLP, {"T": (1, 9)}),
        pack_kernel(ATTENTION, {"B": (1, 99)}),
    ]
    engine = LLMEngine(tiny_model, packs, num_pages=16)
    assert engine.check_kernels() == []
    assert state(engine, ATTENTION).state == "live"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"language": "cpp"}, "does not load"),
        ({"entry_point": "absent"}, "does not load"),
        ({"definition": "q4_1_linear_n9_k64"}, "no such slot"),
    ],
)
def test_a_kernel_that_does_not_load_is_reported_and_not_served(
    tiny_model: Path, expected: list[int | None], fields: dict[str, Any], reason: str
) -> None:
    kernel = pack_kernel(LINEAR, {"T": (1, 64)}, **fields)
    engine = LLMEngine(tiny_model, [kernel], num_pages=16)
    assert serve(engine) == expected
    found = state(engine, kernel.candidate.definition)
    assert found.state == "failed" and reason in found.reason
    assert [s.definition for s in engine.check_kernels()] == [kernel.candidate.definition]


def test_a_range_on_the_context_is_kept(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, [pack_kernel(ATTENTION, {"B": (1, 8), "MB": (1, 2)})], num_pages=16)
    serve(engine, new=20)
    found = state(engine, ATTENTION)
    # tokens 21..32 lie in two pages, 33..39 need a third
    assert found.hits == 2 * 12 and found.fallbacks == {"decode only": 2, "out of range": 2 * 7}


def test_the_same_logits_come_out_with_and_without_packs(tiny_model: Path) -> None:
    from kernelwright.engine.score import ForcedSequence

    plain = LLMEngine(tiny_model, num_pages=16)
    packed = LLMEngine(tiny_model, [pack_kernel(MLP, {"T": (1, 64)})], num_pages=16)
    rows = [
        torch.stack([logits for *_, logits in engine.score([ForcedSequence((1, 2), tuple(PROMPT))], "decode")])
        for engine in (plain, packed)
    ]
    assert torch.allclose(*rows, rtol=1e-5, atol=1e-5)
