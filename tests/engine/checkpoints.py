"""Tiny random checkpoints of every architecture: a Hugging Face folder, the model in `transformers`, and a GGUF file.

Layers, windows and head sizes are chosen so that each part of an architecture matters within 100 tokens: windows are
shorter than the texts, key heads fewer than query heads, heads larger than hidden / heads where that may be.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

PARAGRAPHS = (
    "The old mill stood by the river, and its wheel turned slowly in the brown water of the spring.",
    "A compiler reads text and writes instructions; an interpreter reads text and does what it says.",
    "Café, naïve, Größe, 東京, Привет, 123456 and 3.14159 — spelled with care, counted with ease!",
    "def area(r):\n    return 3.14 * r ** 2\n\nfor i in range(10):\n    print(i, area(i))\n",
)  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] | trim }}"
    "{{ '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<bos>", "<eos>", "<unk>", "<|start|>", "<|end|>"]
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
WINDOW = 21
CONTEXT = 512


def make_folder(folder: Path, architecture: str, seed: int = 0, **changes: Any) -> Path:
    """Write a random checkpoint with `save_pretrained`, tokenizer and template included; return `folder`.

    `changes` go into its configuration. Matrices have rows of length `spread`, and all gains and biases are random, so
    that dropping any of them shows.
    """
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    backend = train_tokenizer(architecture)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = TEMPLATE
    model = build_model(architecture, vocab=len(tokenizer), seed=seed, **changes)
    model.generation_config = GenerationConfig(eos_token_id=[1, 4], bos_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_model(architecture: str, vocab: int, seed: int = 0, spread: float = 1.0, **changes: Any) -> torch.nn.Module:
    """Return a random model of `architecture` in float32."""
    import transformers

    sizes = dict(
        vocab_size=vocab, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1, pad_token_id=None,
        tie_word_embeddings=architecture in ("gemma3", "qwen3"),
    )  # fmt: skip
    if architecture == "qwen3":
        sizes["head_dim"] = 32
    if architecture == "gemma3":
        sizes |= dict(head_dim=32, num_hidden_layers=7, sliding_window=WINDOW, query_pre_attn_scalar=32)
    config = getattr(transformers, CONFIGS[architecture])(**(sizes | changes))
    torch.manual_seed(seed)
    model = getattr(transformers, MODELS[architecture])(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if name.endswith("norm.weight"):
                parameter.copy_(noise * 0.2 if architecture == "gemma3" else 1 + noise * 0.2)
            elif name.endswith("bias"):
                parameter.copy_(noise * 0.5)
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.copy_(noise * 0.1 * spread)
            else:
                parameter.copy_(noise * parameter.shape[1] ** -0.5)
    return model


CONFIGS = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "gemma3": "Gemma3TextConfig"}
MODELS = {name: name.capitalize() + "ForCausalLM" for name in ARCHITECTURES}


def train_tokenizer(architecture: str) -> Any:
    """Return a `tokenizers` BPE of the paragraphs: byte-level, or as gemma3's own is, with byte fallback."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    if architecture == "gemma3":
        backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=SPECIAL + alphabet, show_progress=False)
    else:
        from kernelwright.engine.tokenizer import LLAMA3_SPLIT

        pattern = LLAMA3_SPLIT if architecture == "llama" else LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
        backend = Tokenizer(models.BPE(ignore_merges=architecture == "llama"))
        if architecture != "llama":
            backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)
        ])  # fmt: skip
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIAL, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
    backend.train_from_iterator(PARAGRAPHS, trainer)
    if architecture == "gemma3":  # the trainer makes bytes added tokens; they are pieces
        described = json.loads(backend.to_str())
        described["added_tokens"] = [t for t in described["added_tokens"] if t["content"] in SPECIAL]
        backend = Tokenizer.from_str(json.dumps(described))
    if architecture in ("llama", "gemma3"):  # as the families' own tokenizers do
        backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    return backend


