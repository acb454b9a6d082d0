"""What sets the architectures that the engine runs apart from a plain Llama, and which tensors each one holds.

Tensors go by the names that GGUF files use (`blk.3.attn_q.weight`), whatever a checkpoint calls them. Sources: Touvron
et al. 2023 (Llama), Qwen team 2024 and 2025 (Qwen2, Qwen3), Gemma team 2025 (Gemma 3), and how `transformers` and
llama.cpp run them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kernelwright.engine.config import ModelConfig

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Architecture:
    name: str
    """GGUF's `general.architecture`."""
    hugging_face: str
    """The entry of `architectures` in a Hugging Face config.json."""
    qkv_bias: bool = False
    """Query, key and value projections add a bias."""
    qk_norm: bool = False
    """Each query and key head is normed before its rotation."""
    post_norms: bool = False
    """What attention and MLP give is normed before it is added."""
    activation: Literal["silu", "gelu"] = "silu"
    """The gate's; gelu is its tanh form."""
    scaled_embedding: bool = False
    """Embeddings are multiplied with sqrt(hidden)."""
    norms_from_zero: bool = False
    """Hugging Face files hold a norm's gain minus one; GGUF files hold the gain."""
    interleaved: bool = False
    """GGUF files hold query and key rows in the order of rotary pairs side by side."""
    tied: bool = False
    """Whether the head is the embedding where a Hugging Face config does not say."""
    rope_base: float = 10_000.0
    local_rope_base: float | None = None


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", "LlamaForCausalLM", interleaved=True),
        Architecture("qwen2", "Qwen2ForCausalLM", qkv_bias=True),
        Architecture("qwen3", "Qwen3ForCausalLM", qk_norm=True),
        Architecture(
            "gemma3", "Gemma3ForCausalLM", qk_norm=True, post_norms=True, activation="gelu", scaled_embedding=True,
            norms_from_zero=True, tied=True, rope_base=1_000_000.0, local_rope_base=10_000.0,
        ),
    )
}  # fmt: skip
OPTIONAL = frozenset({"output.weight", "rope_freqs.weight"})
"""A head of its own (else it is the embedding), and llama.cpp's divisors of rotary frequencies (Llama 3)."""


def expected_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the tensors that a checkpoint of this shape holds, [rows, columns] each; those in OPTIONAL may lack."""
    c, traits = config, config.traits
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    layer: dict[str, Shape] = {
        "attn_norm.weight": (c.hidden,),
        "attn_q.weight": (q, c.hidden),
        "attn_k.weight": (kv, c.hidden),
        "attn_v.weight": (kv, c.hidden),
        "attn_output.weight": (c.hidden, q),
        "ffn_norm.weight": (c.hidden,),
        "ffn_gate.weight": (c.ffn, c.hidden),
        "ffn_up.weight": (c.ffn, c.hidden),
        "ffn_down.weight": (c.hidden, c.ffn),
    }
    if traits.qkv_bias:
        layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if traits.qk_norm:
        layer |= {"attn_q_norm.weight": (c.head_dim,), "attn_k_norm.weight": (c.head_dim,)}
    if traits.post_norms:
        layer |= {"post_attention_norm.weight": (c.hidden,), "post_ffw_norm.weight": (c.hidden,)}
    shapes = {f"blk.{i}.{name}": shape for i in range(c.num_layers) for name, shape in layer.items()}
    ends: dict[str, Shape] = {"token_embd.weight": (c.vocab, c.hidden), "output.weight": (c.vocab, c.hidden)}
    if traits.interleaved:
        ends["rope_freqs.weight"] = (c.head_dim // 2,)
    return {**shapes, **ends, "output_norm.weight": (c.hidden,)}
