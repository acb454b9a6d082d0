"""Sanitizer: one run of a C++ candidate under ThreadSanitizer and one under AddressSanitizer, on inputs it is given.

The candidate is compiled with a driver of ours and with OpenMP made of plain pthreads (`sanitizer_openmp.cpp`), so that
every synchronisation can be seen. What is found is believed, for a candidate can only hurt itself with it; `clean` is
the absence of evidence and never more, for the candidate runs in the very process that reports.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kernelwright.kernels.build import ALLOWED_FLAGS, COMPILER, RunCommand, include_paths, resolve_isa, write_sources
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import DTYPES, Definition, SlotContract
from kernelwright.kernels.isa import MARCH
from kernelwright.sandbox.builder import LOG_BYTES, caged_run
from kernelwright.sandbox.cage import Bind, Cage, Limits

if TYPE_CHECKING:
    import torch

Found = Literal["clean", "race", "memory", "unavailable", "failed"]
CALLS = 3
FOUND = 66
"""Exit status of a program in which a sanitizer has found something."""
DONE = "calls done"
LIMITS = Limits(
    memory_bytes=4 << 30, processes=96, cpu_seconds=240, file_bytes=1 << 20, sanitized=True, fixed_addresses=True
)
# only what reads or writes where it must not: an unaligned load or a shift too far is no reason to refuse a kernel
TOOLS: dict[str, tuple[str, ...]] = {
    "ThreadSanitizer": ("-fsanitize=thread", "-Wl,--wrap=__tsan_atomic_thread_fence"),
    "AddressSanitizer": ("-fsanitize=address,bounds,null,return,unreachable", "-fno-sanitize-recover=all"),
}
LEVELS = {"ThreadSanitizer": ("-O1",), "AddressSanitizer": ("-O0", "-O1")}
"""Tried in turn until one compiles: -O0 compiles large kernels some ten times sooner under AddressSanitizer, but an
intrinsic that wants a constant may need -O1 to get one."""
FOUND_BY: dict[str, Found] = {"ThreadSanitizer": "race", "AddressSanitizer": "memory"}
_FLAGS = ("-std=c++17", "-g1", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fdiagnostics-color=never")
_OPTIONS = {
    "TSAN_OPTIONS": f"exitcode={FOUND}:halt_on_error=1:report_signal_unsafe=0:report_thread_leaks=0:die_after_fork=0",
    "ASAN_OPTIONS": f"exitcode={FOUND}:detect_leaks=0:allocator_may_return_null=1",
}
_DLPACK_CODES = {"float": 2, "bfloat": 4, "int": 0, "bool": 6}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("sanitizer_driver.cpp", "sanitizer_openmp.cpp", "sanitizer_locks.cpp")


@dataclass(frozen=True, slots=True)
class Sanitized:
    """What the sanitizers found. `failed`: it could not be built or did not come to its end, and none of them spoke."""

    status: Found
    tool: str
    """Which sanitizer the status is of; '' for `clean` by all of them."""
    log: str
    """The end of what was printed, bounded: diagnostics."""


def find_races(
    candidate: Candidate,
    definition: Definition,
    contract: SlotContract,
    tensors: Mapping[str, torch.Tensor | float],
    weights: Mapping[str, torch.Tensor],
    *,
    cage: Cage,
    cache: Path,
    threads: int = 4,
    seconds: float = 120.0,
) -> Sanitized:
    """Build a cpp `candidate` under each sanitizer, call it CALLS times with `threads` threads, and say what was found.

    `tensors` are the inputs of one call that are not weights, `weights` one weight set, both by name as the definition
    shapes them. Builds and runs happen in `cage` below `cache`; `seconds` bounds each of them. `unavailable`: another
    language, or no sanitizer on this host; an OpenMP construct that is not modelled is `failed`, as it is of the
    candidate's choosing.
    """
    if candidate.language != "cpp":
        return Sanitized("unavailable", "", f"no sanitizer for {candidate.language} candidates")
    if shutil.which(COMPILER) is None:
        return Sanitized("unavailable", "", f"{COMPILER} was not found on PATH")
    names = [candidate.entry_point, *([candidate.prepare] if candidate.prepare else [])]
    if not all(_IDENTIFIER.fullmatch(name) for name in names):
        return Sanitized("failed", "", f"not names of C functions: {', '.join(names)}")
    job = write_job(candidate, definition, contract, tensors, weights, threads)
    cache.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        with tempfile.TemporaryDirectory(dir=cache, prefix="sanitizer-") as folder:
            found = _try_tool(tool, candidate, job, Path(folder).resolve(), cage, seconds)
        if found.status != "clean":
            return found
    return Sanitized("clean", "", "")


def _try_tool(tool: str, candidate: Candidate, job: bytes, folder: Path, cage: Cage, seconds: float) -> Sanitized:
    built = _build(tool, candidate, folder, caged_run(cage), seconds)
    if built is not None:
        return built
    folder.chmod(0o755)  # it may be shown to the user that the cage drops to
    (folder / "job").write_bytes(job)
    code, log = _run(folder, cage, seconds)
    if code == FOUND:
        return Sanitized(FOUND_BY[tool], tool, log)
    if code != 0 or not log.rstrip().endswith(DONE):
        how = f"did not end in {seconds:.0f} s" if code is None else f"ended with status {code}"
        return Sanitized("failed", tool, f"it {how}\n{log}")
    return Sanitized("clean", tool, log)


def sanitizer_command(tool: str, candidate: Candidate, level: str) -> list[str]:
    """Return the compiler call that makes `./program` in the working directory at `level` of optimisation.

    Raises ValueError on a flag outside the allow-list.
    """
    refused = [flag for flag in candidate.compile_flags if not ALLOWED_FLAGS.fullmatch(flag)]
    if refused:
        raise ValueError(f"compile flags outside the allow-list: {' '.join(refused)}")
    isa = resolve_isa(candidate)
    symbols = {"RUN": candidate.entry_point, **({"PREPARE": candidate.prepare} if candidate.prepare else {})}
    flags = [
        *_FLAGS,
        level,
        *TOOLS[tool],
        *([f"-march={MARCH[isa]}"] if isa in MARCH else []),
        *(f"-DKW_SYMBOL_{key}=__tvm_ffi_{name}" for key, name in symbols.items()),
        *(f"-I{path}" for path in include_paths()),
    ]
    sources = [candidate.sources[0].path, *_OURS]
    # linked without -fopenmp, whose libgomp ours stands in for
    objects = [f"{number}.o" for number in range(len(sources))]
    compiles = [[COMPILER, *flags, "-c", s, "-o", o] for s, o in zip(sources, objects, strict=True)]
    link = [COMPILER, *TOOLS[tool], *objects, "-lpthread", "-o", "program"]
    lines = [*(" ".join(map(_quote, c)) + ' & pids="$pids $!"' for c in compiles)]
    lines += ['for pid in $pids; do wait "$pid" || exit 1; done', " ".join(map(_quote, link))]
    return ["/bin/sh", "-c", "\n".join(lines)]


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _build(tool: str, candidate: Candidate, folder: Path, run: RunCommand, seconds: float) -> Sanitized | None:
    write_sources(candidate, folder)
    for name in _OURS:
        shutil.copy(Path(__file__).with_name(name), folder / name)
    for level in LEVELS[tool]:
        try:
            command = sanitizer_command(tool, candidate, level)
        except ValueError as refusal:
            return Sanitized("failed", tool, str(refusal))
        done = run(command, folder, seconds)
        program = folder / "program"
        if done.returncode == 0 and program.is_file() and not program.is_symlink():
            program.chmod(0o755)
            return None
    missing = re.search(r"cannot find .*lib[at]san", done.log)
    return Sanitized("unavailable" if missing else "failed", tool, done.log[-LOG_BYTES:])


def _run(folder: Path, cage: Cage, seconds: float) -> tuple[int | None, str]:
    with tempfile.TemporaryFile() as output:
        process = cage.spawn(
            [str(folder / "program"), str(folder / "job")], ro_binds=[Bind(folder, folder)], env=_OPTIONS,
            limits=LIMITS, packages=(), stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with process:
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
        size = os.fstat(output.fileno()).st_size
        return code, os.pread(output.fileno(), LOG_BYTES, max(0, size - LOG_BYTES)).decode(errors="replace")


def write_job(
    candidate: Candidate,
    definition: Definition,
    contract: SlotContract,
    tensors: Mapping[str, torch.Tensor | float],
    weights: Mapping[str, torch.Tensor],
    threads: int,
) -> bytes:
    """Return the driver's job file: inputs, packed buffers (zeros) and outputs (NaNs), and who gets which.

    Format: see sanitizer_driver.cpp. Raises KeyError on a missing input.
    """
    import torch

    values: dict[str, torch.Tensor | float] = {}
    for name in definition.inputs:
        values[name] = weights[name] if name in contract.weights else tensors[name]
    axes = {
        axis: size
        for name, spec in definition.inputs.items()
        for axis, size in zip(spec.shape or (), getattr(values[name], "shape", ()), strict=True)
    }
    own = [name for name in definition.inputs if name in contract.weights]
    fresh = {f"packed {t.name}": t for t in candidate.packed if t.name not in own}
    values |= {key: torch.zeros(t.shape, dtype=getattr(torch, t.dtype)) for key, t in fresh.items()}
    outputs = [name for name in definition.outputs if name not in contract.aliases]
    for name in outputs:
        dtype = getattr(torch, definition.outputs[name].dtype)
        empty = torch.empty(definition.shape_of(name, axes), dtype=dtype)
        values[name] = empty.fill_(float("nan") if dtype.is_floating_point else 0)
    if candidate.prepare:
        constants = [t.name if t.name in own else f"packed {t.name}" for t in candidate.packed]
        given = [name for name in definition.inputs if name not in own] + constants
    else:
        given = list(definition.inputs)
    order = list(values)
    parts = [b"KWJOB001", struct.pack("<3q", threads, CALLS, len(order))]
    parts += [_describe(values[name], _is_integer(definition, name)) for name in order]
    for arguments in ([*own, *fresh], [*given, *outputs]):
        parts.append(struct.pack(f"<{1 + len(arguments)}q", len(arguments), *map(order.index, arguments)))
    return b"".join(parts)


def _is_integer(definition: Definition, name: str) -> bool:
    return name in definition.inputs and definition.inputs[name].dtype.startswith("int")


def _describe(value: torch.Tensor | float, integer: bool) -> bytes:
    import torch

    if not isinstance(value, torch.Tensor):
        return struct.pack("<qq", 2, int(value)) if integer else struct.pack("<qd", 1, float(value))
    dtype = str(value.dtype).removeprefix("torch.")
    code = _DLPACK_CODES[dtype.rstrip("0123456789")]
    content = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    head = struct.pack(f"<{5 + value.ndim}q", 0, code, 8 * DTYPES[dtype], value.ndim, *value.shape, len(content))
    return head + content
