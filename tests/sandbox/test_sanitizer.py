"""Racy kernels are found by ThreadSanitizer, reads out of bounds by AddressSanitizer, and nothing else is."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.families.rendering import LANES
from kernelwright.kernels.families.table import FAMILIES, family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.registry import define, op_of
from kernelwright.sandbox.cage import Limits, open_cage
from kernelwright.sandbox.sanitizer import LIMITS, Sanitized, find_races
from tests.sandbox.posed import LINEAR, load_evil, pose, require_cage

sys.path.append(str(Path(__file__).parents[1] / "kernels"))
from slots import draw_inputs, small

pytestmark = [
    pytest.mark.cage,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
RACES = ["racy.cpp", "race_missing_barrier.cpp", "race_halo.cpp", "race_sum.cpp", "race_flag.cpp", "race_split_k.cpp"]
SOUND = {
    "static": """
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < l.N; ++n) l.each(n, store);""",
    "static chunks": """
#pragma omp parallel for schedule(static, 3)
  for (int64_t n = 0; n < l.N; ++n) l.each(n, store);""",
    "dynamic": """
#pragma omp parallel for schedule(dynamic, 5)
  for (int64_t n = 0; n < l.N; ++n) l.each(n, store);""",
    "guided": """
#pragma omp parallel for schedule(guided)
  for (int64_t n = l.N - 1; n >= 0; --n) l.each(n, store);""",
    "runtime and monotonic": """
#pragma omp parallel
  {
#pragma omp for schedule(runtime)
    for (int64_t n = 0; n < l.N / 2; ++n) l.each(n, store);
#pragma omp for schedule(monotonic : dynamic, 2)
    for (int64_t n = l.N / 2; n < l.N; ++n) l.each(n, store);
  }""",
    "unsigned and collapsed": """
  for (int64_t n = 0; n < l.N; ++n) l.each(n, store);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (uint64_t t = 0; t < uint64_t(l.T); ++t)
    for (uint64_t n = 0; n < uint64_t(l.N); ++n) l.y[t * l.N + n] *= 1.0f;""",
    "reduction": """
  float rows = 0;
#pragma omp parallel for reduction(+ : rows)
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, store);
    rows += 1;
  }
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= rows / l.N;""",
    "several reductions": """
  float rows = 0, most = 0;
#pragma omp parallel for reduction(+ : rows) reduction(max : most) schedule(dynamic)
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, store);
    rows += 1;
    most = n > most ? n : most;
  }
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= (rows + most + 1) / (2 * l.N);""",
    "critical": """
  float rows = 0, others = 0;
#pragma omp parallel for schedule(dynamic)
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, store);
#pragma omp critical
    rows += 1;
#pragma omp critical(other)
    others += 1;
  }
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= rows / others;""",
    "atomic": """
  float rows = 0;
#pragma omp parallel for
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, store);
#pragma omp atomic
    rows += 1;
  }
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= rows / l.N;""",
    "barriers": """
  std::vector<float> dense(l.N * l.K);
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t n = 0; n < l.N; ++n) decode_row(l.w + n * l.row, l.K, &dense[n * l.K]);
#pragma omp barrier
#pragma omp for schedule(dynamic, 4)
    for (int64_t n = 0; n < l.N; ++n)
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(l.x + t * l.K, &dense[n * l.K], l.K);
  }""",
    "single and master": """
  std::vector<float> copy(l.T * l.K);
#pragma omp parallel
  {
    float* mine;
#pragma omp single copyprivate(mine)
    mine = copy.data();
#pragma omp single
    memcpy(mine, l.x, copy.size() * sizeof(float));
#pragma omp for
    for (int64_t n = 0; n < l.N; ++n) {
      float dense[4096];
      decode_row(l.w + n * l.row, l.K, dense);
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(mine + t * l.K, dense, l.K);
    }
#pragma omp master
    mine[0] = 1;
  }""",
    "sections": """
