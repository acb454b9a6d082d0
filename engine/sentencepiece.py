"""SentencePiece's BPE as GGUF files hold it: pieces with scores and no merges (`tokenizer.ggml.model` = `llama`).

Format: llama.cpp's converter; Kudo and Richardson 2018. A text's spaces are written U+2581, and of all neighbours whose
joined text is a piece those with the highest score are joined first: which is BPE over every way of cutting a piece in
two, in the order of the scores. What no piece spells is spelled in bytes, `<0x0A>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from kernelwright.profiles.errors import BrokenInput

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`."""


def build_sentencepiece(metadata: Mapping[str, Any], tokens: list[str]) -> Backend:
    """Return the tokenizer over `tokens`, without those that are matched before it. Raises BrokenInput."""
    scores, kinds = metadata.get("tokenizer.ggml.scores"), metadata["tokenizer.ggml.token_type"]
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise BrokenInput("the file's vocabulary has no score for each piece", "Fetch the model file again")
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == UNKNOWN), None)
    merges = _merges(tokens, scores, kinds, vocab)
    try:
        model = models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    except Exception as error:  # the library raises bare Exception
        raise BrokenInput(f"the file's vocabulary cannot be used: {error}", "Fetch the model file again") from error
    backend = Backend(model)
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    replace = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if prefix else replace
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)] if prefix else steps)
    return backend


def _merges(tokens: list[str], scores: list[float], kinds: list[int], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return every pair of pieces that makes a piece, the highest score first, and of one piece the earliest parts."""
    found = []
    for piece, score, kind in zip(tokens, scores, kinds, strict=True):
        if kind not in (NORMAL, UNUSED) or len(piece) < 2:
            continue
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(-score, pair) for pair in pairs]
    found.sort(key=lambda scored: scored[0])
    return [pair for _, pair in found]
