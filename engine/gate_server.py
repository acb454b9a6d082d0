"""The engines of a gate: the server that `serve` starts, in a cage, spoken to through a unix socket.

Incumbent and patched engine get identical cages, files and options; the one difference is `no_packs`. Kernels were
built before and are shown read-only, so that nothing in the cage compiles and what is loaded is what was built
outside.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.engine.checkpoint import model_bytes, model_files
from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.engine.pack_load import CACHE_VARIABLE
from kernelwright.engine.server import ServeOptions
from kernelwright.sandbox.cage import Bind, Cage, CagedProcess, Limits, descendants, python_argv
from kernelwright.sandbox.isolation import Level, measure

PACKAGES = ("profiles", "kernels", "sandbox", "engine")
INSIDE = Path("/srv")
READY_S = 180.0


@dataclass(frozen=True, slots=True)
class Arm:
    """What both engines of a gate share: model, pack, its built kernels, and the engine's options."""

    cage: Cage
    model: Path
    pack: Path
    cache: Path
    threads: int | None
    max_num_seqs: int = 16


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What differs between the engines of a gate."""

    patched: bool
    disable: tuple[str, ...] = ()
    """Definitions whose kernels stay off."""


@dataclass(frozen=True, slots=True)
class GateServer:
    """A caged engine that answers on a unix socket."""

    process: CagedProcess
    socket: Path
    log: Path
    isolation: Level
    isolation_facts: dict[str, str]
    ready_s: float
    """From start to healthy."""

    def client(self, timeout_s: float = 300.0) -> EngineClient:
        """Return a new client; the clock and the judge are on its side of the socket."""
        return EngineClient("http://engine", uds=self.socket, timeout_s=timeout_s)

    def stop(self) -> None:
        """Stop everything in the cage from running (SIGSTOP), so that it takes no core from who is measured."""
        self.process.stop()

    def resume(self) -> None:
        self.process.resume()

    def resident_bytes(self) -> int:
        """Return the resident memory of everything in the cage, read in /proc from outside."""
        return sum(_resident(pid) for pid in descendants(self.process.pid))


@contextlib.contextmanager
def start_engines(arm: Arm, *options: EngineOptions) -> Iterator[tuple[GateServer, ...]]:
    """Start an engine per `options`, together, each in a cage of its own; give them when all are healthy.

    They end with everything inside on the way out. Raises EngineFailed with an engine's last words when it ends or does
    not become healthy.
    """
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        folders = [stack.enter_context(_folder(arm, option)) for option in options]
        # all from this thread: a cage ends with the thread that made it
        processes = [stack.enter_context(_spawn(arm, folder)) for folder in folders]
        yield tuple(_wait(process, folder, started) for process, folder in zip(processes, folders, strict=True))


@contextlib.contextmanager
def _folder(arm: Arm, option: EngineOptions) -> Iterator[Path]:
    """Give a folder with the engine's options, a place for its socket and one for its log."""
    folder = Path(tempfile.mkdtemp(prefix="kw-gate-"))  # short: a unix socket's path has 107 bytes
    try:
        (folder / "run").mkdir(mode=0o700)
        options = ServeOptions(
            model=_inside(arm.model),
            uds=INSIDE / "run" / "s",
            packs=(INSIDE / "pack",),
            no_packs=not option.patched,
            disable=option.disable,
            threads=arm.threads,
            max_num_seqs=arm.max_num_seqs,
            shadow=0.0,  # the gate judges a kernel itself, and one that went in the middle would be half of two
        )
        (folder / "options.json").write_text(options.model_dump_json())
        folder.chmod(0o755)
        (folder / "options.json").chmod(0o644)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _inside(model: Path) -> Path:
    return INSIDE / ("model" if model.is_dir() else "model.gguf")


def _model_binds(model: Path) -> list[Bind]:
    """Return what shows the model inside: of a folder its files one by one, as they may be links out of it."""
    if not model.is_dir():
        return [Bind(model.resolve(), _inside(model))]
    return [Bind(file.resolve(), _inside(model) / file.name) for file in model_files(model)]


def _spawn(arm: Arm, folder: Path) -> CagedProcess:
    argv = python_argv("kernelwright.engine.server")
    size = model_bytes(arm.model)
    # the incumbent holds the weights dequantised to float32: up to eight bytes for each byte of a 4-bit file
    limits = Limits(
        memory_bytes=max(8 << 30, 12 * size), processes=256, cpu_seconds=None, open_files=1024, file_bytes=64 << 20
    )  # its log is a file
    with (folder / "log").open("wb") as log:
        return arm.cage.spawn(
            ["/bin/sh", "-c", 'exec "$@" < /srv/options.json', "sh", *argv],
            ro_binds=[
                *_model_binds(arm.model),
                Bind(arm.pack.resolve(), INSIDE / "pack"),
                Bind(arm.cache.resolve(), INSIDE / "cache"),
                Bind(folder / "options.json", INSIDE / "options.json"),
            ],
            rw_binds=[Bind(folder / "run", INSIDE / "run")],
            env={CACHE_VARIABLE: str(INSIDE / "cache")},
            limits=limits,
            packages=PACKAGES,
            stdout=log,
            stderr=log,
        )


def _wait(process: CagedProcess, folder: Path, started: float) -> GateServer:
    socket, log = folder / "run" / "s", folder / "log"
    client = EngineClient("http://engine", uds=socket, timeout_s=10.0)
    with client:
        while not client.is_healthy():
            if not process.alive:
                raise EngineFailed("a caged engine ended while it was loading", _tail(log))
            if time.monotonic() - started > READY_S:
                raise EngineFailed(f"a caged engine was not ready after {READY_S:.0f} s", _tail(log))
            time.sleep(0.05)
    ready_s = time.monotonic() - started
    pid = process.inner_pid()
    if pid is None:
        raise EngineFailed("a caged engine ended as soon as it was ready", _tail(log))
    level, facts = measure(pid)
    return GateServer(process, socket, log, level, facts, ready_s)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return "Its last words: " + (" | ".join(lines[-5:]) or "none")


def _resident(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0
