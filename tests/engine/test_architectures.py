"""Every architecture's logits, texts and tokens are those of `transformers`, from a folder and from a GGUF file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parent))
from checkpoints import ARCHITECTURES, PARAGRAPHS, WINDOW, build_model, make_folder, write_gguf

from kernelwright.engine import architectures, decoder
from kernelwright.engine.checkpoint import open_checkpoint
from kernelwright.engine.config import ModelConfig
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.score import ForcedSequence
from kernelwright.engine.sequence import SamplingParams

CLOSE = 1e-4
LENGTHS = (3, 16, 40, 119)
"""Tokens of the scored texts: less than a page, a page, beyond the window, many pages."""
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ARCHITECTURES},
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with llama3 scaling": (
        "llama", {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0, "original_max_position_embeddings": 64}},
    ),
    "llama with linear scaling": (
        "llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0}},
    ),
    "gemma3 as the larger ones": (
        "gemma3", {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        },
    ),
}  # fmt: skip
"""What a folder and a GGUF file can both say."""
FOLDER_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3 with another scale": ("gemma3", {"query_pre_attn_scalar": 20}),
    "gemma3 with its own order": (
        "gemma3", {"layer_types": ["sliding_attention", "full_attention"] * 3, "num_hidden_layers": 6},
    ),
    "qwen2 with windows": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen3 with windows": ("qwen3", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    "llama with heads of its own": ("llama", {"head_dim": 24}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Matrices this small are slower on two threads, and far slower where others use the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function from the name of a variant to its folder, made once."""
    root = tmp_path_factory.mktemp("checkpoints")

    @cache
    def folder(variant: str) -> Path:
        architecture, changes = {**VARIANTS, **FOLDER_VARIANTS}[variant]
        return make_folder(root / variant.replace(" ", "-"), architecture, **changes)

    return folder


@cache
def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def draw_texts(vocab: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, vocab, (length,), generator=generator).tolist() for length in LENGTHS]


@torch.no_grad()
def expected_logits(folder: Path, texts: Sequence[list[int]]) -> list[torch.Tensor]:
    return [loaded(folder)(torch.tensor([text])).logits[0] for text in texts]


def scored(engine: LLMEngine, texts: Sequence[list[int]], phase: str) -> list[torch.Tensor]:
    """Return logits of each text after each of its tokens; in decode, of those behind the first."""
    sequences = [
        ForcedSequence(tuple(text)) if phase == "prefill" else ForcedSequence(tuple(text[:1]), tuple(text[1:]))
        for text in texts
    ]
    rows: list[list[torch.Tensor]] = [[] for _ in texts]
    for index, _, logits in engine.score(sequences, phase):  # type: ignore[arg-type]
        rows[index].append(logits.clone())
    return [torch.stack(found) for found in rows]


def largest_error(path: Path, folder: Path, phase: str, **options: Any) -> float:
    engine = LLMEngine(path, num_pages=64, **options)
    texts = draw_texts(engine.config.vocab)
    skipped = 0 if phase == "prefill" else 1
    pairs = zip(scored(engine, texts, phase), expected_logits(folder, texts), strict=True)
    return max(float((found - expected[skipped:]).abs().max()) for found, expected in pairs)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("variant", [*VARIANTS, *FOLDER_VARIANTS])
def test_logits_of_a_folder_are_those_of_transformers(folders: Any, variant: str, phase: str) -> None:
    folder = folders(variant)
    assert largest_error(folder, folder, phase) < CLOSE


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_a_gguf_file_are_those_of_the_folder(folders: Any, tmp_path: Path, variant: str, phase: str) -> None:
    folder = folders(variant)
    file = write_gguf(folder, tmp_path / "model.gguf")
    assert largest_error(file, folder, phase) < CLOSE
    ours, theirs = (LLMEngine(path, num_pages=64) for path in (file, folder))
    texts = draw_texts(ours.config.vocab)
    for found, expected in zip(scored(ours, texts, phase), scored(theirs, texts, phase), strict=True):
        # rotary tables and the scale of queries may be rounded elsewhere; the rest is the same arithmetic
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_prompt_cut_into_chunks_gives_the_same_logits(folders: Any, architecture: str) -> None:
    folder = folders(architecture)
    assert largest_error(folder, folder, "prefill", token_budget=32) < CLOSE


GREEDY = {"llama": (7, 4.0), "qwen2": (10, 4.0), "qwen3": (9, 1.0), "gemma3": (6, 0.5)}
"""Seed and size of the embeddings. Random weights come near a tie in one of 6400 steps or another; these were chosen,
out of ten seeds each, because they do not: the smallest margin is some 35 times what the two engines differ by. (With
none of the forty did a text differ.) Tied embeddings are kept small, or a model would only repeat its last token."""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_texts_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    """50 prompts of 8 to 40 tokens, 128 tokens each; batched in the engine, with its prefix cache on."""
    seed, spread = GREEDY[architecture]
    folder = make_folder(tmp_path / "model", architecture, seed=seed, spread=spread)
    engine = LLMEngine(folder, num_pages=256)
    prompts = draw_prompts(engine.config.vocab)
    expected, margin = generate_greedily(folder, prompts, 128)
    assert margin > 10 * largest_error(folder, folder, "decode"), "these weights leave ties: choose others"
    assert sum(len(set(text)) for text in expected) > 15 * 50, "texts that say one thing only prove little"
    assert run_greedily(engine, prompts, 128) == expected


