"""The builder: a candidate's compiler runs in a cage of its own, without network, seeds, inputs or anybody's files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelwright.kernels.build import BuildResult, CommandResult, RunCommand, build_cached, include_paths
from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.cage import Bind, Cage, Limits
from kernelwright.sandbox.log import Log

BUILD_LIMITS = Limits(memory_bytes=3 << 30, processes=32, cpu_seconds=180, file_bytes=64 << 20)
BUILD_SECONDS = 120.0
LOG_BYTES = 16_000


def build_caged(candidate: Candidate, cache: Path, cage: Cage, isa: str | None = None) -> BuildResult:
    """Build `candidate` under `cache` with the compiler in `cage`; a bad candidate is a status in the result."""
    cache.mkdir(parents=True, exist_ok=True)
    return build_cached(candidate, cache, run=caged_run(cage), isa=isa, seconds=BUILD_SECONDS)


def caged_run(cage: Cage, limits: Limits = BUILD_LIMITS) -> RunCommand:
    """Return a RunCommand that runs in `cage` with only the working directory writable."""

    def run(command: Sequence[str], workdir: Path, seconds: float) -> CommandResult:
        workdir = workdir.resolve()
        headers = [Bind(path.resolve(), path.absolute()) for path in include_paths()]
        # the headers of the interpreter's own environment are shown with it already
        shown = [bind for bind in headers if not bind.destination.is_relative_to(sys.prefix)]
        with Log() as log:
            process = cage.spawn(
                ["/usr/bin/env", "-C", str(workdir), *command],
                ro_binds=shown, rw_binds=[Bind(workdir, workdir)], limits=limits,
                stdout=log.writer, stderr=subprocess.STDOUT,
            )  # fmt: skip
            log.started()
            with process:
                try:
                    code: int | None = process.wait(seconds)
                except subprocess.TimeoutExpired:
                    code = None
            _take_back(workdir)
            text = log.text(LOG_BYTES)
        return CommandResult(code, text if code is not None else f"stopped after {seconds:.0f} s\n{text}")

    return run


def _take_back(workdir: Path) -> None:
    """Give the working directory back to us: the cage's user owned it while the compiler ran."""
    if os.geteuid() == 0:
        os.chown(workdir, 0, os.getegid())
    for path in workdir.iterdir():
        if path.is_symlink():
            path.unlink()
