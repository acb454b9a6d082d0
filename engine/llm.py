"""LLMEngine: the embedded engine in process. Requests go in, tokens come out one step at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.engine.blocks import BlockManager, pages_for
from kernelwright.engine.checkpoint import open_checkpoint
from kernelwright.engine.checks import check_kernel
from kernelwright.engine.config import PAGE_SIZE, ModelConfig, engine_config
from kernelwright.engine.decoder import DecoderWeights
from kernelwright.engine.dispatch import Dispatch, KernelState, LoadedKernel, Wrap
from kernelwright.engine.profiling import StepProfiler
from kernelwright.engine.runner import ModelRunner, What, make_caches
from kernelwright.engine.sampler import Sampled, sample, seeded_generator
from kernelwright.engine.scheduler import Batch, Scheduler
from kernelwright.engine.score import ForcedSequence, Row, score_decode, score_prefill
from kernelwright.engine.sequence import FinishReason, SamplingParams, StepOutput
from kernelwright.engine.sequence import Sequence as Request
from kernelwright.engine.shadow import Shadow
from kernelwright.engine.tokenizer import Tokenizer, build_tokenizer
from kernelwright.engine.watch import Changed, Watch
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.profile import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelwright.engine.constraint import Constraint

_OTHER_SEED = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: seeds that are near one another stay apart."""