#pragma omp parallel sections
  {
#pragma omp section
    for (int64_t n = 0; n < l.N / 2; ++n) l.each(n, store);
#pragma omp section
    for (int64_t n = l.N / 2; n < l.N; ++n) l.each(n, store);
  }""",
    "nested and called": """
  struct Inner {
    static void row(const Linear& l, int64_t n) {
#pragma omp parallel for num_threads(2)
      for (int64_t t = 0; t < l.T; ++t) {
        float dense[4096];
        decode_row(l.w + n * l.row, l.K, dense);
        l.y[t * l.N + n] = dot(l.x + t * l.K, dense, l.K);
      }
    }
  };
#pragma omp parallel for
  for (int64_t n = 0; n < l.N; ++n) Inner::row(l, n);""",
    "locks": """
  float rows = 0;
  omp_lock_t lock;
  omp_init_lock(&lock);
#pragma omp parallel for
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, store);
    omp_set_lock(&lock);
    rows += 1;
    omp_unset_lock(&lock);
  }
  omp_destroy_lock(&lock);
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= rows / l.N;""",
    "flag with flushes": """
  std::vector<float> copy(l.T * l.K);
  int ready = 0;
#pragma omp parallel
  {
    if (omp_get_thread_num() == 0) {
      memcpy(copy.data(), l.x, copy.size() * sizeof(float));
#pragma omp flush
#pragma omp atomic write
      ready = 1;
    }
    for (int seen = 0; !seen;) {
#pragma omp atomic read
      seen = ready;
#pragma omp flush
    }
#pragma omp for
    for (int64_t n = 0; n < l.N; ++n) {
      float dense[4096];
      decode_row(l.w + n * l.row, l.K, dense);
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(&copy[t * l.K], dense, l.K);
    }
  }""",
    "std::atomic spin barrier": """
  std::vector<float> dense(l.N * l.K);
  std::atomic<int> arrived{0};
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t n = 0; n < l.N; ++n) decode_row(l.w + n * l.row, l.K, &dense[n * l.K]);
    arrived.fetch_add(1, std::memory_order_acq_rel);
    while (arrived.load(std::memory_order_acquire) < omp_get_num_threads()) sched_yield();