def write_gguf(folder: Path, path: Path, metadata: dict[str, Any] | None = None, kind: str = "F32") -> Path:
    """Write the folder's checkpoint as a GGUF file, names, keys and values as llama.cpp's converter has them.

    `metadata` overrides keys; None leaves one out. `kind` is the type of the matrices.
    """
    import gguf
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    architecture = next(name for name, model in MODELS.items() if model in config["architectures"])
    tensors = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {
        **_keys(architecture, config),
        **_tokenizer_keys(architecture, folder),
        **(metadata or {}),
    }.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if value is not None:
            add.get(type(value), writer.add_array)(key, value)
    names = gguf.get_tensor_name_map(writer_arch(architecture), config["num_hidden_layers"])
    for name, tensor in tensors.items():
        if architecture == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor + 1
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        raw = gguf.GGMLQuantizationType[kind if tensor.dim() > 1 else "F32"]
        writer.add_tensor(
            names.get_name(name, (".weight", ".bias")), gguf.quants.quantize(tensor.numpy(), raw), raw_dtype=raw
        )
    if (config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def writer_arch(architecture: str) -> Any:
    import gguf

    return gguf.MODEL_ARCH[architecture.upper()]


def _keys(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    a = architecture
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    keys = {
        "general.name": f"Tiny {a}", f"{a}.block_count": config["num_hidden_layers"],
        f"{a}.context_length": config["max_position_embeddings"], f"{a}.embedding_length": config["hidden_size"],
        f"{a}.feed_forward_length": config["intermediate_size"],
        f"{a}.attention.head_count": config["num_attention_heads"],
        f"{a}.attention.head_count_kv": config["num_key_value_heads"],
        f"{a}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{a}.rope.freq_base": float(rope["rope_theta"]), f"{a}.attention.key_length": head,
        f"{a}.attention.value_length": head,
    }  # fmt: skip
    if rope["rope_type"] == "linear":
        keys |= {f"{a}.rope.scaling.type": "linear", f"{a}.rope.scaling.factor": float(rope["factor"])}
    if a == "llama":
        keys |= {"llama.vocab_size": config["vocab_size"], "llama.rope.dimension_count": head}
    if a == "gemma3":
        keys["gemma3.attention.sliding_window"] = config["sliding_window"]
    return keys


def _tokenizer_keys(architecture: str, folder: Path) -> dict[str, Any]:
    described = json.loads((folder / "tokenizer.json").read_text())
    vocab = sorted(described["model"]["vocab"], key=described["model"]["vocab"].get)
    keys: dict[str, Any] = {
        "tokenizer.ggml.tokens": vocab, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 4, "tokenizer.chat_template": TEMPLATE,
        "tokenizer.ggml.add_bos_token": architecture in ("llama", "gemma3"),
    }  # fmt: skip
    kinds = [3 if token in SPECIAL else 1 for token in vocab]
    if architecture != "gemma3":
        pre = "llama-bpe" if architecture == "llama" else "qwen2"
        merges = [" ".join(pair) for pair in described["model"]["merges"]]
        return keys | {
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": kinds,
        }  # fmt: skip
    kinds = [
        6 if token.startswith("<0x") else 2 if token == "<unk>" else kind
        for token, kind in zip(vocab, kinds, strict=True)
    ]
    # as in the family's own file, a piece's score is minus its rank among the merges
    ranks = {"".join(pair): rank for rank, pair in enumerate(described["model"]["merges"])}
    return keys | {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [-float(ranks.get(token, len(ranks))) for token in vocab],
        "tokenizer.ggml.add_space_prefix": False,
    }  # fmt: skip


def llama3_divisors(config: dict[str, Any]) -> np.ndarray:
    """Return what llama.cpp's converter writes for Llama 3's RoPE: the divisor of each frequency."""
    rope, dim = config["rope_parameters"], config["hidden_size"] // config["num_attention_heads"]
    old, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for frequency in rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim):
        wavelength = 2 * np.pi / frequency
        smooth = (old / wavelength - low) / (high - low)
        between = 1 / ((1 - smooth) / rope["factor"] + smooth)
        divisors.append(1.0 if wavelength < old / high else rope["factor"] if wavelength > old / low else between)
    return np.array(divisors, np.float32)


def copy_with(folder: Path, target: Path, **changes: Any) -> Path:
    """Copy a folder and change keys of its config.json; None removes one."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return target
