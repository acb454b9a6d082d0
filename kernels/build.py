"""Build native candidates: the command line, the key that names its result, and the result itself.

Making the command is apart from running it, so that the sandbox runs it in its own cage: `compile_command` is run with
the candidate's sources in the working directory and writes there.
"""

from __future__ import annotations

import functools
import json
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.isa import MARCH, detect_isa
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import EnvironmentLacks

COMPILER = "g++"
BINARY = "kernel.so"
FIXED_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-ffp-contract=fast", "-fno-fast-math", "-fno-math-errno",
    "-fdiagnostics-color=never",
)  # fmt: skip
ALLOWED_FLAGS = re.compile(
    r"-O[23]|-f(no-)?(unroll-loops|tree-vectorize|tree-slp-vectorize|prefetch-loop-arrays|peel-loops|schedule-insns2?)"
    r"|-mprefer-vector-width=(128|256|512)|-mtune=[a-z0-9-]+"
)
"""Flags a candidate may declare: none changes what floating-point operations mean."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    returncode: int | None
    """None when the time limit ended it."""
    log: str


RunCommand = Callable[[Sequence[str], Path, float], CommandResult]
"""(command, working directory, seconds) → result. The sandbox gives one that runs in the builder's cage."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    status: Literal["PASSED", "COMPILE_ERROR", "TIMEOUT"]
    binary: Path | None
    digest: str | None
    """SHA-256 of the shared object."""
    log: str
    seconds: float


def include_paths() -> tuple[Path, ...]:
    """Return the folders with `kernelwright.h` and the C headers of TVM-FFI; a builder's cage must show them."""
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    paths = (Path(__file__).resolve().parent / "include", Path(find_include_path()), Path(find_dlpack_include_path()))
    return tuple(dict.fromkeys(paths))


def resolve_isa(candidate: Candidate, isa: str | None = None) -> str:
    """Return the level to compile for: `isa`, else the candidate's, else (for `any`) this host's."""
    wanted = isa or candidate.isa
    return detect_isa() if wanted == "any" else wanted


def compile_command(candidate: Candidate, out: Path, isa: str | None = None) -> list[str]:
    """Return the compiler call that makes `out` from the candidate's first source, relative to the working directory.

    Raises ValueError on a flag outside the allow-list or on a candidate that is not cpp.
    """
    if candidate.language != "cpp":
        raise ValueError(f"only cpp candidates are compiled here, not {candidate.language}")
    refused = [flag for flag in candidate.compile_flags if not ALLOWED_FLAGS.fullmatch(flag)]
    if refused:
        raise ValueError(f"compile flags outside the allow-list: {' '.join(refused)}")
    level = resolve_isa(candidate, isa)
    march = [f"-march={MARCH[level]}"] if level in MARCH else []
    includes = [f"-I{path}" for path in include_paths()]
    return [
        COMPILER, *FIXED_FLAGS, *march, *candidate.compile_flags, *includes, candidate.sources[0].path, "-o", str(out),
    ]  # fmt: skip


@functools.cache
def compiler_version() -> str:
    """Return the first line of `g++ --version`. Raises EnvironmentLacks when there is no compiler."""
    path = shutil.which(COMPILER)
    if path is None:
        raise EnvironmentLacks("no C++ compiler: g++ was not found on PATH", "install it: apt-get install g++")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def build_key(candidate: Candidate, isa: str | None = None) -> str:
    """Return the SHA-256 over what the binary depends on: sources, headers, compiler, flags, torch, tvm-ffi, libc."""
    own_headers = {path.name: digest_bytes(path.read_bytes()) for path in sorted(include_paths()[0].glob("*.h"))}
    parts = {
        "candidate": digest_of(candidate),
        "isa": resolve_isa(candidate, isa),
        "flags": [*FIXED_FLAGS, *candidate.compile_flags],
        "headers": own_headers,
        "compiler": compiler_version(),
        "torch": version("torch"),
        "tvm_ffi": version("apache-tvm-ffi"),
        "libc": " ".join(platform.libc_ver()),
    }
    return digest_bytes(json.dumps(parts, sort_keys=True).encode())


def run_here(command: Sequence[str], workdir: Path, seconds: float) -> CommandResult:
    """Run `command` in `workdir` as a plain subprocess, for sources that are trusted."""
    try:
        done = subprocess.run(command, cwd=workdir, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return CommandResult(None, f"stopped after {seconds:.0f} s")
    return CommandResult(done.returncode, done.stdout + done.stderr)


def write_sources(candidate: Candidate, workdir: Path) -> None:
    """Write the candidate's source files under `workdir`, which is made."""
    for source in candidate.sources:
        path = workdir / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content)


def build_native(
    candidate: Candidate,
    workdir: Path,
    run: RunCommand = run_here,
    isa: str | None = None,
    seconds: float = 120.0,
) -> BuildResult:
    """Build `candidate` in `workdir`; what it did wrong is a status.

    Raises EnvironmentLacks without a compiler.
    """
    compiler_version()
    write_sources(candidate, workdir)
    start = time.monotonic()
    try:
        command = compile_command(candidate, Path(BINARY), isa)
    except ValueError as refusal:
        return BuildResult("COMPILE_ERROR", None, None, str(refusal), 0.0)
    done = run(command, workdir, seconds)
    elapsed = time.monotonic() - start
    if done.returncode is None:
        return BuildResult("TIMEOUT", None, None, done.log, elapsed)
    binary = workdir / BINARY
    if done.returncode != 0 or not binary.is_file():
        return BuildResult("COMPILE_ERROR", None, None, done.log, elapsed)
    return BuildResult("PASSED", binary, digest_bytes(binary.read_bytes()), done.log, elapsed)


def build_cached(
    candidate: Candidate, cache: Path, run: RunCommand = run_here, isa: str | None = None, seconds: float = 120.0
) -> BuildResult:
    """Return the build of `candidate` kept under `cache`/<build key>, building it when it is not there.

    Only builds that passed are kept, and a kept binary is read again for its digest.
    """
    folder = cache / build_key(candidate, isa)
    binary = folder / BINARY
    if (folder / "complete").is_file() and binary.is_file():
        return BuildResult("PASSED", binary, digest_bytes(binary.read_bytes()), "", 0.0)
    result = build_native(candidate, folder, run, isa, seconds)
    if result.status == "PASSED":
        (folder / "complete").touch()
    return result
