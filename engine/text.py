"""ModelText: the tokenizer as the front end uses it, built from the metadata that the engine sends, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.engine.tokenizer import CONTROL, USER_DEFINED, Tokenizer, build_tokenizer
from kernelwright.engine.tools import CallForm


def tokenizer_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a GGUF file's metadata that describes its tokenizer; plain lists, strings and numbers."""
    return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}


def load_text(metadata: Mapping[str, Any]) -> ModelText:
    """Return the text side of a model. Raises BrokenInput as `build_tokenizer` does."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    return ModelText(build_tokenizer(metadata), tokens, kinds)


class ModelText:
    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._kinds = kinds
        self._bytes = {character: byte for byte, character in enumerate(_byte_characters())}

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        return self._tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, control tokens left out."""
        return self._tokenizer.decode(token_ids)

    @property
    def call_form(self) -> CallForm | None:
        """How the chat template has calls written; None when it knows no tools."""
        template = self._tokenizer.template or ""
        if not re.search(r"\btools\b", template):
            return None
        return "llama3" if "<tool_call>" not in template and '"parameters"' in template else "hermes"

    def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Return the prompt's ids for chat `messages`. Raises WrongUse when the template refuses them."""
        return self._tokenizer.encode_chat(messages, tools)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes one token stands for; a control token stands for its own name."""
        if token_id >= len(self._tokens):
            return b""
        token = self._tokens[token_id]
        if self._kinds[token_id] in (CONTROL, USER_DEFINED):
            return token.encode()
        return b"".join(bytes([self._bytes[c]]) if c in self._bytes else c.encode() for c in token)


def _byte_characters() -> list[str]:
    """Return byte-level BPE's printable stand-in for each byte 0–255 (GPT-2's table).

    Bytes that Latin-1 prints stand for themselves; the others, in order, get the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
