"""The embedded engine with the face that the loop serves: wire values in, wire values out."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from kernelwright.engine import wire
from kernelwright.engine.checkpoint import model_digest, read_tokenizer
from kernelwright.engine.config import PAGE_SIZE
from kernelwright.engine.constraint import Constraint, GrammarCompiler
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.memory import measure_memory
from kernelwright.engine.score import ForcedSequence
from kernelwright.engine.sequence import SamplingParams, StepOutput
from kernelwright.engine.text import load_text
from kernelwright.kernels.isa import cpu_name, detect_isa
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import WrongUse

_LEAST_PAGES = 1024


def load_served_engine(
    model: Path,
    *,
    served_name: str | None = None,
    packs: Sequence[Path] = (),
    disable: Sequence[str] = (),
    threads: int | None = None,
    max_num_seqs: int = 16,
    max_model_len: int | None = None,
    compile_incumbents: bool = False,
    prefix_cache: bool = True,
    num_pages: int | None = None,
    shadow: float = 0.0,
) -> tuple[EmbeddedEngine, wire.Ready]:
    """Load a model and its packs, check every kernel; return the engine and what its front end is told.

    Raises BrokenInput, EnvironmentLacks or WrongUse as LLMEngine and `load_pack` do, and WrongUse when `max_model_len`
    is more than the model was made for.
    """
    engine = LLMEngine(
        model,
        packs=[kernel for pack in packs for kernel in _load_pack(pack)],
        threads=threads,
        max_num_seqs=max_num_seqs,
        num_pages=num_pages or max(_LEAST_PAGES, -(-(max_model_len or 0) // PAGE_SIZE)),
        disable=disable,
        compile_incumbents=compile_incumbents,
        prefix_cache=prefix_cache,
        shadow=shadow,
    )
    engine.watch.say = _say
    if max_model_len is not None and max_model_len > engine.max_model_len:
        most = f"this model with {engine.blocks.num_pages} pages holds at most {engine.max_model_len}"
        raise WrongUse(f"a context of {max_model_len} tokens was asked for, {most}", "Give a smaller --max-model-len")
    for failed in engine.check_kernels():
        _say(f"{failed.definition}: kernel switched off, {failed.reason}")
    ready = wire.Ready(
        served_name=served_name or slug(engine.config.name),
        max_model_len=max_model_len or engine.max_model_len,
        vocab_size=engine.config.vocab,
        num_layers=engine.config.num_layers,
        hidden_size=engine.config.hidden,
        tokenizer=read_tokenizer(model),
    )
    served = EmbeddedEngine(engine, ready)
    return served, msgspec.structs.replace(ready, fingerprint="fp_" + served.facts()["configuration"][:12])


def slug(name: str) -> str:
    """Return `name` as it goes into a URL or a command: lower case, everything but letters, digits and dots a dash."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "model"


Row = tuple[int, int, Any]
_COMPILING_S = 0.02
"""Seconds an engine with nothing else to do waits for a grammar before it looks for messages again."""
BURST_S, BURST_ROWS = 2.0, 128


