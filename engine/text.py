"""ModelText: the tokenizer as the front end uses it, built from what the engine sends, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.engine.tokenizer import Tokenizer, build_tokenizer
from kernelwright.engine.tools import CallForm


def load_text(described: Mapping[str, Any]) -> ModelText:
    """Return the text side of a model. Raises BrokenInput as `build_tokenizer` does."""
    return ModelText(build_tokenizer(described))


class ModelText:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

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
        return self._tokenizer.token_bytes(token_id)
