"""Tokenizer: text ↔ token ids and the chat template, built from what a checkpoint says of it, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from kernelwright.engine.sentencepiece import CONTROL, SPACE, USER_DEFINED, build_sentencepiece
from kernelwright.profiles.errors import BrokenInput, WrongUse

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


def _split_qwen2() -> Any:
    split = pre_tokenizers.Split(Regex(LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS = {
    "gpt-2": _split_gpt2, "smollm": _split_smollm, "llama-bpe": _split_llama3, "qwen2": _split_qwen2,
}  # fmt: skip
"""`tokenizer.ggml.pre` → how text is cut before the merges. A wrong cut gives wrong ids without any error, so a value
that is not here is refused."""


class Tokenizer:
    """BPE, byte-level or with SentencePiece's spelling. `eos_ids` end a generation; `bos_id` leads a text, or is None.

    `special` are the names a chat template may use, `bos_token` and so on. With `bos_in_chat` the leading token is put
    before a chat, too, where its template did not write it; else what the template writes is all there is.
    """

    def __init__(
        self,
        backend: Backend,
        eos_ids: tuple[int, ...],
        bos_id: int | None,
        template: str | None,
        special: Mapping[str, str] | None = None,
        bos_in_chat: bool = True,
    ) -> None:
        self._backend = backend
        self.eos_ids = eos_ids
        self.bos_id = bos_id
        self._template = template
        self._special = dict(special or {})
        self._bos_in_chat = bos_in_chat

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

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes one token stands for; a control token stands for its own name, an unknown id for none."""
        spelled = self._backend.id_to_token(token_id)
        if spelled is None:
            return b""
        if token_id in self._added:
            return spelled.encode()
        if self._letters:
            return b"".join(bytes([self._letters[c]]) if c in self._letters else c.encode() for c in spelled)
        if len(spelled) == 6 and spelled.startswith("<0x") and spelled.endswith(">"):
            return bytes.fromhex(spelled[3:5])
        return spelled.replace(SPACE, " ").encode()

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _letters(self) -> dict[str, int]:
        """Return what each letter of a byte-level vocabulary stands for; empty where tokens are spelled otherwise."""
        decoder = json.loads(self._backend.to_str()).get("decoder") or {}
        parts = [decoder, *decoder.get("decoders", ())]
        return byte_letters() if any(part.get("type") == "ByteLevel" for part in parts) else {}

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
        loops = "jinja2.ext.loopcontrols"
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loops])
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        environment.filters["tojson"] = _to_json
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
        text = self.render_chat(messages, tools)
        return self.encode(text) if self._bos_in_chat else self._backend.encode(text, add_special_tokens=False).ids


class TokenStream:
    """Incremental decoding of one generation."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._decoder = decoders.DecodeStream(skip_special_tokens=True)

    def add(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is still cut in half."""
        return self._decoder.step(self._backend, token_id) or ""


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of what `read_tokenizer` gave: a GGUF file's keys, or a tokenizer.json's text.

    Raises BrokenInput when it lacks one or uses a tokenizer model or pre-tokenizer we do not know.
    """
    if "tokenizer.huggingface.json" in metadata:
        return _build_hugging_face(metadata)
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model not in ("gpt2", "llama"):
        remedy = "This engine reads byte-level BPE (gpt2) and SentencePiece's BPE (llama)"
        raise BrokenInput(f"unknown tokenizer model {model!r}", remedy)
    if model == "gpt2" and pre not in PRE_TOKENIZERS:
        raise BrokenInput(f"unknown pre-tokenizer {pre!r}", f"This engine knows: {', '.join(PRE_TOKENIZERS)}")
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(kinds, list) or len(tokens) != len(kinds):
        raise BrokenInput("the file's vocabulary is missing or incomplete", "Fetch the model file again")
    if model == "llama":
        backend = build_sentencepiece(metadata, tokens)
    else:
        backend = _build_backend(str(pre), tokens, metadata.get("tokenizer.ggml.merges"))
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            AddedToken(t, special=special, normalized=False) for t, k in zip(tokens, kinds, strict=True) if k == kind
        ]
        if added:
            backend.add_special_tokens(added) if special else backend.add_tokens(added)
    eos = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    # llama.cpp's own answer where the file does not say
    add_bos = metadata.get("tokenizer.ggml.add_bos_token", model == "llama" or pre == "llama-bpe")
    bos = metadata.get("tokenizer.ggml.bos_token_id") if add_bos else None
    eos_ids = tuple(dict.fromkeys(int(i) for i in eos if i is not None))
    named = {f"{name}_token": metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    names = {name: tokens[i] for name, i in named.items() if i is not None and 0 <= i < len(tokens)}
    return Tokenizer(backend, eos_ids, bos, metadata.get("tokenizer.chat_template"), names)


def _build_hugging_face(metadata: Mapping[str, Any]) -> Tokenizer:
    try:
        backend = Backend.from_str(metadata["tokenizer.huggingface.json"])
    except Exception as error:  # the library raises bare Exception
        raise BrokenInput(f"tokenizer.json cannot be read: {error}", "Fetch the model again") from error
    backend.no_truncation()
    backend.no_padding()
    special = metadata.get("tokenizer.huggingface.special", {})
    eos_ids = tuple(metadata.get("tokenizer.huggingface.eos_ids", ()))
    if not eos_ids and "eos_token" in special:
        eos_ids = tuple(i for i in [backend.token_to_id(special["eos_token"])] if i is not None)
    bos = _leading_token(backend)
    return Tokenizer(backend, eos_ids, bos, metadata.get("tokenizer.chat_template"), special, bos_in_chat=False)


def _leading_token(backend: Backend) -> int | None:
    """Return the id that the tokenizer puts before a text. Raises BrokenInput where it adds more than that."""
    plain = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    added = len(whole) - len(plain)
    if added not in (0, 1) or whole[added:] != plain:
        remedy = "This engine knows tokenizers that put one token before a text, or none; use another model"
        raise BrokenInput("the tokenizer adds tokens around a text", remedy)
    return whole[0] if added else None


def _build_backend(pre: str, tokens: list[str], merges: Any) -> Backend:
    vocab = {token: index for index, token in enumerate(tokens)}
    try:
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
        # Llama 3 takes a piece that is a token as it is, merges or not; the others always merge
        model = models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the library raises bare Exception on merges that name unknown tokens
        raise BrokenInput(f"the file's merges do not fit its vocabulary: {error}", "Fetch the model again") from error
    backend = Backend(model)
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_letters() -> dict[str, int]:
    """Return byte-level BPE's printable stand-ins and the byte 0–255 each stands for (GPT-2's table).

    Bytes that Latin-1 prints stand for themselves; the others, in order, get the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte) if byte in printable else chr(next(others)): byte for byte in range(256)}


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return `value` as JSON, with the options that `transformers` gives its templates; jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