class LLMEngine:
    """Engine over one GGUF file or Hugging Face folder; not thread-safe: one thread calls everything.

    `packs` are the kernels to serve with, `disable` names definitions to leave to the incumbent, `shadow` is the share
    of their calls that is checked while they serve (shadow.py). Raises BrokenInput when the model cannot be used and
    WrongUse on a bad configuration or a `disable` that names nothing.
    """

    def __init__(
        self,
        model_path: Path,
        packs: Iterable[LoadedKernel] = (),
        threads: int | None = None,
        max_num_seqs: int = 16,
        num_pages: int = 1024,
        token_budget: int = 2048,
        disable: Iterable[str] = (),
        compile_incumbents: bool = False,
        prefix_cache: bool = True,
        shadow: float = 0.0,
    ) -> None:
        self.engine_config = engine_config(
            max_num_seqs=max_num_seqs, num_pages=num_pages, token_budget=token_budget, threads=threads,
            prefix_cache=prefix_cache,
        )  # fmt: skip
        if threads is not None:
            torch.set_num_threads(threads)
        self.model_path = Path(model_path)
        checkpoint = open_checkpoint(self.model_path)
        self.config: ModelConfig = checkpoint.config
        self.tokenizer: Tokenizer = build_tokenizer(checkpoint.tokenizer)
        self.max_model_len = min(self.config.context_length, num_pages * PAGE_SIZE)
        weights = DecoderWeights(checkpoint, self.max_model_len)
        self.dispatch = Dispatch(weights, make_caches(self.config, num_pages), compile_incumbents=compile_incumbents)
        self.blocks = BlockManager(num_pages, prefix_cache)
        self._scheduler = Scheduler(self.blocks, max_num_seqs, token_budget)
        self.shadow = Shadow(self.dispatch, shadow)
        self._runner = ModelRunner(weights, self.dispatch, self.shadow)
        self.watch = Watch(self.dispatch, self._runner, self._scheduler, self.blocks, self.shadow)
        self._profiler = StepProfiler()
        self._requests: dict[str, Request] = {}
        self._steps: dict[Phase, int] = {"prefill": 0, "decode": 0}
        self._generated = 0
        self._step_seconds = 0.0
        for loaded in packs:
            self.dispatch.add(loaded)
        self.disable(disable)

    def disable(self, definitions: Iterable[str]) -> None:
        """Leave `definitions` to the incumbent, and only those. Raises WrongUse on a name this model does not have."""
        names = set(definitions)
        known = {state.definition for state in self.dispatch.states()}
        if names - known:
            raise WrongUse(
                f"no such definition: {', '.join(sorted(names - known))}", f"Known: {', '.join(sorted(known))}"
            )
        self.dispatch.disabled = names
        self.watch.change_kernels()

    def switch(self, definition: str, enabled: bool) -> Changed:
        """Switch the kernels of `definition` on or off from the next step on; one that had tripped is on again.

        Running requests are computed again and the prefix cache is forgotten, as after a trip. Raises WrongUse when no
        pack has a kernel for `definition`, or none that could be switched on.
        """
        kernels = self.dispatch.kernels.get(definition, [])
        if not kernels:
            raise WrongUse(f"no pack has a kernel for {definition!r}", "See /v1/kernels")
        if enabled and all(kernel.failure for kernel in kernels):
            raise WrongUse(f"{definition}: {kernels[0].failure}", "Mend the pack and start the server again")
        if enabled == (definition not in self.dispatch.disabled) and not any(kernel.trip for kernel in kernels):
            return Changed(0, 0)
        if enabled:
            self.dispatch.disabled.discard(definition)
            for kernel in kernels:
                kernel.trip = None
        else:
            self.dispatch.disabled.add(definition)
        return self.watch.change_kernels()

    def retry(self, request_id: str, keep: int) -> list[int] | None:
        """Have a request go on after its first `keep` generated tokens with the incumbents alone; return those tokens.

        Its pages are given back and all of it is computed again: they hold what the pack's kernels made of it. Neither
        finds it what they left in the prefix cache, nor they what it leaves. Its steps are its own (with others of its
        kind): which kernel runs is decided for a step, not for a row of it. A request with a seed draws by another one
        derived from it. None, changing nothing, when the request has ended, was retried before, or no kernel is live.
        """
        request = self._requests.get(request_id)
        if request is None or request.plain or not self.dispatch.live_kernels():
            return None
        self._scheduler.restart(request)
        request.cut(keep)
        request.plain = True
        seed = request.params.seed
        request.generator = None if seed is None else seeded_generator((seed ^ _OTHER_SEED) % 2**63)
        return request.token_ids[request.num_prompt :]

    def reset_prefix_cache(self) -> int:
        """Forget what is computed of prompts seen so far; return how many pages that were."""
        return self.blocks.forget()

    def check_kernels(self) -> list[KernelState]:
        """Check every pack kernel against its reference at the ends of its ranges; one that fails is switched off.

        Returns the states of those that failed, with the reason. The engine is healthy once this has returned: what the
        first requests need has been dequantised, too.
        """
        most = {"decode": self.engine_config.max_num_seqs, "prefill": self.engine_config.token_budget}
        for name, kernels in self.dispatch.kernels.items():
            for kernel in kernels:
                if not kernel.failure:
                    contract = self.dispatch.contract(name)
                    kernel.failure = check_kernel(kernel, self.dispatch.definition(name), contract, most)
        self.dispatch.forget_plans()
        for tokens in {2, most["prefill"]}:  # short prompts may be a kernel's, long ones seldom are
            self.dispatch.plan("prefill", tokens, 1, 1, pages_for(tokens))
        self.dispatch.plan("decode", 1, 1, 1, 1)
        return [state for state in self.dispatch.states() if state.state == "failed"]

    def add_request(
        self, request_id: str, token_ids: Sequence[int], params: SamplingParams, constraint: Constraint | None = None
    ) -> None:
        """Queue a prompt, whose answer keeps to `constraint`.

        Raises WrongUse when it is empty, too long for the context, or its name is taken.
        """
        if request_id in self._requests:
            raise WrongUse(f"request {request_id!r} is running already", "Use another id")
        self._check_tokens(token_ids, self.max_model_len - 1)
        request = Request(request_id, list(token_ids), len(token_ids), params, constraint=constraint)
        self._requests[request_id] = request
        self._scheduler.add(request)

    @property
    def num_preemptions(self) -> int:
        """Return how often a request gave its pages back to another."""
        return self._scheduler.num_preemptions

    def has_work(self) -> bool:
        """Return whether a request is waiting or running."""
        return bool(self._requests)

    def step(self) -> list[StepOutput]:
        """Run one step; return a token for each sequence that got one. Empty when there is nothing to do."""
        batch = self._scheduler.schedule()
        if batch is None:
            return []
        begun = time.perf_counter()
        with self._profiler.step(batch):
            outputs = self._compute(batch)
        self._step_seconds += time.perf_counter() - begun
        return outputs

    def _compute(self, batch: Batch) -> list[StepOutput]:
        logits = self.watch.compute(batch)
        self._steps[batch.phase] += 1
        if logits is None:  # a kernel was switched off: nothing of this step counts
            return []
        for request in batch.sequences:
            self.blocks.note(request)
        finished = [request for request in batch.sequences if request.num_pending == 0]
        if not finished:
            return []
        sampled = dict(zip(finished, sample(logits, finished), strict=True))
        broken = [request for request, s in sampled.items() if s.token_id is None]
        if not broken:
            outputs = [self._append(request, s) for request, s in sampled.items()]
            self.watch.note_finite(finished)
            return outputs
        spared = self.watch.examine(batch, broken)
        if spared is None:
            return []
        outputs = [self._append(request, s) for request, s in sampled.items() if request not in spared]
        self.watch.note_finite(request for request in finished if request not in broken)
        self.watch.clean()
        return outputs

    def abort(self, request_id: str) -> None:
        """Drop a request; does nothing when it has ended already."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._scheduler.remove(request)
            self.watch.forget(request_id)

    def score(
        self, sequences: Sequence[ForcedSequence], phase: Phase, what: What = "logits", chunk: int | None = None
    ) -> Iterator[Row]:
        """Yield (sequence, position, logits [vocab] float32) for forced tokens, without sampling.

        `prefill`: the logits after each prompt token, position counting from the prompt's start. `decode`: prompts are
        prefilled, then all sequences take their forced tokens together, one per step, through the decode path; the
        logits after each forced token are given, its position counted from the prompt's start. `what` hidden gives the
        residual stream behind every layer, [layers · H], instead of logits; `chunk` is the most tokens a prefill step
        takes. Raises WrongUse at once when a sequence is empty or too long, or the cache has no room for all of them.
        """
        if phase not in ("decode", "prefill"):
            raise WrongUse(f"unknown phase {phase!r}", "Use decode or prefill")
        lengths = [len(s.prompt) + (len(s.forced) if phase == "decode" else 0) for s in sequences]
        for sequence in sequences:
            self._check_tokens([*sequence.prompt, *sequence.forced], self.max_model_len)
            self._check_tokens(sequence.prompt, self.max_model_len)
        needed = sum(map(pages_for, lengths)) if phase == "decode" else max(map(pages_for, lengths), default=0)
        if needed > self.blocks.num_free:
            remedy = "Score fewer or shorter sequences at once"
            raise WrongUse(f"scoring needs {needed} cache pages and {self.blocks.num_free} are free", remedy)
        run = score_decode if phase == "decode" else score_prefill
        budget = min(chunk or self.engine_config.token_budget, self.engine_config.token_budget)
        return run(sequences, partial(self._run_scored, what), self.blocks, budget)

    def kernels(self) -> list[KernelState]:
        """Return what became of every definition and pack kernel, with hits and fallbacks so far."""
        return self.dispatch.states()

    def start_profile(self, path: Path) -> None:
        """Profile the steps from now on; `stop_profile` writes the trace to `path`. Raises WrongUse when one runs."""
        self._profiler.start(Path(path))
        self.dispatch.set_wrap(self._profiler.wrap)

    def stop_profile(self) -> Path:
        """Stop the profiler, write the trace (Chrome trace JSON), return its path. Raises WrongUse when none runs."""
        self.dispatch.set_wrap(None)
        return self._profiler.stop()

    def set_wrap(self, wrap: Wrap | None) -> None:
        """Wrap every slot call (see Dispatch.set_wrap); None ends it."""
        self.dispatch.set_wrap(wrap)

    def stats(self) -> dict[str, Any]:
        """Return counters and the configuration that numbers depend on."""
        return {
            "model": self.config.name,
            "running": len(self._scheduler.running),
            "waiting": len(self._scheduler.waiting),
            "pages_free": self.blocks.num_free,
            "pages_total": self.blocks.num_pages,
            "pages_known": self.blocks.num_known,
            "pages": asdict(self.blocks.count_pages())
            | {"held": sum(len(request.pages) for request in self._requests.values())},
            "steps": dict(self._steps),
            "step_seconds": self._step_seconds,
            "shadow": {"rate": self.shadow.rate, "seconds": self.shadow.seconds},
            "generated_tokens": self._generated,
            "preemptions": self._scheduler.num_preemptions,
            "prefix_cache": self.engine_config.prefix_cache,
            "prefix_tokens_queried": self.blocks.num_queried,
            "prefix_tokens_found": self.blocks.num_found,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.engine_config.max_num_seqs,
            "token_budget": self.engine_config.token_budget,
            "threads": torch.get_num_threads(),
            "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
            "torch": torch.__version__,
        }

    def _append(self, request: Request, sampled: Sampled) -> StepOutput:
        reason: FinishReason | None = "error"
        if sampled.token_id is not None:
            request.token_ids.append(sampled.token_id)
            self._generated += 1
            reason = self._finish_reason(request, sampled.token_id)
        if reason is not None:
            del self._requests[request.request_id]
            self._scheduler.remove(request)
            if reason == "error":
                self.watch.forget(request.request_id)
        return StepOutput(request.request_id, sampled.token_id, reason, sampled.logprob, request.num_cached)

    def _finish_reason(self, request: Request, token_id: int) -> FinishReason | None:
        params = request.params
        if request.constraint is not None:
            request.constraint.follow(request.generated)
            if request.constraint.has_failed:
                return "error"
            if request.constraint.has_ended:
                return "stop"
        if token_id in params.stop_token_ids or (token_id in self.tokenizer.eos_ids and not params.ignore_eos):
            return "stop"
        # the last token needs no place in the cache, it is never fed back
        full = request.num_generated >= params.max_tokens or request.num_tokens >= self.max_model_len
        return "length" if full else None

    def _run_scored(self, what: What, batch: Batch, all_rows: bool) -> torch.Tensor:
        with self._profiler.step(batch):
            self._steps[batch.phase] += 1
            return self._runner.run(batch, all_rows, what=what)

    def _check_tokens(self, token_ids: Sequence[int], most: int) -> None:
        if not token_ids:
            raise WrongUse("the prompt is empty", "Give at least one token")
        if len(token_ids) > most:
            context = f"the context holds {self.max_model_len} tokens"
            raise WrongUse(f"{len(token_ids)} tokens are too many, {context}", "Shorten the prompt")
        if not (0 <= min(token_ids) and max(token_ids) < self.config.vocab):
            raise WrongUse(f"a token id is outside 0..{self.config.vocab - 1}", "Use this model's tokenizer")
