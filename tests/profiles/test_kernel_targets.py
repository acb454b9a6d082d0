"""Ranking: what others lost is not lost here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.devices import Device
from kernelwright.profiles.summary import TraceSummary, summarise
from kernelwright.profiles.trace import read_trace

BF16 = "c10::BFloat16"
AR = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    pid = 0 if cat == "kernel" else 1
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": args}


def summarised(
    folder: Path, *kernels: tuple[str, float, str | None, str], device: str = "NVIDIA H100 80GB HBM3"
) -> TraceSummary:
    """Summarise kernels (name, us, shapes of the mm that launches it, frame around it)."""
    events, at = [], 0.0
    for i, (name, us, shapes, frame) in enumerate(kernels, 1):
        start = 10.0 * i
        if frame:
            events.append(event("python_function", frame, start - 2, 8))
        if shapes:
            dims = json.loads(shapes)
            events.append(event("cpu_op", "aten::mm", start - 1, 6, **{"Input Dims": dims, "Input type": [BF16, BF16]}))
        events.append(event("cuda_runtime", "cudaLaunchKernel", start, 1, correlation=i))
        events.append(event("kernel", name, 10_000 + at, us, correlation=i, stream=7))
        at += us
    path = folder / "t.json"
    path.write_text(json.dumps({"deviceProperties": [{"name": device}], "traceEvents": events}))
    return summarise(read_trace(path))


def least_us(m: int, n: int, k: int) -> float:
    return max(2 * m * n * k / 989.5e12, 2 * (m * k + k * n + m * n) / 3352e9) * 1e6


def test_a_kernel_of_no_known_family_that_takes_most_ranks_first(tmp_path: Path) -> None:
    summary = summarised(tmp_path, ("mystery", 67, None, ""), ("ampere_sgemm_128x64_tn", 33, None, "vllm/a.py(1): f"))
    assert [t.name for t in summary.targets] == ["mystery", "ampere_sgemm_128x64_tn"]
    assert summary.families[0].operation == "other" and summary.targets[0].excluded is None


def test_headroom_counts_not_share_alone(tmp_path: Path) -> None:
    """30 % of the time at 95 % of the roofline is worth less than 15 % at 20 %."""
    big, small = "[[4096, 4096], [4096, 4096]]", "[[1024, 4096], [4096, 1024]]"
    one, two = least_us(4096, 4096, 4096) / 0.95, least_us(1024, 1024, 4096) / 0.20
    scale = two * 2 / one  # so many calls of the second kind that the first takes twice as long in all
    kernels = [("near_the_roof", one, big, "vllm/a.py(1): f")]
    kernels += [("far_from_it", two, small, "vllm/a.py(2): g")] * max(round(1 / scale), 1)
    rest = one / 0.30 - sum(us for _, us, _, _ in kernels)
    summary = summarised(tmp_path, *kernels, (AR, max(rest, 1.0), None, ""))
    ranked = [t.name for t in summary.targets]
    assert ranked.index("far_from_it") < ranked.index("near_the_roof")
    near = next(t for t in summary.targets if t.name == "near_the_roof")
    assert near.headroom == pytest.approx(1 / 0.95, rel=1e-3)


def test_a_kernel_at_its_roofline_and_a_collective_are_excluded_with_their_reason(tmp_path: Path) -> None:
    big = "[[4096, 4096], [4096, 4096]]"
    summary = summarised(
        tmp_path, ("done", least_us(4096, 4096, 4096) * 1.01, big, "vllm/a.py(1): f"), (AR, 50, None, ""),
        ("open", 50, None, ""),
    )  # fmt: skip
    told = {t.name: t for t in summary.targets}
    assert "as fast as the device allows" in str(told["done"].excluded)
    assert "collective" in str(told[AR].excluded) and told[AR].reach == "collective"
    assert summary.targets[0].name == "open" and len(summary.targets) == 3


def test_what_is_too_small_says_so_and_stays(tmp_path: Path) -> None:
    summary = summarised(tmp_path, ("large", 10_000, None, ""), ("tiny", 1, None, ""))
    assert "too small" in str(summary.targets[1].excluded)


@pytest.mark.parametrize(
    ("kernel", "frame", "reach"),
    [
        ("void vllm::rms_norm_kernel<x>(y)", "vllm/model_executor/layers/layernorm.py(201): forward_cuda", "custom op"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "vllm/model_executor/layers/linear.py(229): apply", "vendor library"),
        ("my_kernel", "vllm/model_executor/layers/linear.py(229): apply", "source line"),
        ("my_kernel", "vllm/ir/ops/layernorm.py(43): fused_add_rms_norm", "custom op"),
        ("my_kernel", "", "nothing"),
    ],
)
def test_how_a_kernel_can_be_reached(tmp_path: Path, kernel: str, frame: str, reach: str) -> None:
    summary = summarised(tmp_path, (kernel, 5, None, frame))
    assert summary.targets[0].reach == reach


def test_the_line_is_the_engine_s_not_the_benchmark_s(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = [
        event("python_function", "bench_serving.py(3): main", 0, 100),
        event("python_function", "sglang/srt/layers/moe.py(7): forward", 1, 90),
        event("python_function", "benchmarks/run_kernel.py(9): call", 2, 80),
        event("cuda_runtime", "cudaLaunchKernel", 5, 1, correlation=1),
        event("kernel", "k", 50, 5, correlation=1, stream=7),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    assert summarise(read_trace(path)).targets[0].source == "sglang/srt/layers/moe.py(7): forward"


@pytest.mark.parametrize(("nested_us", "modelled"), [(10.0, True), (90.0, False)])
def test_on_a_cpu_an_op_has_its_least_work_where_it_does_the_work(
    tmp_path: Path, nested_us: float, modelled: bool
) -> None:
    """`onednn_mm` asks for an item; where what it calls takes most of its time, that is where the work is."""
    dims: dict[str, Any] = {"Input Dims": [[4, 32], [4, 64], [], []], "Input type": [BF16, BF16, "", "long int"]}
    path = tmp_path / "t.json"
    events = [event("cpu_op", "_C::onednn_mm", 0, 100, **dims), event("cpu_op", "aten::item", 1, nested_us)]
    path.write_text(json.dumps({"traceEvents": events}))
    device = Device(name="a cpu", memory_bytes_per_s=1e10, flops_per_s={"fp32": 1e11}, source="a test")
    targets = {target.name: target for target in summarise(read_trace(path), device=device).targets}
    assert (targets["_C::onednn_mm"].headroom is not None) is modelled
    assert targets["_C::onednn_mm"].ns == (100 - nested_us) * 1000


def test_what_ops_leave_of_a_compiled_graph_is_its_own_code(tmp_path: Path) -> None:
    """Inductor's fused code on a CPU is no op: its time is that of the call less the ops in it."""
    path = tmp_path / "t.json"
    call = "## Call CompiledFxGraph None ##"
    events = [event("user_annotation", call, 0, 100), event("cpu_op", "_C::onednn_mm", 10, 60)]
    path.write_text(json.dumps({"traceEvents": events}))
    summary = summarise(read_trace(path))
    assert {t.name: (t.ns, t.library) for t in summary.targets} == {
        call: (40_000, "Inductor"),
        "_C::onednn_mm": (60_000, "oneDNN"),
    }


def test_work_that_took_no_time_keeps_its_phase_and_line(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = [
        event("user_annotation", "step[DECODE bs=4]", 0, 50), event("python_function", "vllm/a.py(1): f", 1, 40),
        event("cuda_runtime", "cudaLaunchKernel", 5, 1, correlation=1),
        event("kernel", "zero", 100, 0, correlation=1, stream=7),
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    (target,) = summarise(read_trace(path)).targets
    assert (target.phase, target.source, target.reach) == ("decode", "vllm/a.py(1): f", "source line")
