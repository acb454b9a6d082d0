"""The control arm: what a flag alone would give. So far one: torch.compile of the incumbent's decode regions."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from kernelwright.engine.client import EngineFailed, ServerProcess
from kernelwright.engine.load import measure_decode
from kernelwright.engine.server import ServeOptions

WARM_TOKENS = 24
"""Tokens decoded before anything is timed: every page boundary and recompilation of the first steps lies in them."""


def measure_compiled(options: ServeOptions, repeats: int, seed: int) -> dict[str, Any]:
    """Return decode tok/s over HTTP of the incumbent through torch.compile, and how long it took to be warm (s).

    A failure to compile is a result too: `decode_tok_s` is None and `reason` says why.
    """
    started = time.monotonic()
    compiled = options.model_copy(update={"compile_incumbents": True, "no_packs": True, "packs": ()})
    try:
        with ServerProcess.start(compiled) as server:
            server.wait_until_healthy()
            with server.client(timeout_s=300.0) as client:
                measure_decode(client, 128, WARM_TOKENS, 2, seed=seed)
                ready_s = time.monotonic() - started
                timed = measure_decode(client, 128, 128, repeats, seed=seed + 1)
    except EngineFailed as failed:
        return {"decode_tok_s": None, "n": 0, "reason": failed.message}
    return {"decode_tok_s": median(m.tok_s for m in timed), "n": repeats, "ready_s": ready_s}
