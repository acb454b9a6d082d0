"""Load a kernel pack: rebuild what is compiled into the cache and compare it with what was judged.

Nothing of a pack is executed here. A kernel for another CPU is skipped with the reason, a kernel whose rebuilt binary
has another digest is kept and marked `rebuilt`: its verdict is about another file. The cache is keyed by everything the
binary depends on; where it can only be read (in the gate's cage) a kernel that is not in it is skipped.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from kernelwright.engine.pack import PackedKernel, read_kernel, read_manifest
from kernelwright.kernels.build import RunCommand, build_cached, build_key, run_here
from kernelwright.kernels.isa import supports
from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.bubblewrap import Bubblewrap
from kernelwright.sandbox.builder import caged_run

if TYPE_CHECKING:
    from kernelwright.engine.dispatch import LoadedKernel

CACHE_VARIABLE = "KERNELWRIGHT_KERNEL_CACHE"


class BuiltKernel(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One kernel of a pack on this machine."""

    kernel: PackedKernel
    state: Literal["as_judged", "rebuilt", "skipped"]
    """`rebuilt`: another compiler, library or flag made another file than the one that was judged."""
    reason: str = ""
    binary: Path | None = None
    """None for a candidate that is not compiled, and when skipped."""
    digest: str | None = None


def kernel_cache() -> Path:
    """Return the folder of built kernels: `$KERNELWRIGHT_KERNEL_CACHE`, else one in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelwright" / "kernels"


def load_pack(
    path: Path, cache_dir: Path | None = None, on_progress: Callable[[str], None] | None = None
) -> list[LoadedKernel]:
    """Return the kernels of the pack at `path` that this machine can run, built; what is skipped or rebuilt is told.

    Raises BrokenInput when the pack cannot be read, EnvironmentLacks when something must be built without a compiler.
    """
    from kernelwright.engine.dispatch import LoadedKernel

    say = on_progress or (lambda text: print(f"kernelwright: {text}", file=sys.stderr, flush=True))
    loaded = []
    for built in build_pack(path, cache_dir):
        if built.state != "as_judged":
            say(f"{built.kernel.entry.folder} {built.state}: {built.reason}")
        if built.state != "skipped":
            loaded.append(LoadedKernel(built.kernel.candidate, built.binary, built.kernel.entry.ranges))
    return loaded


def build_pack(path: Path, cache_dir: Path | None = None, run: RunCommand | None = None) -> list[BuiltKernel]:
    """Build every kernel of the pack at `path` into `cache_dir` with `run` (default: `builder()`).

    Raises BrokenInput when the pack cannot be read, EnvironmentLacks without a compiler.
    """
    kernels = [read_kernel(path, entry) for entry in read_manifest(path).kernels]
    return [build_kernel(kernel, cache_dir or kernel_cache(), run) for kernel in kernels]


def build_kernel(kernel: PackedKernel, cache: Path, run: RunCommand | None = None) -> BuiltKernel:
    """Build one kernel of a pack into `cache`; what stands in its way is a state, with the reason."""
    entry = kernel.entry
    if not supports(entry.isa):
        return BuiltKernel(kernel=kernel, state="skipped", reason=f"it needs {entry.isa}, which this CPU has not")
    if kernel.candidate.language == "python":
        return BuiltKernel(kernel=kernel, state="as_judged")
    if kernel.candidate.language != "cpp":
        return BuiltKernel(kernel=kernel, state="skipped", reason=f"{kernel.candidate.language} needs a GPU")
    if not _can_build(cache) and not (cache / build_key(kernel.candidate) / "complete").exists():
        return BuiltKernel(kernel=kernel, state="skipped", reason=f"not in the cache {cache}, which cannot be written")
    result = build_cached(kernel.candidate, cache, run or builder())
    if result.binary is None:
        last = (result.log.strip().splitlines() or [result.status])[-1]
        return BuiltKernel(kernel=kernel, state="skipped", reason=f"it does not compile here: {last}")
    same = result.digest == entry.binary
    reason = "" if same else f"the binary built here is {str(result.digest)[:12]}, judged was {str(entry.binary)[:12]}"
    return BuiltKernel(
        kernel=kernel,
        state="as_judged" if same else "rebuilt",
        reason=reason,
        binary=result.binary,
        digest=result.digest,
    )


def builder() -> RunCommand:
    """Return what runs the compiler: the builder's cage where this machine can make one, else a plain subprocess.

    A compiler does not run what it compiles, but a source can make it read files (`#include "/etc/…"`).
    """
    try:
        cage = Bubblewrap()
        cage.check()
    except EnvironmentLacks:
        return run_here
    return caged_run(cage)


def _can_build(cache: Path) -> bool:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return True
    except OSError:
        return False


def main() -> int:
    """Build the pack named on the command line and print what became of each kernel, one JSON line each.

    Used where an image is built. Exit code 1 when a kernel cannot be used there.
    """
    states = build_pack(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    for built in states:
        facts = {"definition": built.kernel.entry.definition, "state": built.state, "reason": built.reason}
        print(json.dumps({**facts, "candidate": built.kernel.entry.candidate, "binary": built.digest}))
    return 1 if any(built.state == "skipped" for built in states) else 0


if __name__ == "__main__":
    sys.exit(main())
