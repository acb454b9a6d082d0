"""Is the incumbent honest? The embedded engine without packs against `transformers`, float32, on the same weights.

    python benchmarks/incumbent.py [--model FILE.gguf] [--pairs 6] [--threads N] [--prompts 20] [--cpu-time]

Speed: batch-1 decode (prompt 128, 128 tokens) and prefill (512 tokens), both sides in this one process in ABBA order,
so that a slow moment of the machine falls on both. Text: greedy continuations of 20 prompts, 64 tokens each; a
difference counts as a tie where the reference itself is undecided (its two best logits less than 1e-3 apart).
`--cpu-time` counts this process's CPU seconds instead of the wall clock: with `--threads 1`, the measure to take on a
machine that is busy with other work. Prints a table, then one JSON object as the last line. Exit code 1 when the
engine is below 0.9 of `transformers` or a text differs otherwise than by a tie.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.engine.gguf import dequantize, read_gguf, unpermute
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.weights import find_default_model

PROMPT, DECODE, PREFILL = 128, 128, 512
GREEDY_TOKENS, TIE_MARGIN, NEEDED = 64, 1e-3, 0.9
PROMPTS = (
    "The capital of France is", "Once upon a time there was a", "def fibonacci(n):\n    ", "Water boils at",
    "The three laws of motion are", "Photosynthesis is the process by which", "To make a good cup of tea, you",
    "SELECT name FROM users WHERE", "The quick brown fox", "In 1969, the first human", "La capitale de l'Italie est",
    "import numpy as np\n", "Dear Sir or Madam,\n\nI am writing to", "Q: What is 17 + 25?\nA:", "Roses are red,",
    "The history of the Roman Empire begins", "A binary search tree is", "My favourite book is",
    "The stock market today", "<html>\n<head>\n",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the comparison and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--decode-tokens", type=int, default=DECODE)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args(arguments)
    bench = Bench(options.decode_tokens, time.process_time if options.cpu_time else time.perf_counter)
    path = options.model or find_default_model(lambda text: print(text, file=sys.stderr))
    engine = LLMEngine(path, threads=options.threads, max_num_seqs=4, num_pages=256)
    reference = load_reference(path, engine)
    result = {
        "model": engine.config.name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "pairs": options.pairs,
        "level": "in process",
        "clock": "process cpu" if options.cpu_time else "wall",
        **measure(engine, reference, options.pairs, bench),
        "greedy": compare_texts(engine, reference, PROMPTS[: options.prompts]),
    }
    report(result)
    print(json.dumps(result))
    fast = min(result["decode"]["ratio"], result["prefill"]["ratio"]) >= NEEDED
    return 0 if fast and not result["greedy"]["different"] else 1


def load_reference(path: Path, engine: LLMEngine) -> Any:
    """Return transformers' LlamaForCausalLM in float32 with the tensors of the GGUF file, read by our own reader."""
    from transformers import LlamaConfig, LlamaForCausalLM

    c = engine.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.ffn, num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads, num_key_value_heads=c.num_kv_heads, head_dim=c.head_dim,
            max_position_embeddings=c.context_length, rms_norm_eps=c.eps, attn_implementation="sdpa",
            rope_parameters={"rope_type": "default", "rope_theta": c.rope.base}, tie_word_embeddings=True,
            dtype="float32",
        )
    )  # fmt: skip
    file = read_gguf(path)
    heads = {"attn_q": c.num_heads, "attn_k": c.num_kv_heads}
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    ends = {"token_embd": "embed_tokens", "output_norm": "norm"}
    state = {f"model.{theirs}.weight": dequantize(file.tensors[f"{ours}.weight"]) for ours, theirs in ends.items()}
    for layer in range(c.num_layers):
        for ours, theirs in names.items():
            weight = file.tensors[f"blk.{layer}.{ours}.weight"]
            weight = unpermute(weight, heads[ours]) if ours in heads else weight
            state[f"model.layers.{layer}.{theirs}.weight"] = dequantize(weight)
    state["lm_head.weight"] = dequantize(file.tensors.get("output.weight", file.tensors["token_embd.weight"]))
    model.load_state_dict(state, strict=True)
    return model.eval()


@dataclass(frozen=True, slots=True)
class Bench:
    """How speed is taken: tokens per decode run, and the clock."""

    decode_tokens: int
    clock: Callable[[], float]


