"""Read a Hugging Face model folder: config.json, safetensors (mapped, sharded or not), and what its tokenizer needs.

Formats: `save_pretrained` of `transformers`; safetensors. Tensors get the names that GGUF files use, so that one
decoder serves both, and norms that are stored as gain minus one become gains. Nothing in the folder is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.engine.architectures import Architecture
from kernelwright.engine.gguf import Kind, Weight
from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TOKENIZER_CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
KINDS: dict[str, Kind] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
AGAIN = "Fetch the model again"
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
AROUND = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
"""What differs where norms stand on both sides of attention and MLP."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises BrokenInput when it is missing, unreadable or something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BrokenInput(f"there is no {path}", "Give a model folder as Hugging Face writes them") from error
    except OSError as error:
        raise BrokenInput(f"{path} cannot be read: {error.strerror or error}", "Check its permissions") from error
    except ValueError as error:
        raise BrokenInput(f"{path} is not JSON: {error}", AGAIN) from error
    if not isinstance(found, dict):
        raise BrokenInput(f"{path} holds no JSON object", AGAIN)
    return found


def folder_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a model folder that this engine reads, in order of their names.

    Raises BrokenInput when its weights are missing, or their index names a file outside the folder.
    """
    others = (CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE, INDEX)
    paths = {folder / name for name in others if (folder / name).is_file()} | set(weight_files(folder))
    return tuple(sorted(paths))


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the safetensors files of a model folder. Raises BrokenInput when one is missing."""
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    if not (folder / INDEX).is_file():
        remedy = "Give a folder with safetensors weights (older formats: save them anew with transformers)"
        raise BrokenInput(f"{folder} holds neither {WEIGHTS} nor {INDEX}", remedy)
    names = set(_index(folder).values())
    paths = tuple(folder / name for name in sorted(names) if isinstance(name, str) and Path(name).name == name)
    if len(paths) != len(names):
        raise BrokenInput(f"{folder / INDEX} names files outside its folder", AGAIN)
    if missing := [path.name for path in paths if not path.is_file()]:
        raise BrokenInput(f"{folder} lacks {missing[0]}, a part of its weights", AGAIN)
    return paths


def read_tensors(folder: Path) -> dict[str, Weight]:
    """Map the weights of a folder and return them under their own names.

    Raises BrokenInput on a missing or broken part, a tensor that is not where the index says, or an unread dtype.
    """
    tensors: dict[str, Weight] = {}
    for path in weight_files(folder):
        for name, tensor in _read_part(path).items():
            if name in tensors:
                raise BrokenInput(f"{folder}: {name} is in two parts of the weights", AGAIN)
            kind = KINDS.get(str(tensor.dtype).removeprefix("torch."))
            if kind is None:
                what = f"tensor {name} has dtype {tensor.dtype}"
                raise BrokenInput(f"{path}: {what}, which this engine does not read", f"Known: {', '.join(KINDS)}")
            tensors[name] = Weight(kind, tensor)
    if not (folder / WEIGHTS).is_file() and (lost := sorted(set(_index(folder)) - set(tensors))):
        raise BrokenInput(f"{folder}: {lost[0]} is not in the part that the index names", AGAIN)
    return tensors


def file_names(architecture: Architecture, num_layers: int) -> dict[str, str]:
    """Return the name each tensor has in a folder, by the name this engine knows it by."""
    layer = LAYER | AROUND if architecture.post_norms else LAYER
    names = {ours: theirs for theirs, ours in ENDS.items()}
    for i in range(num_layers):
        for theirs, ours in layer.items():
            for part in ("weight", "bias"):
                names[f"blk.{i}.{ours}.{part}"] = f"model.layers.{i}.{theirs}.{part}"
    return names


def rename(
    tensors: Mapping[str, Weight], names: Mapping[str, str], architecture: Architecture, tied: bool
) -> dict[str, Weight]:
    """Return a folder's tensors under the engine's names, norms as gains; names we do not know stay as they are.

    `names` as from `file_names`. Left out, as `transformers` does: a head that is tied, and the rotary frequencies of
    old files.
    """
    ours = {theirs: name for name, theirs in names.items()}
    renamed = {}
    for name, weight in tensors.items():
        if name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and tied):
            continue
        if architecture.norms_from_zero and name.endswith("norm.weight"):
            weight = Weight("f32", 1.0 + weight.data.float())
        renamed[ours.get(name, name)] = weight
    return renamed


def tokenizer_data(folder: Path) -> dict[str, Any]:
    """Return what `build_tokenizer` needs, as plain values: it travels to the process that speaks HTTP.

    Raises BrokenInput when there is no tokenizer.json, or a file beside it is broken.
    """
    try:
        described = (folder / TOKENIZER).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        remedy = "Give a folder with a tokenizer.json (transformers writes one for every fast tokenizer)"
        raise BrokenInput(f"{folder / TOKENIZER} cannot be read: {error}", remedy) from error
    config = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    special = {
        key: value["content"] if isinstance(value, dict) and "content" in value else value
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, str | dict)
    }
    return {
        "tokenizer.huggingface.json": described,
        "tokenizer.huggingface.special": {key: value for key, value in special.items() if isinstance(value, str)},
        "tokenizer.huggingface.eos_ids": _eos_ids(folder),
        "tokenizer.chat_template": _template(folder, config),
    }


def _eos_ids(folder: Path) -> list[int]:
    """Return the ids that end a generation: the generation's own configuration, else the model's."""
    for name in (GENERATION, CONFIG):
        found = read_json(folder / name).get("eos_token_id") if (folder / name).is_file() else None
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
            raise BrokenInput(f"{folder / name}: eos_token_id is {found!r}", AGAIN)
        return ids
    return []


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        found = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}.get("default")
    if found is not None and not isinstance(found, str):
        raise BrokenInput(f"{folder / TOKENIZER_CONFIG}: chat_template is not text", AGAIN)
    return found


def _index(folder: Path) -> dict[str, Any]:
    found = read_json(folder / INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise BrokenInput(f"{folder / INDEX} has no weight_map", AGAIN)
    return found


def _read_part(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as part:
            return {name: part.get_tensor(name) for name in part.keys()}  # not a mapping
    except (SafetensorError, ValueError, AttributeError) as error:  # AttributeError: a dtype that torch has not
        raise BrokenInput(f"{path} is not a readable safetensors file ({error})", AGAIN) from error
    except OSError as error:
        raise BrokenInput(f"{path} cannot be read: {error.strerror or error}", "Check its permissions") from error
