"""Shadow checks: sampled live calls of a pack's kernels are computed a second time by the reference, and compared.

A sampled call gets the very tensors that it would get anyway. Its inputs are copied before, the reference (float32,
raw weights: dense ones are not kept for it) runs on the copies after, and what differs is taken to the fp64 reference
before it counts. Of the caches only the pages of the step are copied, and a few others that nobody may write to.

Which calls are sampled is drawn from a generator that the system's randomness has seeded: how many to pass over until
the next one, so that a step without a sample costs one subtraction. Prefill and decode have a draw each.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from kernelwright.engine.compare import Copies, compare, copy_inputs

if TYPE_CHECKING:
    from kernelwright.engine.decoder import Call, LayerCalls
    from kernelwright.engine.dispatch import Dispatch, KernelCall, Plan
    from kernelwright.engine.kernel import Kernel
    from kernelwright.profiles.profile import Phase

Checks = Literal["none", "sampled", "all"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A live call whose result was not what the reference gives."""

    kernel: Kernel
    kind: Literal["shadow", "not_finite", "raised"]
    text: str


@dataclass(slots=True)
class Shadow:
    """`rate` is the share of calls that are checked: 0 none, 1 all."""

    dispatch: Dispatch
    rate: float = 0.0
    seconds: float = 0.0
    """Time that checks took since the start."""
    _random: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(256)))
    _skip: dict[Phase, int] = field(default_factory=dict)
    """Calls to pass over before the next sample."""
    _found: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"the share of calls to check must be from 0 to 1, not {self.rate}")

    def over(self, plan: Plan, phase: Phase, checks: Checks) -> tuple[Sequence[LayerCalls], Sequence[Call]]:
        """Return the layers and the head of `plan`, with the calls that are to be checked put in place."""
        calls = plan.kernel_calls
        if checks == "none" or not calls or (checks == "sampled" and (not self.rate or self.dispatch.is_watched)):
            return plan.layers, plan.head
        chosen = calls if checks == "all" else self._draw(calls, phase)
        if not chosen:
            return plan.layers, plan.head
        layers, head = list(plan.layers), list(plan.head)
        for call in chosen:
            at = call.site.layer
            if at == len(layers):
                index = 0 if call.slot == "final_norm" else 1
                head[index] = self._checked(call, head[index])
            else:
                checked: Any = {call.slot: self._checked(call, getattr(layers[at], call.slot))}
                layers[at] = replace(layers[at], **checked)
        return layers, head

    def take(self) -> list[Finding]:
        """Return what was found since this was last asked."""
        found, self._found = self._found, []
        return found

    def _draw(self, calls: Sequence[KernelCall], phase: Phase) -> list[KernelCall]:
        at = self._skip[phase] if phase in self._skip else self._gap()
        chosen = []
        while at < len(calls):
            chosen.append(calls[at])
            at += 1 + self._gap()
        self._skip[phase] = at - len(calls)
        return chosen

    def _gap(self) -> int:
        """Return how many calls pass before the next sample: geometric, as if each were drawn by itself."""
        if self.rate >= 1.0:
            return 0
        return int(math.log(1.0 - self._random.random()) / math.log1p(-self.rate))

    def _checked(self, planned: KernelCall, call: Call) -> Call:
        def checked(*inputs: Any) -> tuple[torch.Tensor, ...]:
            if self._found:  # the step is given up already
                return call(*inputs)
            begun = time.perf_counter()
            copies = copy_inputs(planned, inputs, self._random)
            self.seconds += time.perf_counter() - begun
            try:
                outputs = call(*inputs)
            except Exception as error:  # whatever a kernel raises is a finding; the step goes no further
                self._note(planned, "raised", f"it raises {type(error).__name__}: {error}")
                raise
            begun = time.perf_counter()
            self._compare(planned, copies, inputs, outputs)
            self.seconds += time.perf_counter() - begun
            return outputs

        return checked

    def _compare(
        self, planned: KernelCall, copies: Copies, inputs: Sequence[Any], outputs: tuple[torch.Tensor, ...]
    ) -> None:
        site, kernel = planned.site, planned.kernel
        kernel.checks[site.phase] += 1
        kernel.checked_layers.add(site.layer)
        weights = self.dispatch.weights.slot(site.layer, planned.key)
        difference = compare(planned, copies, weights, inputs, outputs)
        if difference is not None:
            self._note(planned, "shadow" if difference.is_finite else "not_finite", difference.text)

    def _note(self, planned: KernelCall, kind: Literal["shadow", "not_finite", "raised"], text: str) -> None:
        site = planned.site
        tokens = f"{site.tokens} token{'s' if site.tokens != 1 else ''}"
        self._found.append(Finding(planned.kernel, kind, f"{site.phase} of {tokens}, layer {site.layer}: {text}"))