class EmbeddedEngine:
    """Gives LLMEngine the face of `loop.ServedEngine`."""

    def __init__(self, engine: LLMEngine, ready: wire.Ready) -> None:
        self.engine = engine
        text = load_text(ready.tokenizer)
        self._compiler = GrammarCompiler(text, ready.vocab_size, engine.tokenizer.eos_ids)
        self._compiling: dict[str, tuple[Future[Constraint], list[int], SamplingParams]] = {}
        self._refused: list[wire.Ended] = []
        self._fixed = {
            "model": ready.served_name,
            "model_digest": model_digest(engine.model_path),
            "max_model_len": ready.max_model_len,
            "vocab_size": ready.vocab_size,
            "isa": detect_isa(),
            "cpu": cpu_name(),
        }

    def submit(self, request: str, token_ids: list[int], sampling: wire.Sampling) -> None:
        params = SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            logit_bias=sampling.logit_bias,
            seed=sampling.seed,
            stop_token_ids=sampling.stop_token_ids,
            ignore_eos=sampling.ignore_eos,
            logprobs=sampling.logprobs,
        )
        if sampling.grammar is None:
            self.engine.add_request(request, token_ids, params)
        else:
            self._compiling[request] = (self._compiler.compile(sampling.grammar), token_ids, params)

    def step(self) -> list[wire.Token]:
        """Run one step. Requests whose grammar is being compiled wait; the others do not wait for them."""
        if self._compiling:
            self._admit_compiled()
        return [_token(output) for output in self.engine.step()]

    def _admit_compiled(self) -> None:
        if not self.engine.has_work():
            wait([future for future, _, _ in self._compiling.values()], _COMPILING_S, FIRST_COMPLETED)
        for request, (future, token_ids, params) in list(self._compiling.items()):
            if not future.done():
                continue
            del self._compiling[request]
            try:
                self.engine.add_request(request, token_ids, params, future.result())
            except WrongUse as error:
                self._refused.append(wire.Ended(request, str(error), status=400))

    def refused(self) -> list[wire.Ended]:
        """Return, once, the requests that turned out after `submit` to be none that can be served."""
        refused, self._refused = self._refused, []
        return refused

    def abort(self, request: str) -> None:
        if self._compiling.pop(request, None) is None:
            self.engine.abort(request)

    def score(
        self,
        sequences: list[wire.ForcedSequence],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"] = "logits",
        chunk: int | None = None,
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield (sequence, position, little-endian float32 values). Raises WrongUse at once if it cannot be scored."""
        forced = [ForcedSequence(tuple(s.prompt), tuple(s.forced)) for s in sequences]
        return _as_bytes(self.engine.score(forced, phase, what, chunk))

    def kernels(self) -> list[dict[str, Any]]:
        return [state.model_dump(mode="json") for state in self.engine.kernels()]

    def facts(self) -> dict[str, Any]:
        """Return what the numbers depend on: threads, wait policy, ISA, digests, memory (bytes)."""
        stats = self.engine.stats()
        stats["torch"] = str(stats["torch"])  # a subclass of str, which the wire does not know
        return stats | self._fixed | {"configuration": self._configuration(), **self._memory()}

    def _memory(self) -> dict[str, Any]:
        memory = measure_memory(self.engine.dispatch, self.engine.model_path)
        return {"resident_bytes": memory.resident_bytes, "memory": memory.model_dump()}

    def token_text(self, token: int) -> str:
        return self.engine.tokenizer.decode([token], skip_special=False)

    def cache(self) -> wire.Cache:
        """Return what became of the pages so far."""
        blocks = self.engine.blocks
        used = 1.0 - blocks.num_free / blocks.num_pages
        return wire.Cache(blocks.num_queried, blocks.num_found, used, self.engine.num_preemptions)

    def retry(self, request: str, keep: int) -> list[int] | None:
        return self.engine.retry(request, keep)

    def switch(self, definition: str, enabled: bool) -> dict[str, int]:
        """Switch a definition's kernels; return what that cost. Raises WrongUse as LLMEngine.switch does."""
        return asdict(self.engine.switch(definition, enabled))

    def tripped(self) -> list[str]:
        """Return the definitions whose kernels are off because of what they did in service."""
        kernels = self.engine.dispatch.kernels
        return [name for name, loaded in kernels.items() if any(kernel.trip for kernel in loaded)]

    def reset_prefix_cache(self) -> int:
        return self.engine.reset_prefix_cache()

    def start_profile(self, path: Path) -> None:
        self.engine.start_profile(path)

    def stop_profile(self) -> Path:
        return self.engine.stop_profile()

    def _configuration(self) -> str:
        """Return a digest of all that was chosen: engine configuration, model, kernels and those switched off."""
        kernels = [(s.definition, s.candidate, s.binary, s.state) for s in self.engine.kernels()]
        threads = self.engine.stats()["threads"]
        parts = (digest_of(self.engine.engine_config), self._fixed, threads, kernels)
        return digest_bytes(repr(parts).encode())


def _token(output: StepOutput) -> wire.Token:
    logprob, top = (output.logprob.logprob, list(output.logprob.top)) if output.logprob else (None, [])
    return wire.Token(output.request_id, output.token_id, output.finish_reason, logprob, top, output.num_cached)


def _as_bytes(rows: Iterator[tuple[int, int, Any]]) -> Iterator[tuple[int, int, bytes]]:
    for sequence, position, logits in in_bursts(rows):
        yield sequence, position, logits.numpy().astype("<f4", copy=False).tobytes()


def in_bursts(rows: Iterator[Row], seconds: float = BURST_S, most: int = BURST_ROWS) -> Iterator[Row]:
    """Yield `rows` after up to `seconds` of computing, then all that came: work and sending take turns.

    Whoever takes a row needs a core for it; taken during the next step, it would hold up every thread of that step.
    """
    held: list[Row] = []
    since = time.monotonic()
    for row in rows:
        held.append(row)
        if len(held) == most or time.monotonic() - since > seconds:
            yield from held
            held, since = [], time.monotonic()
    yield from held


def _say(text: str) -> None:
    print(f"kernelwright: {text}", file=sys.stderr, flush=True)


def _load_pack(path: Path) -> list[Any]:
    from kernelwright.engine.pack_load import load_pack

    return list(load_pack(path))
