"""Captured workloads: what the slots were really given, recorded by the incumbent engine in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from kernelwright.engine.mix import Mix
from kernelwright.kernels.definition import ScalarInput, StoredInput, Workload, WorkloadInput
from kernelwright.profiles.errors import BrokenInput, KernelwrightError


class Captured(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One recorded call of a slot."""

    phase: Literal["decode", "prefill"]
    axes: dict[str, int]
    layer: int
    path: Path
    tensors: tuple[str, ...]
    scalars: dict[str, float] = {}

    def workload(self) -> Workload:
        """Return it as a Workload whose tensors stay in their safetensors file."""
        inputs: dict[str, WorkloadInput] = {n: StoredInput(path=str(self.path), tensor_key=n) for n in self.tensors}
        inputs |= {name: ScalarInput(value=value) for name, value in self.scalars.items()}
        return Workload(uuid=self.path.stem, axes=self.axes, inputs=inputs)


def capture_apart(model: Path, mix: Mix, folder: Path, limit: int, seed: int) -> dict[str, int]:
    """Serve `mix` in a process of its own, keep `limit` calls per slot and bucket; return how many by definition.

    A process of its own, because the engine's memory must be gone before anything is timed. Raises KernelwrightError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mix_file = folder / "mix.json"
    mix_file.write_text(mix.model_dump_json(), encoding="utf-8")
    command = [
        sys.executable, "-P", "-m", "kernelwright.engine.capture", "--model", str(model), "--mix", str(mix_file),
        "--out", str(folder), "--limit", str(limit), "--seed", str(seed),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise KernelwrightError(f"capturing workloads failed: {reason}", f"Run it by hand: {' '.join(command)}")
    return {name: len(items) for name, items in read_captures(folder).items()}


def read_captures(folder: Path) -> dict[str, list[Captured]]:
    """Return the captured calls by definition, with absolute paths. Raises BrokenInput."""
    path = folder / "index.json"
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: [Captured.model_validate({**item, "path": (folder / item["path"]).absolute()}) for item in items]
            for name, items in index.items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{path} is no index of captures: {error}", "Run the session again.") from error
