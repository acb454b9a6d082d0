"""Profile a model on its own: start the incumbent engine, profile it at work, stop it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelwright.agent.observe import profile_engine
from kernelwright.engine.checkpoint import model_bytes
from kernelwright.engine.mix import read_mix
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.profiles.ceilings import measure_ceilings
from kernelwright.profiles.profile import Profile

MAX_MODEL_LEN = 2048


def profile_model(model: Path, mix: str, threads: int) -> Profile:
    """Return the Profile of `model` served with `threads` threads under the request mix named `mix`."""
    from kernelwright.engine.client import ServerProcess
    from kernelwright.engine.server import ServeOptions

    requests, slots = read_mix(mix), ModelSlots(model, MAX_MODEL_LEN)
    with tempfile.TemporaryDirectory(prefix="kernelwright-profile-") as folder:
        options = ServeOptions(
            model=model, port=0, threads=threads, max_model_len=MAX_MODEL_LEN, profile_dir=Path(folder), no_packs=True
        )
        with ServerProcess.start(options) as server:
            server.wait_until_healthy()
            ceilings = measure_ceilings(threads, model_bytes(model))
            return profile_engine(server.client(), slots, requests, ceilings, None, seed=0)
