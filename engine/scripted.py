"""ScriptedEngine: answers from a script behind the real front end, for everything above the engine without weights.

Tokens are bytes: id = byte, and 256 ends a generation. What it says is chosen by a function of the prompt.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelwright.engine import wire
from kernelwright.engine.guard import Guard
from kernelwright.engine.loop import EngineLoop
from kernelwright.engine.server import address_of
from kernelwright.engine.tools import CallForm

END = 256
VOCAB = 257
LAYERS, HIDDEN = 2, 4


class ByteText:
    """Text as its UTF-8 bytes; a chat is rendered as one `role: content` line per message."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(id for id in token_ids if id < END).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < END else b"<end>"

    @property
    def call_form(self) -> CallForm | None:
        return None

    def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        return self.encode("\n".join([*lines, "assistant: "]))


@dataclass
class _Running:
    prompt: list[int]
    says: list[int]
    sampling: wire.Sampling
    said: int = 0


@dataclass
class ScriptedEngine:
    """`says(prompt) → ids` decides every answer; `step_s` is how long a step takes."""

    says: Callable[[list[int]], list[int]] = lambda prompt: [*b"Paris.", END]
    step_s: float = 0.0
    submitted: list[tuple[list[int], wire.Sampling]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    rows_made: int = 0
    says_again: Callable[[list[int]], list[int]] | None = None
    """Likewise for answers that are retried."""
    retried: list[tuple[str, int]] = field(default_factory=list)
    switched: list[tuple[str, bool]] = field(default_factory=list)
    cached: int = 0
    """What every first token says was found of its prompt."""
    _running: dict[str, _Running] = field(default_factory=dict)

    def submit(self, request: str, token_ids: list[int], sampling: wire.Sampling) -> None:
        if b"refuse me" in bytes(id for id in token_ids if id < END):
            raise ValueError("the engine has no room for this request")
        self.submitted.append((token_ids, sampling))
        self._running[request] = _Running(token_ids, self.says(token_ids), sampling)

    def step(self) -> list[wire.Token]:
        time.sleep(self.step_s)
        tokens = [self._advance(id, running) for id, running in self._running.items()]
        for token in tokens:
            if token.finish is not None:
                del self._running[token.id]
        return tokens

    def _advance(self, id: str, running: _Running) -> wire.Token:
        sampling, token = running.sampling, running.says[running.said % len(running.says)]
        running.said += 1
        finish = None
        if token == END and not sampling.ignore_eos:
            finish = "stop"
        elif running.said >= sampling.max_tokens:
            finish = "length"
        if sampling.logprobs is None:
            return wire.Token(id, token, finish, cached=self.cached)
        top = [(token, -0.5), (END, -1.0)][: sampling.logprobs]
        return wire.Token(id, token, finish, -0.5, top, self.cached)

    def refused(self) -> list[wire.Ended]:
        return []

    def abort(self, request: str) -> None:
        self.aborted.append(request)
        self._running.pop(request, None)

    def score(
        self,
        sequences: list[wire.ForcedSequence],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"] = "logits",
        chunk: int | None = None,
    ) -> Iterator[tuple[int, int, bytes]]:
        """The logits after a token are 2 at the next id and 0 elsewhere; its hidden states are its id everywhere."""
        import numpy as np

        for number, sequence in enumerate(sequences):
            tokens = sequence.prompt if phase == "prefill" else sequence.forced
            start = 0 if phase == "prefill" else len(sequence.prompt)
            for position, token in enumerate(tokens, start):
                logits = np.zeros(VOCAB, dtype="<f4")
                logits[(token + 1) % VOCAB] = 2.0
                self.rows_made += 1
                hidden = np.full(LAYERS * HIDDEN, token, dtype="<f4")
                yield number, position, (logits if what == "logits" else hidden).tobytes()

    def kernels(self) -> list[dict[str, Any]]:
        kernel = {"definition": "add_rmsnorm_h8", "state": "live", "hits": 3, "fallbacks": {"tokens": 1}}
        return [kernel | {"candidate": "c" * 64, "binary": "b" * 64}]

    def facts(self) -> dict[str, Any]:
        return {"threads": 1, "resident_bytes": 1024}

    def retry(self, request: str, keep: int) -> list[int] | None:
        """Say on from `keep` what `says_again` makes of the prompt; None where there is no such thing."""
        running = self._running.get(request)
        if self.says_again is None or running is None:
            return None
        kept = [running.says[n % len(running.says)] for n in range(keep)]
        self.retried.append((request, keep))
        running.says, running.said = [*kept, *self.says_again(running.prompt)[keep:]], keep
        return kept

    def switch(self, definition: str, enabled: bool) -> dict[str, int]:
        self.switched.append((definition, enabled))
        return {"recomputed_requests": len(self._running), "forgotten_pages": 3}

    def tripped(self) -> list[str]:
        return [kernel["definition"] for kernel in self.kernels() if kernel.get("state") == "tripped"]

    def token_text(self, token: int) -> str:
        return ByteText().token_bytes(token).decode("utf-8", "replace")

    def cache(self) -> wire.Cache:
        return wire.Cache(queried=40, found=16, used=0.25, preemptions=2)

    def reset_prefix_cache(self) -> int:
        return 3

    def start_profile(self, path: Path) -> None:
        path.write_text("{}")
        self._trace = path

    def stop_profile(self) -> Path:
        return self._trace


@contextmanager
def serve_scripted(
    engine: ScriptedEngine,
    *,
    served_name: str = "scripted",
    api_key: str | None = None,
    max_model_len: int = 256,
    max_queued: int = 64,
    request_timeout_s: float | None = None,
    guard: Guard | None = None,
    profile_dir: Path | None = None,
) -> Iterator[str]:
    """Serve `engine` on a free local port through the real loop, wire and front end, in threads; yield its URL."""
    from kernelwright.engine.frontend import serve_http

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    wakeup, poke = socket.socketpair()
    end = wire.EngineEnd(ours)
    loop = EngineLoop(engine, end, guard or Guard(), profile_dir)
    threads = [
        threading.Thread(target=_run, args=(loop, wakeup), daemon=True),
        threading.Thread(target=lambda: asyncio.run(serve_http(listening, theirs, lambda _: ByteText())), daemon=True),
    ]
    end.send(wire.Configure(api_key, max_queued, request_timeout_s))
    end.send(wire.Ready(served_name, max_model_len, VOCAB, num_layers=LAYERS, hidden_size=HIDDEN))
    try:
        for thread in threads:
            thread.start()
        yield address_of(listening)
    finally:
        loop.draining = True
        poke.send(b"x")
        for thread in threads:
            thread.join(timeout=10)
        for side in (theirs, listening, wakeup, poke):
            side.close()


def _run(loop: EngineLoop, wakeup: socket.socket) -> None:
    # As when a process ends: whatever ends the loop, the front end sees its socket close.
    with loop.end.connection:
        loop.run(wakeup.fileno())
