"""Capture workloads: the real inputs of the slots while the incumbent engine serves a request mix.

    python -m kernelwright.engine.capture --model FILE.gguf --mix chat --out FOLDER [--seed 0]

Writes `index.json` and one safetensors file per captured call: the inputs that are not weights (those come from the
model file) and numbers under "scalars" in the index. Page caches of attention slots are cut down to the pages in use
and the block tables renumbered, so that a workload is small and holds nothing of other requests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.mix import Mix, read_mix
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.weights import find_default_model
from kernelwright.profiles.errors import BrokenInput, KernelwrightError
from kernelwright.profiles.profile import Phase

if TYPE_CHECKING:
    from kernelwright.engine.decoder import Call
    from kernelwright.engine.dispatch import CallSite
    from kernelwright.kernels.load import BoundSlot


@dataclass(frozen=True, slots=True)
class CapturedWorkload:
    """One captured call: where its tensors are, and the values of the definition's varying axes."""

    uuid: str
    phase: Phase
    axes: dict[str, int]
    layer: int
    path: Path
    keys: dict[str, str]
    """Input name → key in the safetensors file."""
    scalars: dict[str, float | int]


Bucket = tuple[str, str]
"""(definition, one of "decode 1" (one sequence), "decode" (more than one), "prefill")."""
DECODE_SEQS = 8


class Recorder:
    """Wraps slot calls and keeps a few input sets per definition and bucket, spread over layers and steps."""

    def __init__(self, definitions: Collection[str] | None, limit: int, seed: int) -> None:
        self._definitions = definitions
        self._limit = limit
        self._random = random.Random(seed)
        self._seen: dict[Bucket, int] = {}
        self.kept: dict[Bucket, list[tuple[CallSite, dict[str, Any]]]] = {}

    def wrap(self, site: CallSite, bound: BoundSlot) -> Call:
        """Return `bound`, recorded before each call: caches are written in place by it."""
        name = site.definition.name
        if self._definitions is not None and name not in self._definitions:
            return bound.call
        bucket = (name, "decode 1" if site.phase == "decode" and site.tokens == 1 else site.phase)

        def recorded(*inputs: Any) -> tuple[torch.Tensor, ...]:
            self._offer(bucket, site, bound.names, inputs)
            return bound.call(*inputs)

        return recorded

    def _offer(self, bucket: Bucket, site: CallSite, names: tuple[str, ...], inputs: tuple[Any, ...]) -> None:
        # reservoir sampling: every call of the run is equally likely to be among the kept
        seen = self._seen[bucket] = self._seen.get(bucket, 0) + 1
        kept = self.kept.setdefault(bucket, [])
        place = len(kept) if len(kept) < self._limit else self._random.randrange(seen)
        if place < self._limit:
            taken = compact(dict(zip(names, inputs, strict=True)))
            kept[place : place + 1] = [(site, taken)]