def draw_prompts(vocab: int) -> list[list[int]]:
    """Return 50 prompts, ten of each length, so that none has to be padded beside its neighbours."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(5, vocab, (8 * (1 + i // 10),), generator=generator).tolist() for i in range(50)]


@torch.no_grad()
def generate_greedily(model: Any, prompts: list[list[int]], new: int) -> tuple[list[list[int]], float]:
    """Return what `transformers` continues `prompts` with, and the smallest distance of two best logits on the way."""
    model = loaded(model) if isinstance(model, Path) else model
    texts, margin = [], float("inf")
    for start in range(0, len(prompts), 10):
        tokens, cache = torch.tensor(prompts[start : start + 10]), None
        drawn: list[torch.Tensor] = []
        for _ in range(new):
            step = model(tokens, past_key_values=cache, use_cache=True)
            best = step.logits[:, -1].topk(2, dim=-1)
            margin = min(margin, float((best.values[:, 0] - best.values[:, 1]).min()))
            tokens, cache = best.indices[:, :1], step.past_key_values
            drawn.append(tokens)
        texts += torch.cat(drawn, dim=1).tolist()
    return texts, margin


def run_greedily(engine: LLMEngine, prompts: list[list[int]], new: int) -> list[list[int]]:
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True))
    texts: list[list[int]] = [[] for _ in prompts]
    while engine.has_work():
        for output in engine.step():
            assert output.token_id is not None
            texts[int(output.request_id)].append(output.token_id)
    return texts


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_half_precision_weights_are_widened_and_computed_in_float32(
    tmp_path: Path, architecture: str, dtype: str
) -> None:
    folder = make_folder(tmp_path / "model", architecture)
    model = loaded(folder)
    narrow = build_model(architecture, model.config.vocab_size).to(getattr(torch, dtype))
    narrow.save_pretrained(folder)
    assert open_checkpoint(folder).tensors["token_embd.weight"].kind == {"bfloat16": "bf16", "float16": "f16"}[dtype]
    reference = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    scale = getattr(reference.model.embed_tokens, "embed_scale", None)
    if scale is not None:  # in the model's own dtype `transformers` rounds it, and so do we
        scale.copy_(scale.to(getattr(torch, dtype)))
    engine = LLMEngine(folder, num_pages=64)
    texts = draw_texts(engine.config.vocab)
    for text, found in zip(texts, scored(engine, texts, "prefill"), strict=True):
        with torch.no_grad():
            assert (found - reference(torch.tensor([text])).logits[0]).abs().max() < CLOSE


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_quantised_files_are_served_from_raw_blocks(folders: Any, tmp_path: Path, architecture: str, kind: str) -> None:
    file = write_gguf(folders(architecture), tmp_path / "model.gguf", kind=kind)
    engine = LLMEngine(file, num_pages=64)
    texts = draw_texts(engine.config.vocab)
    found = scored(engine, texts, "decode")
    names = {state.definition.split("_n")[0] for state in engine.kernels() if state.incumbent_calls}
    biased = "_bias" if architecture == "qwen2" else ""
    assert f"{kind.lower()}_linear{biased}" in names and f"{kind.lower()}_linear" in names
    with pytest.MonkeyPatch.context() as patch:  # the same weights, dequantised once
        patch.setattr(decoder, "_op_type", lambda kinds, suffix: f"f32_{suffix}")
        dense = scored(LLMEngine(file, num_pages=64), texts, "decode")
    assert max(float((a - b).abs().max()) for a, b in zip(found, dense, strict=True)) < CLOSE


# Each of these takes a part of an architecture away; the comparison above must see it.


def without(monkeypatch: pytest.MonkeyPatch, architecture: str, **traits: Any) -> None:
    changed = dataclasses.replace(architectures.ARCHITECTURES[architecture], **traits)
    monkeypatch.setitem(architectures.ARCHITECTURES, architecture, changed)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_a_missing_norm_of_heads_is_seen(
    folders: Any, monkeypatch: pytest.MonkeyPatch, architecture: str, phase: str
) -> None:
    folder = folders(architecture)
    unnormed = decoder.DecoderWeights.definitions

    def definitions(self: Any, layer: int) -> Any:
        found = dict(unnormed(self, layer))
        if "norm_rope" in found:
            c = self.config
            del found["norm_rope"]
            found["rope"] = decoder.define("rope_cache", q=c.num_heads, kv=c.num_kv_heads, d=c.head_dim, p=16)
        return found

    monkeypatch.setattr(decoder.DecoderWeights, "definitions", definitions)
    assert largest_error(folder, folder, phase) > 100 * CLOSE


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_missing_window_is_seen(folders: Any, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    folder = folders("gemma3")
    monkeypatch.setattr(ModelConfig, "window_of", lambda self, layer: None)
    assert largest_error(folder, folder, phase) > 100 * CLOSE


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_window_that_is_off_by_one_is_seen(
    folders: Any, monkeypatch: pytest.MonkeyPatch, phase: str, off_by: int
) -> None:
    folder, right = folders("gemma3"), ModelConfig.window_of

    def wrong(self: Any, layer: int) -> int | None:
        window = right(self, layer)
        return None if window is None else window + off_by

    monkeypatch.setattr(ModelConfig, "window_of", wrong)
    assert largest_error(folder, folder, phase) > 10 * CLOSE


def test_one_rotation_for_all_layers_is_seen(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders("gemma3")
    monkeypatch.setattr(ModelConfig, "rope_of", lambda self, layer: self.rope)
    assert largest_error(folder, folder, "prefill") > 100 * CLOSE


@pytest.mark.parametrize(
    ("architecture", "slot", "weight"),
    [("qwen2", "qkv", "b"), ("gemma3", "attention_post_norm", "weight"), ("gemma3", "mlp_post_norm", "weight")],
)
def test_weights_left_out_are_seen(
    folders: Any, monkeypatch: pytest.MonkeyPatch, architecture: str, slot: str, weight: str
) -> None:
    folder, whole = folders(architecture), decoder.DecoderWeights.slot

    def partly(self: Any, layer: int, name: str) -> Any:
        found = whole(self, layer, name)
        return {**found, weight: torch.full_like(found[weight], float(weight == "weight"))} if name == slot else found

    monkeypatch.setattr(decoder.DecoderWeights, "slot", partly)
    assert largest_error(folder, folder, "prefill") > 100 * CLOSE


def test_another_gate_is_seen(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders("gemma3")
    without(monkeypatch, "gemma3", activation="silu")
    monkeypatch.setattr("kernelwright.engine.hf_config.ACTIVATIONS", {"silu": "gelu_pytorch_tanh"})
    monkeypatch.setattr("kernelwright.engine.hf_config._refuse_options", lambda *_: None)
    assert largest_error(folder, folder, "prefill") > 100 * CLOSE


@pytest.mark.parametrize("trait", [{"scaled_embedding": False}, {"norms_from_zero": False}])
def test_another_scale_or_norm_is_seen(folders: Any, monkeypatch: pytest.MonkeyPatch, trait: dict[str, bool]) -> None:
    folder = folders("gemma3")
    without(monkeypatch, "gemma3", **trait)
    assert largest_error(folder, folder, "prefill") > 100 * CLOSE


@pytest.mark.parametrize("variant", ["llama with llama3 scaling", "llama with linear scaling"])
def test_a_missing_stretch_is_seen(folders: Any, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    folder = folders(variant)
    right = ModelConfig.rope_of
    monkeypatch.setattr(ModelConfig, "rope_of", lambda self, layer: type(self.rope)(base=right(self, layer).base))
    assert largest_error(folder, folder, "prefill") > 100 * CLOSE


def test_regions_are_offered_where_a_layer_is_what_they_say(folders: Any, tmp_path: Path) -> None:
    offered = {}
    for architecture in ARCHITECTURES:
        file = write_gguf(folders(architecture), tmp_path / f"{architecture}.gguf", kind="Q4_1")
        definitions = LLMEngine(file, num_pages=4).dispatch.weights.definitions(0)
        offered[architecture] = {slot for slot in definitions if slot.endswith("_block")}
    assert offered == {
        "llama": {"attention_block", "mlp_block"}, "qwen2": {"mlp_block"}, "qwen3": {"mlp_block"}, "gemma3": set(),
    }  # fmt: skip


def test_compiled_regions_leave_the_other_slots_of_a_layer_in_place(folders: Any, tmp_path: Path) -> None:
    """A region stands for the plain ops only: with one live, a Qwen2 layer still has its own attention."""
    file = write_gguf(folders("qwen2"), tmp_path / "model.gguf", kind="Q4_1")
    engine = LLMEngine(file, num_pages=64, compile_incumbents=True)
    plan = engine.dispatch.plan("decode", 1, 1, 1, 1)
    assert all(at.mlp_block and at.gate_up is None and at.qkv and at.attention_block is None for at in plan.layers)


@pytest.mark.weights
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_smollm2_continues_prompts_as_transformers_does(smollm2: Path) -> None:
    """The shipped file, read by `transformers` itself: 50 prompts, 128 tokens each."""
    from transformers import AutoModelForCausalLM

    engine = LLMEngine(smollm2)
    words = " ".join(PARAGRAPHS).split()
    ids = engine.tokenizer.encode(" ".join(words))
    prompts = [(ids * 2)[i : i + 8 * (1 + i // 10)] for i in range(50)]
    reference = AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32).eval()
    expected, margin = generate_greedily(reference, prompts, 128)
    found = run_greedily(engine, prompts, 128)
    differing = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
    assert not differing, f"{len(differing)} of 50 differ; smallest margin {margin:.2e}"
