"""Is each kernel of a pack live? Counted by the engine while it is scored, confirmed from outside by switching it off.

A process that has loaded candidate code counts its own hits, so the count alone proves nothing. Without the kernel the
incumbent's arithmetic runs in its slot, whose roundings differ: the same forced tokens then give other logits, bit for
bit, while two runs with the kernel give the same. That takes a few tokens and no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient
from kernelwright.engine.gate_plan import GatePlan
from kernelwright.engine.gate_server import GateServer
from kernelwright.engine.gate_speed import DECODE_PROMPT
from kernelwright.engine.gate_texts import probes
from kernelwright.engine.load import measure_decode
from kernelwright.profiles.digest import digest_bytes
from kernelwright.sandbox.timing import timing_lock

PROBE_TOKENS = 8
LOOK_S = 6.0
"""About what a look takes: weights of the incumbent dequantised, a few tokens, one short answer; seconds."""


class LiveKernel(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One kernel of the pack in the patched engine."""

    definition: str
    candidate: str | None
    state: str
    """The engine's word: live, disabled, failed."""
    hits: int
    """Slot calls it served in the scoring run."""
    hits_by_phase: dict[str, int] = {}
    """The same by phase of the gate; where there are none, that phase says nothing about this kernel."""
    fallbacks: dict[str, int] = {}
    """Slot calls in the scoring run that went to the incumbent, by reason."""
    confirmed: bool | None = None
    """Whether logits change when it is off. False when they stay the same bit for bit, as they do with a kernel that
    rounds as the incumbent does; None when it was not tried or the engine does not repeat itself.
    """
    decode_tok_s: float | None = None
    """Decode speed with every kernel on, one measurement over HTTP: for orientation."""
    decode_tok_s_without: float | None = None
    """The same with this kernel off."""
    reason: str = ""


def count_hits(before: dict[str, Any], after: dict[str, Any]) -> list[LiveKernel]:
    """Return each pack kernel with the hits between two answers of `/v1/kernels`."""
    past = {(k["definition"], k["candidate"]): k for k in before["kernels"]}
    found = []
    for kernel in after["kernels"]:
        if kernel["candidate"] is None:
            continue
        old = past.get((kernel["definition"], kernel["candidate"]), {"hits": 0, "fallbacks": {}})
        fallbacks = {why: n - old["fallbacks"].get(why, 0) for why, n in kernel["fallbacks"].items()}
        found.append(
            LiveKernel(
                definition=kernel["definition"],
                candidate=kernel["candidate"],
                state=kernel["state"],
                hits=kernel["hits"] - old["hits"],
                fallbacks={why: n for why, n in fallbacks.items() if n},
                reason=kernel.get("reason", ""),
            )
        )
    return found


def confirm_live(
    patched: GateServer, kernels: Sequence[LiveKernel], plan: GatePlan, deadline: float, say: Callable[[str], None]
) -> list[LiveKernel]:
    """Switch every kernel with hits off in turn, and on again; say whether the logits change, until `deadline`."""
    say("every kernel on, once more")
    first, again = _look(patched, plan), _look(patched, plan)
    repeats = first.logits == again.logits  # else a difference would say nothing
    seen: dict[str, dict[str, object]] = {}
    for definition in sorted({kernel.definition for kernel in kernels if kernel.hits}):
        if time.monotonic() + LOOK_S > deadline:
            break
        say(f"without {definition}")
        with patched.client() as client:
            client.switch(definition, enabled=False)
            look = _look(patched, plan)
            client.switch(definition, enabled=True)
        changed = (look.logits != first.logits) if repeats else None
        seen[definition] = {"confirmed": changed, "decode_tok_s": again.tok_s, "decode_tok_s_without": look.tok_s}
    return [LiveKernel(**{**kernel.model_dump(), **seen.get(kernel.definition, {})}) for kernel in kernels]


@dataclass(frozen=True, slots=True)
class _Look:
    logits: str
    tok_s: float


def _look(engine: GateServer, plan: GatePlan) -> _Look:
    with engine.client() as client, timing_lock():
        logits = probe(client, plan)  # warms it up, too
        return _Look(logits, measure_decode(client, DECODE_PROMPT, 64, 1)[0].decode_tok_s)


def probe(client: EngineClient, plan: GatePlan) -> str:
    """Return a digest of the logits of a few forced tokens: prefill, decode alone, decode in a batch of eight."""
    pairs = [(window.prompt, window.forced) for window in probes(plan.library, PROBE_TOKENS)]
    rows = [
        *client.score(pairs[:1], "decode"),
        *client.score(pairs, "decode"),
        *client.score([((*pairs[0][0], *pairs[0][1]), ())], "prefill"),
    ]
    return digest_bytes(b"".join(row.logits.tobytes() for row in rows))