def compact(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return copies of `inputs`, the page caches cut down to the pages that this call reads or writes."""
    copies = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    if "k_cache" not in inputs:
        return copies
    page_size = inputs["k_cache"].shape[1]
    used = torch.zeros(0, dtype=torch.int64)
    if "block_table" in inputs:
        lengths = inputs["context_lens"].tolist()
        rows = [row[: -(-n // page_size)] for row, n in zip(inputs["block_table"], lengths, strict=True)]
        used = torch.cat(rows).long()
    if "slot_mapping" in inputs:
        used = torch.cat([used, inputs["slot_mapping"] // page_size])
    pages = torch.unique(used)
    number = torch.zeros(inputs["k_cache"].shape[0], dtype=torch.int64)
    number[pages] = torch.arange(len(pages))
    for name in ("k_cache", "v_cache"):
        copies[name] = inputs[name][pages]
    if "slot_mapping" in inputs:
        slots = inputs["slot_mapping"]
        copies["slot_mapping"] = number[slots // page_size] * page_size + slots % page_size
    if "block_table" in inputs:
        table = number[inputs["block_table"].long()].to(torch.int32)
        for row, n in zip(table, inputs["context_lens"].tolist(), strict=True):
            row[-(-n // page_size) :] = 0
        copies["block_table"] = table
    return copies


def capture_workloads(
    model_path: Path,
    mix: Mix | str | Path,
    out_dir: Path,
    definitions: Collection[str] | None = None,
    limit: int = 4,
    seed: int = 0,
    threads: int | None = None,
) -> Path:
    """Serve `mix` with the incumbent engine and write what the slots were given; return the path of `index.json`.

    `limit` input sets are kept per definition and bucket (decode at one sequence, decode together, prefill);
    `definitions` None keeps all. Index: definition → list of {phase, axes, layer, path, tensors, scalars}; tensor names
    are keys of the safetensors file. Raises as LLMEngine and `read_mix` do, OSError when `out_dir` cannot be written.
    """
    mix = mix if isinstance(mix, Mix) else read_mix(mix)
    engine = LLMEngine(model_path, threads=threads, max_num_seqs=DECODE_SEQS)
    recorder = Recorder(definitions, limit, seed)
    engine.set_wrap(recorder.wrap)
    # the first half alone, for decode at one sequence; the rest together
    half = len(mix.requests) // 2
    for group in [*([request] for request in mix.requests[:half]), mix.requests[half:]]:
        _serve(engine, group)
    return _write(recorder, out_dir)


def _serve(engine: LLMEngine, requests: Iterable[Any]) -> None:
    for index, request in enumerate(requests):
        ids = engine.tokenizer.encode_chat([{"role": "user", "content": request.prompt}])
        room = engine.max_model_len - request.max_tokens
        engine.add_request(str(index), ids[:room], SamplingParams(max_tokens=request.max_tokens, ignore_eos=True))
    while engine.has_work():
        engine.step()


def _write(recorder: Recorder, out_dir: Path) -> Path:
    from safetensors.torch import save_file

    out_dir.mkdir(parents=True, exist_ok=True)
    index: dict[str, list[dict[str, Any]]] = {}
    for name in sorted({name for name, _ in recorder.kept}):
        entries = index[name] = []
        for site, inputs in _ordered(recorder, name):
            tensors = {key: v.contiguous() for key, v in inputs.items() if isinstance(v, torch.Tensor)}
            path = f"{name}-{len(entries)}.safetensors"
            save_file(tensors, out_dir / path)
            entries.append(
                {
                    "phase": site.phase,
                    "axes": axes_of(site, inputs),
                    "layer": site.layer,
                    "path": path,
                    "tensors": sorted(tensors),
                    "scalars": {key: v for key, v in inputs.items() if not isinstance(v, torch.Tensor)},
                }
            )
    target = out_dir / "index.json"
    partial = out_dir / ".index.json"
    partial.write_text(json.dumps(index, indent=1))
    os.replace(partial, target)
    return target


def _ordered(recorder: Recorder, name: str) -> list[tuple[CallSite, dict[str, Any]]]:
    """Return what was kept of `name`: decode at one sequence and together in turn, then prefill."""
    alone, together, prefill = (recorder.kept.get((name, bucket), []) for bucket in ("decode 1", "decode", "prefill"))
    turns = [one for pair in zip_longest(alone, together) for one in pair if one is not None]
    return [*turns, *prefill]


def read_captures(folder: Path) -> dict[str, list[CapturedWorkload]]:
    """Return what `capture_workloads` wrote to `folder`, by definition. Raises BrokenInput when there is no index."""
    folder = Path(folder)
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenInput(f"{folder} holds no captured workloads: {error}", "Capture them again") from error
    return {
        name: [
            CapturedWorkload(
                uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"kernelwright/{entry['path']}")),
                phase=entry["phase"],
                axes=entry["axes"],
                layer=entry["layer"],
                path=(folder / entry["path"]).resolve(),
                keys={tensor: tensor for tensor in entry["tensors"]},
                scalars=entry["scalars"],
            )
            for entry in entries
        ]
        for name, entries in index.items()
    }


def capture_apart(
    model_path: Path, mix: Mix, out_dir: Path, limit: int = 4, seed: int = 0
) -> dict[str, list[CapturedWorkload]]:
    """Run `capture_workloads` in a process of its own, whose memory is free again afterwards, and read what it wrote.

    Raises KernelwrightError with what that process said when it fails.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    mix_file = out_dir / "mix.json"
    mix_file.write_text(mix.model_dump_json(indent=1), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "kernelwright.engine.capture", "--model", str(model_path)]
    command += ["--mix", str(mix_file), "--out", str(out_dir), "--limit", str(limit), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise KernelwrightError(f"capturing workloads failed: {said}", "See `kernelwright doctor`")
    return read_captures(out_dir)


def axes_of(site: CallSite, inputs: dict[str, Any]) -> dict[str, int]:
    """Return the values of the definition's varying axes that the inputs show."""
    definition, axes = site.definition, {}
    for name, value in inputs.items():
        for position, axis in enumerate(definition.inputs[name].shape or ()):
            if definition.axes[axis].value is None:
                axes[axis] = value.shape[position]
    return axes


def main(arguments: list[str]) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kernelwright.engine.capture", description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--mix", default="chat")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=4)
    options = parser.parse_args(arguments)
    try:
        model = options.model or find_default_model(lambda text: print(text, file=sys.stderr))
        print(capture_workloads(model, options.mix, options.out, limit=options.limit, seed=options.seed))
    except KernelwrightError as error:
        print(f"kernelwright: {error.message}. {error.remedy}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