#pragma omp for schedule(dynamic, 4)
    for (int64_t n = 0; n < l.N; ++n)
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(l.x + t * l.K, &dense[n * l.K], l.K);
  }""",
    "scratch kept by threads": """
  static thread_local std::vector<float> scratch;
  for (int again = 0; again < 3; ++again)
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < l.N; ++n) {
      scratch.resize(l.K);
      decode_row(l.w + n * l.row, l.K, scratch.data());
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(l.x + t * l.K, scratch.data(), l.K);
    }""",
}


def sanitize(candidate: Candidate, cache: Path, seconds: float = 60.0) -> Sanitized:
    require_cage()
    definition, contract = pose().definition, pose().contract
    drawn = op_of(definition).generate(definition, {"T": 3}, torch.Generator().manual_seed(1), "normal")
    weights = {"w": drawn.pop("w")}
    cage = open_cage("bubblewrap")
    return find_races(candidate, definition, contract, drawn, weights, cage=cage, cache=cache, seconds=seconds)  # type: ignore[arg-type]


def written(body: str) -> Candidate:
    head = '#include "linear.h"\n#include <omp.h>\n#include <sched.h>\n#include <atomic>\n#include <vector>\n'
    text = f"{head}LINEAR_RUN {{\n  auto store = [&](int64_t i, float v) {{ l.y[i] = v; }};\n  (void)store;{body}\n}}\n"
    sources = (
        SourceFile(path="kernel.cpp", content=text),
        SourceFile(path="linear.h", content=LINEAR.read_text()),
    )
    return Candidate(
        definition=pose().definition.name, language="cpp", sources=sources, proposer="import", author="test"
    )


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found(name: str, tmp_path: Path) -> None:
    found = sanitize(load_evil(name, pose()), tmp_path)
    assert (found.status, found.tool) == ("race", "ThreadSanitizer"), found.log
    assert "data race" in found.log


@pytest.mark.parametrize("name", SOUND)
def test_sound_openmp_is_clean(name: str, tmp_path: Path) -> None:
    found = sanitize(written(SOUND[name]), tmp_path)
    assert found.status == "clean", found.log


@pytest.mark.skipif(detect_isa() not in LANES, reason="no family is rendered for this processor")
@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op_type", FAMILIES)
def test_every_family_is_clean(op_type: str, index: int, tmp_path: Path) -> None:
    require_cage()
    definition = small(op_type)
    family = family_of(definition)
    assert family is not None
    points = family.points(definition, detect_isa())
    point = points[0] if index == 0 else random.Random(f"{op_type}{index}").choice(points[1:])
    contract = op_of(definition).contract(definition)
    inputs = draw_inputs(definition, 3, "normal", seed=1)
    weights = {name: inputs.pop(name) for name in contract.weights}
    candidate = family.render(definition, point, detect_isa())
    cage = open_cage("bubblewrap")
    found = find_races(candidate, definition, contract, inputs, weights, cage=cage, cache=tmp_path)
    assert found.status == "clean", (point, found.log)


def test_a_read_beyond_the_inputs_is_found(tmp_path: Path) -> None:
    found = sanitize(load_evil("reads_beyond.cpp", pose()), tmp_path)
    assert (found.status, found.tool) == ("memory", "AddressSanitizer"), found.log
    assert "heap-buffer-overflow" in found.log


def test_what_never_ends_is_failed(tmp_path: Path) -> None:
    found = sanitize(written("\n  for (volatile int i = 0;; i = i + 1) {}"), tmp_path, seconds=8)
    assert found.status == "failed" and "did not end" in found.log


def test_what_does_not_compile_is_failed(tmp_path: Path) -> None:
    assert sanitize(load_evil("does_not_compile.cpp", pose()), tmp_path).status == "failed"


def test_what_ends_early_is_not_clean(tmp_path: Path) -> None:
    found = sanitize(written("\n  exit(0);").model_copy(), tmp_path)
    assert found.status == "failed"


def test_openmp_that_is_not_modelled_fails(tmp_path: Path) -> None:
    tasks = """
#pragma omp parallel
#pragma omp single
  for (int64_t n = 0; n < l.N; ++n)
#pragma omp task depend(out : l.y[n])
    l.each(n, store);"""
    found = sanitize(written(tasks), tmp_path)
    assert found.status == "failed" and "GOMP_task" in found.log


def test_another_language_is_unavailable(tmp_path: Path) -> None:
    assert sanitize(pose().incumbent, tmp_path).status == "unavailable"


def test_the_judge_asks_the_candidate_for_packed_weights_first(tmp_path: Path) -> None:
    definition = define("q4_1_linear", n=64, k=64)
    family = family_of(definition)
    assert family is not None
    isa = detect_isa()
    packed = [p for p in family.points(definition, isa) if family.render(definition, p, isa).prepare]
    contract = op_of(definition).contract(definition)
    inputs = op_of(definition).generate(definition, {"T": 2}, torch.Generator().manual_seed(0), "normal")
    weights = {"w": inputs.pop("w")}
    cage = open_cage("bubblewrap")
    candidate = family.render(definition, packed[0], isa)
    found = find_races(candidate, definition, contract, inputs, weights, cage=cage, cache=tmp_path)  # type: ignore[arg-type]
    assert found.status == "clean", found.log


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (LIMITS, "00040000"),
        (Limits(fixed_addresses=True), "00040000"),
        (Limits(), "00000000"),
    ],
)
def test_fixed_addresses_are_for_who_asks(limits: Limits, word: str) -> None:
    require_cage()
    with open_cage("bubblewrap").spawn(
        ["/bin/cat", "/proc/self/personality"], limits=limits, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read().decode().strip() == word
