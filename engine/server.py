"""`serve`: the engine in this process, its HTTP front end in a child, a unix socket between them.

The listening socket is made here, before the model is loaded, so that a port in use costs no time. The child is given
that socket and one end of a socket pair; when either process ends the other sees the end of the stream and ends too.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from pydantic import BaseModel, Field, ValidationError

from kernelwright.engine import wire
from kernelwright.engine.guard import Action, Guard
from kernelwright.engine.listen import listen
from kernelwright.engine.loop import EngineLoop, ServedEngine
from kernelwright.engine.memory import describe
from kernelwright.kernels.allocator import keep_pages
from kernelwright.profiles.errors import KernelwrightError

DEFAULT_SHADOW = 2e-4
"""One pass of all references takes about twenty decode steps on two cores: this costs half a percent or less. A kernel
that is wrong in every layer is called some dozen times a step and found within a few hundred steps.
"""
_DRAIN_GRACE_S = 35.0
"""Seconds a front end may take to end after its socket is closed; its own drain is shorter."""


class ServeOptions(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    model: Path | None = None
    """GGUF file or Hugging Face folder; None = the default model, fetched on first use."""
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    uds: Path | None = None
    """Serve on this unix socket instead of host and port."""
    packs: tuple[Path, ...] = ()
    no_packs: bool = False
    disable: tuple[str, ...] = ()
    """Definitions whose kernels stay off."""
    compile_incumbents: bool = False
    """Run the incumbent's decode regions through torch.compile: the control arm, for comparison."""
    threads: int | None = Field(None, ge=1)
    max_num_seqs: int = Field(16, ge=1)
    max_model_len: int | None = Field(None, ge=2)
    """Tokens of prompt and answer together; None = what the model and the cache allow."""
    profile_dir: Path | None = None
    """Where `/start_profile` writes traces; None = profiling is off."""
    served_name: str | None = None
    """Model name in the API; None = a slug of the file's own name."""
    api_key: str | None = Field(None, repr=False)
    prefix_cache: bool = True
    """Requests that begin alike share what is computed of their beginning."""
    request_timeout_s: float | None = Field(None, gt=0)
    """Seconds after which a generation is given up; None = never."""
    max_queued: int = Field(256, ge=1)
    """Requests in the house at most; more are answered with 429."""
    guard_repeats: int = Field(7, ge=1)
    """A token drawn more often than this in a row is a collapse."""
    guard_action: Action = "observe"
    shadow: float = Field(DEFAULT_SHADOW, ge=0, le=1)
    """Share of the calls of packs' kernels that the reference computes, too; see shadow.py."""
    num_pages: int | None = Field(None, ge=1)
    """Pages of the KV cache, 16 tokens each; None = 1024, more where the context needs them."""


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, then finish what runs and return 0; 1 when the front end ended by itself.

    Raises EnvironmentLacks (port in use, before the model is loaded), BrokenInput (the model cannot be read), WrongUse.
    """
    keep_pages()  # as beside the judge
    with ExitStack() as stack:
        listening = stack.enter_context(listen(options.host, options.port, options.uds))
        signals = stack.enter_context(_Signals())
        try:
            with _front_end(listening) as (connection, child):
                return _serve_with(options, listening, connection, child, signals)
        except _StoppedWhileLoading:
            _say("stopped before the model was loaded")
            return 0


def _serve_with(
    options: ServeOptions,
    listening: socket.socket,
    connection: socket.socket,
    child: subprocess.Popen[bytes],
    signals: _Signals,
) -> int:
    from kernelwright.engine.weights import find_default_model

    end = wire.EngineEnd(connection)
    end.send(wire.Configure(options.api_key, options.max_queued, options.request_timeout_s))
    model = options.model or find_default_model(_say)
    engine, ready = load_engine(model, options)
    guard = Guard(options.guard_repeats, options.guard_action)
    loop = EngineLoop(engine, end, guard, options.profile_dir, _say)
    signals.stop_by(lambda: setattr(loop, "draining", True))
    end.send(ready)
    _say(f"serving {ready.served_name} on {address_of(listening)}")
    _say(describe(engine.facts()["memory"]))
    loop.run(signals.wakeup_fd)
    connection.close()
    if loop.draining:
        return 0
    status = child.wait(timeout=_DRAIN_GRACE_S)
    _say(f"error: the HTTP front end ended by itself (exit status {status}); the engine ends with it")
    return 1


def load_engine(model: Path, options: ServeOptions) -> tuple[ServedEngine, wire.Ready]:
    """Load the weights, bind and check the kernels; return the engine and what it tells the front end."""
    from kernelwright.engine.adapt import load_served_engine

    return load_served_engine(
        model,
        served_name=options.served_name,
        packs=() if options.no_packs else options.packs,
        disable=options.disable,
        threads=options.threads,
        max_num_seqs=options.max_num_seqs,
        max_model_len=options.max_model_len,
        compile_incumbents=options.compile_incumbents,
        prefix_cache=options.prefix_cache,
        num_pages=options.num_pages,
        shadow=options.shadow,
    )


@contextmanager
def _front_end(listening: socket.socket) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Start the front-end process; yield the engine's end and the process. On the way out both are gone."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for side in (ours, theirs):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    fds = (listening.fileno(), theirs.fileno())
    command = [sys.executable, "-P", "-m", "kernelwright.engine.frontend", *map(str, fds)]
    # One thread for numpy, and a session of its own: Ctrl-C reaches the engine alone, which then drains the front end.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen(
        command,
        pass_fds=fds,
        start_new_session=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
    )
    theirs.close()
    try:
        yield ours, child
    finally:
        ours.close()
        try:
            child.wait(timeout=_DRAIN_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class _StoppedWhileLoading(BaseException):
    """A signal came before the loop ran. A BaseException, so that no handler in a library takes it for its own."""


class _Signals:
    """SIGTERM and SIGINT: before the loop runs they end the load, then they ask it to drain; the third one kills."""

    def __init__(self) -> None:
        self._ask_to_stop: object = None
        self._count = 0

    def __enter__(self) -> _Signals:
        self.wakeup_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._old_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self.wakeup_fd)
        os.close(self._write_fd)

    def stop_by(self, ask: object) -> None:
        """From now on a signal calls `ask` instead of ending the load; raise if one came and was swallowed.

        An exception raised while a finaliser or a weak reference's callback runs (an import has them) is only printed.
        """
        self._ask_to_stop = ask
        if self._count:
            raise _StoppedWhileLoading

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if not callable(self._ask_to_stop):
            raise _StoppedWhileLoading
        if self._count >= 3:
            os._exit(128 + number)
        self._ask_to_stop()


def address_of(listening: socket.socket) -> str:
    """Return what a client writes to reach `listening`."""
    if listening.family == socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(text: str) -> None:
    print(f"kernelwright: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Serve with options read as JSON from standard input, so that no key shows in the process list.

    With `--follow` they are one line, and the server ends when its standard input does: with whoever started it.
    """
    follow = "--follow" in arguments
    try:
        text = sys.stdin.buffer.readline() if follow else sys.stdin.buffer.read()
        options = ServeOptions.model_validate_json(text)
    except ValidationError as error:
        _say(f"error: the options are not ServeOptions: {error}")
        return 2
    if follow:
        threading.Thread(target=_end_with_owner, daemon=True).start()
    try:
        return serve(options)
    except KernelwrightError as error:
        _say(f"error: {error.message}. {error.remedy}")
        return error.exit_code


def _end_with_owner() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    from kernelwright.engine.server import main as imported_main

    sys.exit(imported_main(sys.argv[1:]))
