"""A client of an engine's server, and the server as a child process: how an engine is driven from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx

from kernelwright.engine.server import ServeOptions
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, KernelwrightError, WrongUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER_BYTES = 8
_EXIT_ERRORS = {2: WrongUse, 3: EnvironmentLacks, 4: BrokenInput}


class EngineFailed(KernelwrightError):
    """A server did not do what it was asked: it ended, it answered with an error, it did not answer in time."""


@dataclass(frozen=True, slots=True)
class TimedToken:
    """One streamed token as the client saw it. `at` (seconds, `perf_counter`) is when its event was whole."""

    at: float
    ids: tuple[int, ...]
    text: str
    finish: str | None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The logits after the token at `position` of sequence `sequence`: [vocab] float32; or its hidden states."""

    sequence: int
    position: int
    logits: NDArray[np.float32]


class EngineClient:
    """Talks to one server. Raises EngineFailed with the server's own message on any answer that is not 200."""

    def __init__(
        self, base_url: str, *, uds: Path | None = None, api_key: str | None = None, timeout_s: float = 120.0
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        transport = httpx.HTTPTransport(uds=str(uds)) if uds is not None else None
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        # The engine is on this machine: a proxy from the environment would only stand in between.
        self.http = httpx.Client(
            base_url=base_url, transport=transport, headers=headers, timeout=timeout, trust_env=False
        )
        self._card: dict[str, Any] | None = None

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    @property
    def model(self) -> str:
        """Name the server serves its model under."""
        return str(self.card()["id"])

    def card(self) -> dict[str, Any]:
        """Return the model's entry of `/v1/models`, with `max_model_len` and `vocab_size`; asked once."""
        if self._card is None:
            data = self._json("GET", "/v1/models")["data"]
            if not data:
                raise EngineFailed("the server has no model loaded yet", "Wait until /health answers 200")
            self._card = data[0]
        return self._card

    def is_healthy(self) -> bool:
        """Return whether `/health` answers 200; False also when nobody answers."""
        try:
            return self.http.get("/health", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def complete(self, prompt: str | Sequence[int], **fields: Any) -> dict[str, Any]:
        """Return the response object of `/v1/completions`."""
        body = {"model": self.model, "prompt": prompt if isinstance(prompt, str) else list(prompt), **fields}
        return self._json("POST", "/v1/completions", body)

    def chat(self, messages: Sequence[dict[str, str]], **fields: Any) -> dict[str, Any]:
        """Return the response object of `/v1/chat/completions`."""
        return self._json("POST", "/v1/chat/completions", {"model": self.model, "messages": list(messages), **fields})

    def stream(self, prompt: str | Sequence[int], **fields: Any) -> Iterator[TimedToken]:
        """Yield the tokens of one completion as they arrive."""
        body = {"model": self.model, "prompt": prompt if isinstance(prompt, str) else list(prompt), **fields}
        with self._answer("POST", "/v1/completions", body | {"stream": True, "return_token_ids": True}) as response:
            for line in response.iter_lines():
                at = time.perf_counter()
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise EngineFailed(f"the server gave up: {event['error']['message']}", "See the server's log")
                for choice in event["choices"]:
                    yield TimedToken(at, tuple(choice["token_ids"]), choice["text"], choice["finish_reason"])

    def score(
        self,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        phase: Literal["decode", "prefill"],
        what: Literal["logits", "hidden"] = "logits",
        chunk: int | None = None,
    ) -> Iterator[ScoreRow]:
        """Yield the logits of (prompt, forced) `sequences`; reads only as fast as the caller takes them.

        `what` hidden asks for the residual stream behind every layer, [layers · H]; `chunk` for prefill in pieces.
        """
        import numpy as np

        body = {
            "sequences": [{"prompt": list(prompt), "forced": list(forced)} for prompt, forced in sequences],
            "phase": phase,
            "what": what,
            "chunk": chunk,
        }
        size = _HEADER_BYTES + 4 * self._width(what)
        held = bytearray()
        with self._answer("POST", "/v1/score", body) as response:
            for received in response.iter_raw():
                held += received
                while len(held) >= size:
                    sequence, position = np.frombuffer(held[:_HEADER_BYTES], dtype="<u4").tolist()
                    logits = np.frombuffer(bytes(held[_HEADER_BYTES:size]), dtype="<f4")
                    del held[:size]
                    yield ScoreRow(sequence, position, logits)
        if held:
            raise EngineFailed("the score was cut short in the middle of a row", "See the server's log")

    def _width(self, what: Literal["logits", "hidden"]) -> int:
        card = self.card()
        width = card["vocab_size"] if what == "logits" else card["num_hidden_layers"] * card["hidden_size"]
        return int(width)

    def kernels(self) -> dict[str, Any]:
        """Return `/v1/kernels`: the engine's facts and, under `kernels`, one object per definition."""
        return self._json("GET", "/v1/kernels")

    def switch(self, definition: str, enabled: bool) -> None:
        """Switch the kernels of `definition` on or off between two steps of the engine."""
        self._json("POST", f"/v1/kernels/{definition}", {"enabled": enabled})

    def metrics(self) -> str:
        """Return the text of `/metrics`."""
        with self._answer("GET", "/metrics") as response:
            return response.read().decode()

    def reset_prefix_cache(self) -> int:
        """Have the server forget what it computed of prompts; return how many pages that were."""
        return int(self._json("POST", "/reset_prefix_cache")["forgotten_pages"])

    def start_profile(self) -> None:
        self._json("POST", "/start_profile")

    def stop_profile(self) -> Path:
        """Return the path of the trace, as the server sees it."""
        return Path(self._json("POST", "/stop_profile")["trace"])

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        with self._answer(method, path, body) as response:
            answer: dict[str, Any] = json.loads(response.read())
            return answer

    @contextmanager
    def _answer(self, method: str, path: str, body: Any = None) -> Iterator[httpx.Response]:
        try:
            with self.http.stream(method, path, json=body) as response:
                if response.status_code != 200:
                    raise EngineFailed(_message(path, response), "Mend the request, or see the server's log")
                yield response
        except httpx.TimeoutException as error:
            raise EngineFailed(f"{path}: no answer in time ({type(error).__name__})", "See the server's log") from error
        except httpx.TransportError as error:
            raise EngineFailed(f"{path}: the connection broke ({error})", "Does the server still run?") from error


def _message(path: str, response: httpx.Response) -> str:
    body = response.read()
    try:
        text = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode("utf-8", "replace")
    return f"{path} answered {response.status_code}: {text}"


class ServerProcess:
    """A server in a child process: started, waited for, stopped. Use it as a context manager."""

    def __init__(self, process: subprocess.Popen[bytes], options: ServeOptions, log: Path, folder: Any) -> None:
        self.process = process
        self.options = options
        self.log = log
        """Where the child's talk (stderr) goes."""
        self._folder = folder

    @classmethod
    def start(
        cls,
        options: ServeOptions,
        *,
        prefix: Sequence[str] = (),
        log: Path | None = None,
        environment: dict[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ServerProcess:
        """Start a server. With port 0 and no `uds` it gets a unix socket of its own.

        `prefix` is put before the command (a cage, `taskset`); `environment` None = inherit ours.
        """
        folder = tempfile.TemporaryDirectory(prefix="kw-serve-")
        if options.uds is None and options.port == 0:
            options = options.model_copy(update={"uds": Path(folder.name) / "s"})
        log = log or Path(folder.name) / "log"
        command = [*prefix, sys.executable, "-P", "-m", "kernelwright.engine.server", "--follow"]
        with log.open("ab") as sink:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=sink, stderr=sink, env=environment, pass_fds=tuple(pass_fds)
            )
        assert process.stdin is not None
        # The pipe stays open: when this process dies, however it dies, the server sees its end and drains.
        with suppress(BrokenPipeError):  # it has ended already; `wait_until_healthy` says why
            process.stdin.write(options.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        return cls(process, options, log, folder)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def client(self, timeout_s: float = 120.0) -> EngineClient:
        """Return a new client of this server."""
        options = self.options
        url = "http://engine" if options.uds is not None else f"http://{options.host}:{options.port}"
        return EngineClient(url, uds=options.uds, api_key=options.api_key, timeout_s=timeout_s)

    def wait_until_healthy(self, timeout_s: float = 120.0) -> None:
        """Return when `/health` says 200. Raises the error the server ended with, or EngineFailed after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while not client.is_healthy():
                if self.process.poll() is not None:
                    raise self._ended()
                if time.monotonic() > deadline:
                    raise EngineFailed(f"the server was not ready after {timeout_s:.0f} s", self._tail())
                time.sleep(0.05)

    def stop(self, timeout_s: float = 40.0) -> int:
        """Ask the server to drain and end; kill it after `timeout_s`. Returns its exit status; may be called twice."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        status = self.process.wait()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        self._folder.cleanup()
        return status

    def _ended(self) -> KernelwrightError:
        kind = _EXIT_ERRORS.get(self.process.returncode, EngineFailed)
        return kind(f"the server ended with exit status {self.process.returncode}", self._tail())

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return "Its last words: " + (" | ".join(lines[-5:]) or "none")
