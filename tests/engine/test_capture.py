"""What is captured is what the slots were given, small, self-contained and enough to run the call again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kernelwright.engine.capture import capture_apart, capture_workloads, compact, read_captures
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.mix import Mix, MixRequest, read_mix
from kernelwright.kernels.ops.paging import draw_block_table, draw_cache, draw_contexts
from kernelwright.kernels.registry import define, op_of
from kernelwright.profiles.errors import BrokenInput, KernelwrightError

MIX = Mix(
    name="short", requests=tuple(MixRequest(prompt=p, max_tokens=5) for p in ("one", "two and", "th", "four", "a"))
)


@pytest.fixture(scope="module")
def captured(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture_workloads(tiny_model, MIX, tmp_path_factory.mktemp("captured"), limit=2).parent


def test_every_slot_that_ran_is_captured_in_every_bucket(captured: Path, tiny_model: Path) -> None:
    found = read_captures(captured)
    states = LLMEngine(tiny_model, num_pages=4).kernels()
    ran = {state.definition for state in states if "_block_" not in state.definition}
    assert set(found) == ran
    linear = [(item.phase, item.axes["T"]) for item in found["q4_1_linear_n128_k64"]]
    assert linear[0] == ("decode", 1) and {phase for phase, _ in linear} == {"decode", "prefill"}
    assert any(phase == "decode" and 1 < tokens <= 8 for phase, tokens in linear)
    assert all(len(items) <= 6 for items in found.values())


def test_weights_are_not_stored_and_caches_are_cut_down(captured: Path) -> None:
    for name, items in read_captures(captured).items():
        for item in items:
            tensors = load_file(item.path)
            assert set(tensors) == set(item.keys) and not {"w", "weight", "cos", "sin"} & set(tensors)
            if "k_cache" in tensors:
                assert tensors["k_cache"].shape[0] <= 20, "a few pages, not the engine's thousand"
                assert item.axes["PAGES"] == tensors["k_cache"].shape[0]
            if name.startswith("add_rmsnorm"):
                assert item.scalars == {"eps": pytest.approx(1e-5)}


def test_a_captured_call_runs_again_with_the_models_weights(captured: Path, tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=4)
    table = engine.dispatch.weights.definitions(0)
    for slot in ("rope", "decode_attention", "prefill_attention", "gate_up"):
        item = read_captures(captured)[table[slot].name][0]
        bound = engine.dispatch._bind(item.layer, slot, None)
        inputs = {**load_file(item.path), **item.scalars}
        assert all(torch.isfinite(output).all() for output in bound(**inputs))


def test_a_compacted_call_gives_the_same_result() -> None:
    definition = define("decode_attention", q=4, kv=2, d=8, p=16)
    generator = torch.Generator().manual_seed(0)
    contexts = draw_contexts(3, 4, generator)
    table = draw_block_table(contexts, 4, 50, generator)
    caches = [draw_cache(contexts, table, (50, 16, 2, 8), generator, "normal") for _ in range(2)]
    names = ("q", "k_cache", "v_cache", "block_table", "context_lens")
    inputs = dict(zip(names, (torch.randn(3, 4, 8), *caches, table, contexts), strict=True))
    small = compact(inputs)
    assert small["k_cache"].shape[0] < 50
    scope: dict[str, object] = {}
    exec(definition.reference, scope)
    assert torch.equal(scope["run"](**inputs)[0], scope["run"](**small)[0])  # type: ignore[operator]
    assert op_of(definition).contract(definition).weights == ()


def test_the_shipped_mix_is_varied() -> None:
    mix = read_mix("chat")
    assert len(mix.requests) >= 12 and len({request.kind for request in mix.requests}) >= 5
    assert any(ord(max(request.prompt)) > 0x2FF for request in mix.requests), "not only Latin letters"


def test_apart_writes_the_same_as_in_process(tiny_model: Path, tmp_path: Path, captured: Path) -> None:
    apart = capture_apart(tiny_model, MIX, tmp_path / "apart", limit=2)
    here = read_captures(captured)
    assert {name: [i.axes for i in items] for name, items in apart.items()} == {
        name: [i.axes for i in items] for name, items in here.items()
    }


def test_failures_are_said(tmp_path: Path) -> None:
    with pytest.raises(KernelwrightError, match=r"capturing workloads failed: .*no model file"):
        capture_apart(tmp_path / "none.gguf", MIX, tmp_path / "out")
    with pytest.raises(BrokenInput, match="holds no captured workloads"):
        read_captures(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({})[:1])
    with pytest.raises(BrokenInput, match="holds no captured workloads"):
        read_captures(tmp_path)
