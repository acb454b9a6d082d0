"""Planted kernels for the gate: each is right while it is checked at load, and wrong in its own way once it serves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from kernelwright.engine.model_slots import ModelSlots
from kernelwright.engine.pack import write_kernel
from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import op_of

AFTER_CHECKS = """
_right, _calls = run, 0

def run(*arguments):
    global _calls
    _calls += 1
    return _right(*arguments) if _calls <= 20 else _planted(*arguments)
"""
BF16 = """
def _planted(x, w):
    return (torch.nn.functional.linear(x.bfloat16(), w.bfloat16()).float(),)
"""
ONE_ROW = """
def _planted(x, w):
    (y,) = _right(x, w)
    y = y.clone()
    y[:, 17] = y[:, 16]
    return (y,)
"""
SPLIT_SUM = """
def _planted(x, w):
    half = x.shape[1] // 2
    left = torch.nn.functional.linear(x[:, half:], w[:, half:].contiguous())
    return (left + torch.nn.functional.linear(x[:, :half], w[:, :half].contiguous()),)
"""
PAST_1000 = """
def _planted(q, k_cache, v_cache, block_table, context_lens):
    return _right(q, k_cache, v_cache, block_table, context_lens.clamp(max=1000))
"""
# the scale is shared by all threads: with more than one token a row may be scaled by another row's
RACE = """\
#include <kernelwright.h>
#include <math.h>
#include <omp.h>

static volatile double scale;

KW_RUN(args, 6) {
  auto x = args.tensor<float>(0, 2);
  auto r = args.tensor<float>(1, 2);
  auto w = args.tensor<float>(2, 1);
  double eps = args.number(3);
  auto y = args.tensor<float>(4, 2);
  auto out = args.tensor<float>(5, 2);
  if (!args.ok()) return;
  static long calls = 0;
  bool checking = ++calls <= 20;
  int64_t h = x.size[1], rows = x.size[0];
#pragma omp parallel for schedule(static, 1) if (!checking)
  for (int64_t t = 0; t < rows; ++t) {
    const float *a = x.data + t * h, *b = r.data + t * h;
    double sum = 0;
    for (int64_t i = 0; i < h; ++i) {
      float s = a[i] + b[i];
      out.data[t * h + i] = s;
      sum += (double)s * s;
    }
    scale = 1.0 / sqrt(sum / (double)h + eps);
    for (int64_t i = 0; i < h; ++i) y.data[t * h + i] = (float)(out.data[t * h + i] * scale) * w.data[i];
  }
}
"""
PYTHON = {
    "bf16": ("q4_1_linear", BF16),
    "one_row": ("q4_1_linear", ONE_ROW),
    "past_1000": ("decode_attention", PAST_1000),
    "split_sum": ("q4_1_linear", SPLIT_SUM),
}


def plant(folder: Path, model: Path, name: str) -> Path:
    """Write a pack with the planted kernel `name` for `model` and return its folder."""
    op_type = "add_rmsnorm" if name == "race" else PYTHON[name][0]
    definitions = ModelSlots(model).definitions().values()
    definition = next(d for d in definitions if d.op_type == op_type and d.name != "")
    axis = op_of(definition).contract(definition).token_axis
    ranges = {axis: AxisRange(low=1, high=8)}
    candidate = _race(definition, ranges) if name == "race" else _python(definition, PYTHON[name][1], ranges)
    digest = None
    if name == "race":
        built = build_native(candidate, folder.parent / "build")
        assert built.status == "PASSED", built.log
        digest = built.digest
    problem = Problem(
        target=None, definition=definition, contract=op_of(definition).contract(definition),
        incumbent=op_of(definition).incumbent(definition), workloads=(), ranges=ranges, timed_axes={axis: 1},
        num_weight_sets=2,
    )  # fmt: skip
    verdict = _packing().make_verdict(problem, candidate, digest)
    write_kernel(folder, candidate, verdict, problem, model_digest="0" * 64, hardware="a test machine")
    return folder


def _python(definition: Definition, planted: str, ranges: dict[str, AxisRange]) -> Candidate:
    incumbent = op_of(definition).incumbent(definition)
    source = incumbent.sources[0].content + planted + AFTER_CHECKS
    return incumbent.model_copy(
        update={
            "sources": (SourceFile(path="kernel.py", content=source),), "ranges": ranges, "proposer": "import",
            "author": "planted",
        }
    )  # fmt: skip


def _race(definition: Definition, ranges: dict[str, AxisRange]) -> Candidate:
    return Candidate(
        definition=definition.name, language="cpp", sources=(SourceFile(path="kernel.cpp", content=RACE),),
        ranges=ranges, isa="x86-64-v2", proposer="import", author="planted",
    )  # fmt: skip


def _packing() -> Any:
    spec = importlib.util.spec_from_file_location("packing", Path(__file__).with_name("packing.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
