"""Read a profiler's trace file: what it is, is told by its content, not by its name."""

from __future__ import annotations

from pathlib import Path

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.kineto import read_kineto
from kernelwright.profiles.stream import open_file


def read_trace(path: Path) -> Events:
    """Return the events of the trace at `path`, a Chrome trace of torch.profiler, packed or not.

    Raises BrokenInput when the file is missing, empty, or no trace. What of a trace is broken or cut off is left out:
    `health` says so.
    """
    with open_file(path) as file:
        try:
            return read_kineto(file)
        except BrokenInput as error:
            raise BrokenInput(f"{path}: {error.message}", error.remedy) from error
