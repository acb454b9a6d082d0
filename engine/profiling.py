"""StepProfiler: torch's profiler around the engine's steps, with a named range for each step and each slot call."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kernelwright.engine.scheduler import Batch
from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kernelwright.engine.decoder import Call
    from kernelwright.engine.dispatch import CallSite
    from kernelwright.kernels.load import BoundSlot


class StepProfiler:
    """Off until `start`; while off, `step` costs one attribute look-up."""

    def __init__(self) -> None:
        self._profile: profile | None = None
        self._path = Path()

    def start(self, path: Path) -> None:
        """Start profiling; raises WrongUse when a profile is being taken already."""
        if self._profile is not None:
            raise WrongUse("a profile is being taken already", "Stop it first")
        self._path = path
        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.start()

    def stop(self) -> Path:
        """Stop and write the trace in one rename; raises WrongUse when no profile is being taken."""
        if self._profile is None:
            raise WrongUse("no profile is being taken", "Start one first")
        taken, self._profile = self._profile, None
        taken.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".partial-{self._path.name}")
        taken.export_chrome_trace(str(partial))
        os.replace(partial, self._path)
        return self._path

    def step(self, batch: Batch) -> AbstractContextManager[Any]:
        """Return the range of one step, `step|<phase>|<tokens>|<num_seqs>`; nothing while off."""
        if self._profile is None:
            return contextlib.nullcontext()
        return record_function(f"step|{batch.phase}|{batch.num_tokens}|{len(batch.sequences)}")

    def wrap(self, site: CallSite, bound: BoundSlot) -> Call:
        """Return `bound` under its range, `slot|<definition>|<phase>|<tokens>|<layer>`."""
        label = f"slot|{site.definition.name}|{site.phase}|{site.tokens}|{site.layer}"
        call = bound.call

        def ranged(*inputs: Any) -> tuple[torch.Tensor, ...]:
            with record_function(label):
                return call(*inputs)

        return ranged