def measure(engine: LLMEngine, reference: Any, pairs: int, bench: Bench) -> dict[str, Any]:
    """Return decode and prefill speeds of both, with the ratio ours ÷ theirs as the median over the ABBA pairs."""
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(100, engine.config.vocab, (PREFILL,), generator=generator).tolist()
    sides: dict[str, tuple[Callable[[], float], Callable[[], float], int]] = {
        "decode": (
            lambda: our_decode(engine, prompt, bench),
            lambda: their_decode(reference, prompt, bench),
            bench.decode_tokens - 1,
        ),
        "prefill": (
            lambda: our_prefill(engine, prompt, bench),
            lambda: their_prefill(reference, prompt, bench),
            PREFILL,
        ),
    }
    result = {}
    for name, (ours, theirs, tokens) in sides.items():
        ours(), theirs()  # first calls bind weights and fill caches
        times: list[tuple[float, float]] = []
        for pair in range(pairs):
            if pair % 2:
                second = theirs()
                times.append((ours(), second))
            else:
                times.append((ours(), theirs()))
            print(f"{name} {pair + 1}/{pairs}: {times[-1][0]:.2f} s, {times[-1][1]:.2f} s", file=sys.stderr)
        logs = [math.log(b / a) for a, b in times]
        result[name] = {
            "engine_tok_s": round(tokens / statistics.median(a for a, _ in times), 2),
            "transformers_tok_s": round(tokens / statistics.median(b for _, b in times), 2),
            "ratio": round(math.exp(statistics.median(logs)), 4),
            "ratios": [round(math.exp(x), 3) for x in sorted(logs)],
            "n": pairs,
        }
    return result


def our_decode(engine: LLMEngine, prompt: list[int], bench: Bench) -> float:
    """Return the seconds from the first token to the last of the decode tokens."""
    engine.add_request("decode", prompt[:PROMPT], SamplingParams(max_tokens=bench.decode_tokens, ignore_eos=True))
    engine.step()
    start = bench.clock()
    while engine.has_work():
        engine.step()
    return bench.clock() - start


@torch.inference_mode()
def their_decode(model: Any, prompt: list[int], bench: Bench) -> float:
    """The same with transformers: its own cache, one token a step, greedy."""
    out = model(torch.tensor([prompt[:PROMPT]]), use_cache=True, logits_to_keep=1)
    token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
    start = bench.clock()
    for _ in range(bench.decode_tokens - 1):
        out = model(token, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
        token.item()  # a server must look at each token before it goes on
    return bench.clock() - start


def our_prefill(engine: LLMEngine, prompt: list[int], bench: Bench) -> float:
    """Return the seconds to the first token of a PREFILL-token prompt."""
    engine.add_request("prefill", prompt, SamplingParams(max_tokens=1))
    start = bench.clock()
    engine.step()
    return bench.clock() - start


@torch.inference_mode()
def their_prefill(model: Any, prompt: list[int], bench: Bench) -> float:
    """The same with transformers, logits of the last token only."""
    start = bench.clock()
    model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1).logits.argmax(dim=-1).item()
    return bench.clock() - start


def compare_texts(engine: LLMEngine, reference: Any, prompts: tuple[str, ...]) -> dict[str, Any]:
    """Return how many greedy continuations are equal, tied or different.

    The reference reads prompt and continuation in one pass: the texts are equal exactly when each of the engine's
    tokens is the reference's best one after those before it.
    """
    counts: dict[str, Any] = {"prompts": len(prompts), "tokens": GREEDY_TOKENS, "equal": 0, "ties": 0, "different": 0}
    encoded = [engine.tokenizer.encode(prompt) for prompt in prompts]
    for prompt, ids, ours in zip(prompts, encoded, greedy(engine, encoded), strict=True):
        best, margins = choices(reference, ids, ours)
        at = next((i for i, (a, b) in enumerate(zip(ours, best, strict=True)) if a != b), None)
        if at is None:
            counts["equal"] += 1
        elif margins[at] < TIE_MARGIN:
            counts["ties"] += 1
        else:
            counts["different"] += 1
            print(f"differs at token {at}, margin {margins[at]:.2e}: {prompt!r}", file=sys.stderr)
    return counts


def greedy(engine: LLMEngine, prompts: list[list[int]]) -> list[list[int]]:
    """Return the engine's greedy continuations; it batches them as it likes."""
    for index, ids in enumerate(prompts):
        engine.add_request(str(index), ids, SamplingParams(max_tokens=GREEDY_TOKENS, ignore_eos=True))
    tokens: list[list[int]] = [[] for _ in prompts]
    while engine.has_work():
        for output in engine.step():
            if output.token_id is not None:
                tokens[int(output.request_id)].append(output.token_id)
    return tokens


@torch.inference_mode()
def choices(model: Any, ids: list[int], continuation: list[int]) -> tuple[list[int], list[float]]:
    """Return transformers' best token at each place of `continuation`, and the margin between its two best logits."""
    logits = model(torch.tensor([ids + continuation[:-1]]), logits_to_keep=len(continuation)).logits[0]
    values, indices = logits.topk(2, dim=-1)
    return indices[:, 0].tolist(), (values[:, 0] - values[:, 1]).tolist()


def report(result: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{result['model']}, {result['threads']} threads, torch {result['torch']}, in process, float32")
    print(f"{'':8} {'engine tok/s':>13} {'transformers':>13} {'ratio':>7}  n")
    for name in ("decode", "prefill"):
        row = result[name]
        ours, theirs = row["engine_tok_s"], row["transformers_tok_s"]
        print(f"{name:8} {ours:13.2f} {theirs:13.2f} {row['ratio']:7.3f}  {row['n']}")
    g = result["greedy"]
    print(
        f"greedy text, {g['prompts']} x {g['tokens']}: {g['equal']} equal, {g['ties']} ties, {g['different']} different"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
