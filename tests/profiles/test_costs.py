"""Least work from shapes, device peaks, and headroom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.profiles.cost import Cost
from kernelwright.profiles.costs import least_cost
from kernelwright.profiles.devices import find_device, name_device
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.headroom import bytes_moved
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.summary import summarise
from kernelwright.profiles.trace import read_trace

BF16 = "c10::BFloat16"


def inputs(*shapes: list[int], types: list[str] | None = None) -> str:
    return json.dumps([list(shapes), types or [BF16] * len(shapes)])


@pytest.mark.parametrize(
    ("op", "given", "flops", "moved"),
    [
        ("aten::mm", inputs([4, 8], [8, 16]), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        ("aten::addmm", inputs([16], [4, 8], [8, 16]), 2 * 4 * 8 * 16, 2 * (16 + 32 + 128 + 64)),
        ("aten::bmm", inputs([3, 4, 8], [3, 8, 16]), 3 * 2 * 4 * 8 * 16, 3 * 2 * (32 + 128 + 64)),
        ("aten::linear", inputs([2, 2, 8], [16, 8]), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        ("aten::matmul", inputs([2, 2, 8], [8, 16]), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        ("aten::mul", inputs([4, 1], [1, 8]), 32, 2 * (4 + 8 + 32)),
        ("aten::silu", inputs([64]), 64, 2 * 128),
        ("aten::copy_", inputs([64], [64], types=["float", BF16]), 64, 64 * 4 + 64 * 2),
        ("aten::sum", inputs([64]), 64, 128),
        ("aten::eq", inputs([64]), 64, 128 + 64),
        ("aten::fill_", inputs([64]), 0, 128),
        ("aten::embedding", inputs([1000, 8], [3], types=["float", "long int"]), 0, 24 + 2 * 3 * 8 * 4),
        ("_C::fused_add_rms_norm", inputs([4, 8], [4, 8], [8]), 160, 2 * (2 * 32 + 2 * 32 + 8)),
        ("_C::rms_norm", inputs([4, 8], [4, 8], [8]), 32, 2 * (32 + 32 + 8)),
        ("_C::silu_and_mul", inputs([4, 8], [4, 16]), 64, 2 * (32 + 64)),
        ("triton_poi_fused_add_0", inputs([64], [64], [64]), 64, 3 * 128),
        (
            "aten::scaled_dot_product_attention", inputs([1, 4, 10, 8], [1, 2, 10, 8], [1, 2, 10, 8]),
            4 * 4 * 8 * 55, 2 * (2 * 320 + 160 + 160),
        ),
    ],
)  # fmt: skip
def test_least_cost(op: str, given: str, flops: float, moved: float) -> None:
    work = least_cost(op, given)
    assert work is not None and (work.flops, work.bytes) == (flops, moved)


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("aten::mm", inputs([4, 8], [9, 16])),
        ("aten::mm", inputs([4, 8])),
        ("aten::unknown", inputs([4, 8])),
        ("aten::mm", "not json"),
        ("aten::mm", "[1, 2]"),
        ("aten::add", json.dumps([[[4]], ["an unheard-of type"]])),
        ("aten::add", json.dumps([[], []])),
        ("aten::cat", json.dumps([[[[4], [4]]], ["TensorList"]])),
        ("vllm::unified_attention_with_output", inputs([4, 8, 64], [4, 2, 64], [4, 2, 64])),  # lengths are not known
    ],
)
def test_without_a_model_there_is_no_guess(op: str, given: str) -> None:
    assert least_cost(op, given) is None


def test_attention_takes_its_lengths_from_the_step() -> None:
    step = parse_step("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk100sqsq2sqsk100)")
    work = least_cost("vllm::unified_attention_with_output", inputs([2, 8, 64], [2, 2, 64], [2, 2, 64]), step)
    assert work == Cost(4 * 8 * 64 * 100, 2 * 2 * (2 * 8 * 64) + 100 * 2 * 2 * 64 * 2, "bf16")


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200 (HBM3)"), ("NVIDIA B200", "B200"), ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"), ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"), ("AMD Instinct MI210", "MI210"), ("NVIDIA A10G", "A10G"),
    ],
)  # fmt: skip
def test_devices_by_the_names_of_drivers(driver: str, name: str) -> None:
    device = find_device(driver)
    assert device is not None and device.name == name


def test_an_unknown_device_is_no_other() -> None:
    assert find_device("AMD EPYC") is None and find_device("NVIDIA A1000") is None
    with pytest.raises(WrongUse, match="table"):
        name_device("abacus")


def test_a_format_without_units_runs_on_the_next_wider() -> None:
    device = name_device("A100 80GB")
    assert device.peak("fp8")[0] == "bf16" and device.peak("fp16")[0] == "bf16" and device.peak("fp32")[0] == "fp32"


@pytest.mark.parametrize(
    ("collective", "moved"),
    [
        ({"name": "allreduce", "in": 100, "out": 100, "dtype": "BFloat16", "size": 4}, 2 * 3 / 4 * 200),
        ({"name": "_allgather_base", "in": 100, "out": 400, "dtype": "Float", "size": 4}, 3 / 4 * 1600),
        ({"name": "allreduce", "in": 100, "out": 100, "dtype": "BFloat16", "size": 1}, None),
        ({"name": "barrier", "in": 1, "out": 1, "dtype": "Int", "size": 4}, None),
    ],
)
def test_bytes_of_collectives(collective: dict[str, object], moved: float | None) -> None:
    assert bytes_moved(collective) == moved


def write(folder: Path, device: str, us: float) -> Path:
    """One call of mm that launches two kernels, the second for a quarter of the time."""

    def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
        gpu = cat == "kernel"
        return {"ph": "X", "cat": cat, "name": name, "pid": int(not gpu), "tid": 7, "ts": ts, "dur": dur, "args": args}

    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": [BF16, BF16], "External id": 3}
    events = [
        event("cpu_op", "aten::mm", 0, 10, **shapes),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=2),
        event("kernel", "gemm", 20, us * 3 / 4, correlation=1, stream=7),
        event("kernel", "splitKreduce_kernel", 20 + us, us / 4, correlation=2, stream=7),
    ]
    path = folder / "t.json"
    path.write_text(json.dumps({"deviceProperties": [{"name": device}], "traceEvents": events}))
    return path


def test_the_least_time_of_a_call_is_shared_by_its_kernels(tmp_path: Path) -> None:
    summary = summarise(read_trace(write(tmp_path, "NVIDIA H100 80GB HBM3", 1000)))
    least = 2 * 4096**3 / 989.5e12 * 1e9
    memory = 3 * 2 * 4096**2 / 3352e9 * 1e9
    told = {t.name: t for t in summary.targets}
    assert summary.gpu == "H100 SXM"
    assert sum(t.least_ns or 0 for t in told.values()) == pytest.approx(max(least, memory))
    assert told["gemm"].headroom == pytest.approx(told["splitKreduce_kernel"].headroom)
    assert told["gemm"].headroom == pytest.approx(1_000_000 / max(least, memory)) and told["gemm"].bound == "compute"


def test_a_tiny_call_is_bound_by_its_launch(tmp_path: Path) -> None:
    path = write(tmp_path, "NVIDIA H100 80GB HBM3", 4)
    path.write_text(path.read_text().replace("4096", "8"))
    told = {t.name: t for t in summarise(read_trace(path)).targets}
    assert told["gemm"].bound == "overhead" and told["gemm"].least_ns == 1000
    assert told["splitKreduce_kernel"].least_ns == 1000, "a kernel takes no longer than it took"


def test_on_an_unknown_device_there_is_no_model(tmp_path: Path) -> None:
    summary = summarise(read_trace(write(tmp_path, "abacus", 100)))
    assert summary.gpu == "" and all(t.headroom is None for t in summary.targets)
