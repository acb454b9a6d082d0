"""Watch: keep a kernel that does wrong out of service while requests run, and change kernels between two steps.

A step in which a kernel is found wrong is void: no token of it is drawn. The kernel goes (the incumbent serves its
slots from the next step on), and with it everything computed so far: plans, known pages, and what running requests
have in theirs, since nobody can say how long it was wrong. Requests keep the tokens they have and are computed again.

Logits that are not finite say that something is wrong, not what. The step is run again with every call checked: a
kernel that makes them of finite inputs is found so. Where none is, the requests concerned go on with the incumbents
alone; if their logits are finite, the kernels are to blame together and all go; if not, it was not the kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from kernelwright.engine.dispatch import Dispatch
from kernelwright.engine.kernel import Kernel, Trip

if TYPE_CHECKING:
    from torch import Tensor

    from kernelwright.engine.blocks import BlockManager
    from kernelwright.engine.runner import ModelRunner
    from kernelwright.engine.scheduler import Batch, Scheduler
    from kernelwright.engine.sequence import Sequence as Request
    from kernelwright.engine.shadow import Finding, Shadow


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change of kernels cost."""

    recomputed_requests: int
    forgotten_pages: int


@dataclass(slots=True)
class Watch:
    dispatch: Dispatch
    runner: ModelRunner
    scheduler: Scheduler
    blocks: BlockManager
    shadow: Shadow
    say: Callable[[str], None] = lambda text: None
    """Told once of every kernel that is switched off."""
    _doubted: dict[str, list[Kernel]] = field(default_factory=dict)
    """Request that goes on with the incumbents alone → the kernels that served when its logits were not finite."""

    def compute(self, batch: Batch) -> Tensor | None:
        """Return the logits of a step, or None when a kernel was found wrong in it and the step is void.

        Raises what the step raises when no kernel of a pack is to blame.
        """
        before = [sequence.num_computed for sequence in batch.sequences]
        try:
            logits = self.runner.run(batch, checks="sampled")
        except Exception:
            found = self.shadow.take() or self._look_closely(batch, before)
            if not found:
                raise
            self._trip(found)
            return None
        found = self.shadow.take()
        if found:
            self._trip(found)
            return None
        return logits

    def examine(self, batch: Batch, broken: Sequence[Request]) -> Sequence[Request] | None:
        """Say what becomes of `broken`, requests of a step whose logits are not finite.

        Return those that go on with the incumbents alone and get no token of this step; the others end. None: a kernel
        was to blame, and the step is void.
        """
        suspects = self.dispatch.live_kernels()
        if batch.sequences[0].plain or not suspects:
            return ()
        before = [s.num_computed - count for s, count in zip(batch.sequences, batch.counts, strict=True)]
        found = self._look_closely(batch, before)
        if found:
            self._trip(found)
            return None
        for request in broken:
            self._doubted[request.request_id] = suspects
            request.plain = True
            request.page_keys.clear()
            self.scheduler.restart(request)
        return broken

    def note_finite(self, requests: Iterable[Request]) -> None:
        """Take note of requests whose logits were finite: what the kernels could not do, the incumbents did."""
        for request in requests if self._doubted else ():
            suspects = [kernel for kernel in self._doubted.pop(request.request_id, ()) if kernel.is_sound]
            for kernel in suspects:
                self._switch_off(kernel, "not_finite", "logits were not finite with the pack's kernels and are without")
            if suspects:
                self.change_kernels()

    def forget(self, request_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self._doubted.pop(request_id, None)

    def change_kernels(self) -> Changed:
        """Make a change of kernels good: forget all that those before computed."""
        self.dispatch.forget_plans()
        restarted = self.scheduler.restart_all()
        forgotten = self.clean()
        return Changed(restarted, forgotten)

    def clean(self) -> int:
        """Forget the known pages and empty those without an owner that hold values that are not finite.

        Attention weighs what is masked by zero, and zero times such a value is none. Returns how many were known.
        """
        known = self.blocks.forget()
        pages = torch.tensor(self.blocks.unowned(), dtype=torch.int64)
        for caches in self.dispatch.caches:
            for cache in caches:
                bad = pages[~torch.isfinite(cache.index_select(0, pages)).flatten(1).all(dim=1)]
                cache[bad] = 0.0
        return known

    def _look_closely(self, batch: Batch, before: Sequence[int]) -> list[Finding]:
        """Run the step once more with every kernel's call checked; the caches are written with the same again."""
        after = [sequence.num_computed for sequence in batch.sequences]
        for sequence, computed in zip(batch.sequences, before, strict=True):
            sequence.num_computed = computed
        with suppress(Exception):  # the finding says what a kernel raised; what else raises did so before
            self.runner.run(batch, checks="all")
        for sequence, computed in zip(batch.sequences, after, strict=True):
            sequence.num_computed = computed
        return self.shadow.take()

    def _trip(self, found: Iterable[Finding]) -> None:
        for finding in found:
            self._switch_off(finding.kernel, finding.kind, finding.text)
        changed = self.change_kernels()
        self.say(
            f"{changed.recomputed_requests} running requests are computed again, "
            f"{changed.forgotten_pages} pages of the prefix cache forgotten"
        )

    def _switch_off(self, kernel: Kernel, kind: str, text: str) -> None:
        kernel.trip = Trip(kind, text, time.time())  # type: ignore[arg-type]
        kernel.trips[kind] += 1
        name = f"{kernel.candidate.definition} ({kernel.digest[:12]})"
        self.say(f"kernel {name} switched off ({kind}): {text}; the incumbent serves instead")
