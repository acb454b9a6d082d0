"""Tokenizer: text ↔ token ids and the chat template, built from a GGUF file's metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from kernelwright.profiles.errors import BrokenInput, WrongUse

CONTROL, USER_DEFINED = 3, 4
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _split_smollm() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _split_gpt2()])


def _split_llama3() -> Any:
    split = pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS = {"gpt-2": _split_gpt2, "smollm": _split_smollm, "llama-bpe": _split_llama3}
"""`tokenizer.ggml.pre` → how text is cut before the merges. A wrong cut gives wrong ids without any error, so a value
that is not here is refused."""


class Tokenizer:
    """Byte-level BPE. `eos_ids` end a generation; `bos_id` is None where the file asks for no leading token."""

    def __init__(self, backend: Backend, eos_ids: tuple[int, ...], bos_id: int | None, template: str | None) -> None:
        self._backend = backend
        self.eos_ids = eos_ids
        self.bos_id = bos_id
        self._template = template
        self._special: dict[str, str] = {}

    @property
    def vocab_size(self) -> int:
        return self._backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; control tokens written out in it (`<|im_start|>`) become their ids."""
        ids = self._backend.encode(text, add_special_tokens=False).ids
        return ids if self.bos_id is None or ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that do not form UTF-8 become U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special)

    def token(self, token_id: int) -> str:
        """Return one token's text by itself, control tokens included."""
        return self._backend.decode([token_id], skip_special_tokens=False)

    def stream(self) -> TokenStream:
        """Return a decoder that takes ids one by one and gives text as soon as it is whole UTF-8."""
        return TokenStream(self._backend)

    @property
    def template(self) -> str | None:
        """The chat template, in jinja's language."""
        return self._template

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Return the prompt text for chat `messages` ({"role", "content"}), ready for the assistant's answer.

        `tools` are handed to the template as they are; one that does not know them leaves them out.

        Raises WrongUse when the model has no chat template or the template refuses the messages.
        """
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if self._template is None:
            raise WrongUse("this model has no chat template", "Use /v1/completions with a plain prompt")

        def raise_exception(text: str) -> None:
            raise jinja2.TemplateError(text)

        # the template comes with the weights: it may be anybody's, so it runs in jinja's sandbox
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = raise_exception
        try:
            template = environment.from_string(self._template)
            offered = {"tools": list(tools)} if tools else {}
            return template.render(messages=list(messages), add_generation_prompt=True, **offered, **self._special)
        except (jinja2.TemplateError, TypeError) as error:
            remedy = "Give messages with a role and a text content"
            raise WrongUse(f"the chat template refuses these messages: {error}", remedy) from error

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Return the prompt ids for chat `messages`; raises as `render_chat`."""
        return self.encode(self.render_chat(messages, tools))


class TokenStream:
    """Incremental decoding of one generation."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._decoder = decoders.DecodeStream(skip_special_tokens=True)

    def add(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is still cut in half."""
        return self._decoder.step(self._backend, token_id) or ""


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes.

    Raises BrokenInput when the file lacks one or uses a tokenizer model or pre-tokenizer we do not know.
    """
    pre = metadata.get("tokenizer.ggml.pre")
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        model = metadata.get("tokenizer.ggml.model")
        raise BrokenInput(f"unknown tokenizer model {model!r}", "This engine reads byte-level BPE (gpt2)")
    if pre not in PRE_TOKENIZERS:
        raise BrokenInput(f"unknown pre-tokenizer {pre!r}", f"This engine knows: {', '.join(PRE_TOKENIZERS)}")
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(kinds, list) or len(tokens) != len(kinds):
        raise BrokenInput("the file's vocabulary is missing or incomplete", "Fetch the model file again")
    backend = _build_backend(pre, tokens, metadata.get("tokenizer.ggml.merges"))
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            AddedToken(t, special=special, normalized=False) for t, k in zip(tokens, kinds, strict=True) if k == kind
        ]
        if added:
            backend.add_special_tokens(added) if special else backend.add_tokens(added)
    eos = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    bos = metadata.get("tokenizer.ggml.bos_token_id") if metadata.get("tokenizer.ggml.add_bos_token") else None
    eos_ids = tuple(dict.fromkeys(int(i) for i in eos if i is not None))
    tokenizer = Tokenizer(backend, eos_ids, bos, metadata.get("tokenizer.chat_template"))
    for name in ("bos", "eos"):
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if index is not None and 0 <= index < len(tokens):
            tokenizer._special[f"{name}_token"] = tokens[index]
    return tokenizer


def _build_backend(pre: str, tokens: list[str], merges: Any) -> Backend:
    vocab = {token: index for index, token in enumerate(tokens)}
    try:
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
        # Llama 3 takes a piece that is a token as it is, merges or not; the others always merge
        model = models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the library raises bare Exception on merges that name unknown tokens
        raise BrokenInput(f"the file's merges do not fit its vocabulary: {error}", "Fetch the model again") from error
    backend = Backend(model)
    backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
    backend.decoder = decoders.ByteLevel()
    return backend
