"""Where kernels come from, against traces whose maker knows it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kernelwright.profiles.device_time import sound_kernels
from kernelwright.profiles.events import Events, Integers
from kernelwright.profiles.origin import Origin, is_source, trace_back
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.trace import read_trace
from tests.profiles.test_answers import SHARED

MAKER = SHARED / "tools" / "make_trace.py"
needs_maker = pytest.mark.skipif(not MAKER.is_file(), reason="no maker of traces here; set KERNELWRIGHT_SHARED")


def make(folder: Path, *options: str) -> tuple[Events, dict[str, dict[str, list[int]]]]:
    path = folder / "made.json"
    subprocess.run([sys.executable, MAKER, path, "--events", "12000", *options], check=True, capture_output=True)
    return read_trace(path), json.loads(path.with_name("made.json.truth.json").read_text())


def add_up(keys: list[str], ns: Integers) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for key, value in zip(keys, ns.tolist(), strict=True):
        sums[key][0] += 1
        sums[key][1] += value
    return dict(sums)


def frames_of(trace: Events, rows: Integers) -> list[str]:
    return [trace.pool.names[trace.frames.name[row]] if row >= 0 else "" for row in rows]


def by_module(sums: dict[str, list[int]]) -> dict[str, list[int]]:
    """The maker calls `nn.Module: qkv_proj_3` what its truth calls LlamaAttention.qkv_proj."""
    short: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for key, (count, ns) in sums.items():
        name = key.removeprefix("nn.Module: ").rpartition(".")[2].rstrip("0123456789").rstrip("_")
        short[name][0] += count
        short[name][1] += ns
    return dict(short)


@needs_maker
@pytest.mark.parametrize("options", [(), ("--py-noise", "0"), ("--defect", "dup-corr"), ("--defect", "unordered")])
@pytest.mark.parametrize("seed", [11, 12])
def test_frames_modules_and_phases_are_those_of_the_maker(tmp_path: Path, options: tuple[str, ...], seed: int) -> None:
    trace, right = make(tmp_path, "--seed", str(seed), *options)
    kernels = np.flatnonzero(sound_kernels(trace))
    origin, ns = trace_back(trace, kernels), trace.dur[kernels]
    assert add_up(frames_of(trace, origin.frame), ns) == right["per_frame"]
    assert np.array_equal(origin.source, origin.frame), "all frames are the engine's"
    assert by_module(add_up(frames_of(trace, origin.module), ns)) == by_module(right["per_module"])
    assert add_up(phases_of(trace, origin), ns) == right["per_phase"]


def phases_of(trace: Events, origin: Origin) -> list[str]:
    steps = [parse_step(trace.pool.names[trace.name[row]]) if row >= 0 else None for row in origin.step]
    return [step.phase if step else "" for step in steps]


@needs_maker
def test_replayed_kernels_have_the_phase_of_their_replay_and_no_frame(tmp_path: Path) -> None:
    trace, right = make(tmp_path, "--graph-decode", "--seed", "3")
    kernels = np.flatnonzero(sound_kernels(trace))
    origin = trace_back(trace, kernels)
    assert add_up(phases_of(trace, origin), trace.dur[kernels]) == right["per_phase"]
    replayed = trace.graph[kernels] != 0
    assert replayed.sum() == right["graph_kernels"] and np.all(origin.frame[replayed] < 0)


@needs_maker
def test_a_kernel_without_a_correlation_has_no_origin(tmp_path: Path) -> None:
    trace, _ = make(tmp_path, "--defect", "missing-corr")
    kernels = np.flatnonzero(sound_kernels(trace))
    origin = trace_back(trace, kernels)
    assert np.array_equal(origin.launch < 0, trace.correlation[kernels] == 0) and (origin.launch < 0).any()


@pytest.mark.parametrize(
    ("frame", "source"),
    [
        ("vllm/model_executor/layers/linear.py(229): apply", True),
        ("/opt/venv/lib/python3.12/site-packages/sglang/srt/layers/moe.py(10): forward", True),
        ("kernelwright/engine/model.py(12): step", True),
        ("torch/_ops.py(840): __call__", False),
        ("/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py(653): run", False),
        ("/usr/lib/python3.11/threading.py(982): run", False),
        ("benchmarks/latency.py(31): main", False),
        ("bench_serving.py(31): run_once", False),
        ("tests/test_model.py(31): test_it", False),
        ("sglang/srt/utils/kernel_shape_profiler.py(302): impl", False),
        ("/tmp/torchinductor_root/od/codwfmx.py(232): call", False),
        ("vllm/model_executor/parameter.py(122): __torch_function__", False),
        ("aiter/ops/triton/attention/unified_attention.py(103): unified_attention", False),
    ],
)
def test_harness_and_libraries_are_no_source(frame: str, source: bool) -> None:
    assert is_source(frame) is source
