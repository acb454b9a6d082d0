"""What a lucky run hides is found: threads under jitter, blocks in other orders, garbage in scratch memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from kernelwright.kernels.triton_load import has_triton
from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cases import Case
from kernelwright.sandbox.jitter import jitter
from kernelwright.sandbox.ruling import Ruling
from kernelwright.sandbox.trial import Trial
from kernelwright.sandbox.verify import Bench
from tests.sandbox.posed import load_evil, open_bench, pose, require_cage

sys.path.append(str(Path(__file__).parents[1] / "kernels"))
import triton_sources

pytestmark = [pytest.mark.cage, pytest.mark.alone]
needs_triton = pytest.mark.skipif(not has_triton(), reason="triton is not installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_cage()
    return tmp_path_factory.mktemp("races")


@pytest.fixture(scope="module")
def bench(cache: Path) -> Iterator[Bench]:
    with open_bench(pose(), cache) as opened:
        yield opened


def pose_norm() -> Problem:
    definition = define("add_rmsnorm", h=96)
    op = op_of(definition)
    return Problem(
        target=None, definition=definition, contract=op.contract(definition), incumbent=op.incumbent(definition),
        workloads=(), ranges={"T": AxisRange(low=1, high=6)}, timed_axes={"T": 4}, num_weight_sets=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def norms(cache: Path) -> Iterator[Bench]:
    problem = pose_norm()
    weights = [{"weight": 1 + 0.1 * torch.randn(96, generator=torch.Generator().manual_seed(i))} for i in range(2)]
    with Bench(problem, problem_dir=cache, weights=weights, threads=1, cache_dir=cache / "builds") as opened:
        opened._floor = 0.02
        yield opened


def try_one(bench: Bench, name: str, check: str, *more: object, tokens: int = 4) -> Ruling:
    """Return the ruling after one check of Trial on the candidate `name`."""
    candidate = load_evil(name, bench.problem)
    ruling = Ruling(candidate, "confirm", started=time.monotonic())
    binary = bench._prepare(candidate, ruling)
    with bench._runners.start_incumbent() as beside, bench._runners.start(candidate, binary, beside) as arm:
        trial = Trial(bench._setup, beside, arm, bench._draw_key(), ruling)
        getattr(trial, check)(Case("here", {"T": tokens}, 0, "normal"), *more)
    return ruling


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads that share one processor hardly race")
@pytest.mark.parametrize("name", ["racy.cpp", "race_missing_barrier.cpp", "race_halo.cpp", "race_sum.cpp"])
def test_a_race_between_threads_is_incorrect_and_called_so(bench: Bench, name: str) -> None:
    ruling = try_one(bench, name, "try_races")
    assert ruling.outcome == "incorrect"
    assert "race" in ruling.reason


def test_honest_threads_are_not_called_a_race(bench: Bench) -> None:
    assert try_one(bench, "honest.cpp", "try_races").outcome is None


@pytest.mark.parametrize(
    ("name", "outcome", "word"),
    [("race_flag.cpp", "incorrect", "race"), ("reads_beyond.cpp", "invalid", "outside"), ("honest.cpp", None, "")],
)
def test_what_a_sanitizer_finds_settles(
    bench: Bench, tmp_path: Path, name: str, outcome: str | None, word: str
) -> None:
    ruling = try_one(bench, name, "try_sanitizers", open_cage("bubblewrap"), tmp_path)
    assert ruling.outcome == outcome and word in ruling.reason
    assert len(ruling.evaluations) == (outcome is not None)


def test_scratch_that_was_never_written_is_found(bench: Bench) -> None:
    ruling = try_one(bench, "uninitialised.cpp", "try_two_poisons")
    assert ruling.outcome == "incorrect"
    assert "scratch" in ruling.reason


def test_honest_memory_passes_two_poisons(bench: Bench) -> None:
    assert try_one(bench, "honest.cpp", "try_two_poisons").outcome is None


@needs_triton
def test_an_honest_triton_candidate_is_right_and_unmeasured(norms: Bench) -> None:
    verdict = norms.search(triton_sources.triton_candidate("add_rmsnorm_h96", triton_sources.HONEST))
    assert verdict.outcome == "unmeasured", verdict.reason
    assert "right in Triton's interpreter" in verdict.reason and "5 block orders" in verdict.reason
    assert len(verdict.evaluations) > 3 and all(e.status == "PASSED" for e in verdict.evaluations)
    assert verdict.isolation == "L3" and not verdict.accepted


@needs_triton
def test_a_wrong_triton_candidate_is_incorrect(norms: Bench) -> None:
    verdict = norms.search(triton_sources.triton_candidate("add_rmsnorm_h96", triton_sources.WRONG))
    assert verdict.outcome == "incorrect", verdict.reason
    assert "race" not in verdict.reason


@needs_triton
@pytest.mark.parametrize("source", ["PREDECESSOR", "HALO"])
def test_a_race_between_blocks_is_found_though_the_usual_order_is_right(norms: Bench, source: str) -> None:
    verdict = norms.search(triton_sources.triton_candidate("add_rmsnorm_h96", getattr(triton_sources, source)))
    assert verdict.outcome == "incorrect" and "race" in verdict.reason, verdict.reason
    passed = [e.workload for e in verdict.evaluations if e.status == "PASSED"]
    assert "normal" in passed, "in ascending order it is right, which is why orders are tried"


@needs_triton
@pytest.mark.slow
def test_atomic_additions_may_round_differently_and_are_labelled(norms: Bench) -> None:
    verdict = norms.search(triton_sources.triton_candidate("add_rmsnorm_h96", triton_sources.ATOMIC))
    assert verdict.outcome == "unmeasured", verdict.reason
    assert "atomic" in verdict.reason


@needs_triton
def test_a_triton_candidate_that_writes_its_inputs_is_invalid(norms: Bench) -> None:
    verdict = norms.search(triton_sources.triton_candidate("add_rmsnorm_h96", triton_sources.WRITES_INPUTS))
    assert verdict.outcome == "invalid", verdict.reason


STARTS_THREADS = """
import sys, threading, time
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(20,)).start()
    time.sleep(float(sys.argv[2]))
"""


def start_threads(count: int, pause_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", STARTS_THREADS, str(count), str(pause_s)])


def place_of(task: int) -> tuple[frozenset[int], int]:
    return frozenset(os.sched_getaffinity(task)), os.getpriority(os.PRIO_PROCESS, task)


def test_jitter_moves_the_threads_of_a_process_and_puts_all_of_them_back() -> None:
    with start_threads(200, pause_s=0.002) as process:
        try:
            before, seen = place_of(process.pid), set()
            with jitter(lambda: [process.pid], seed=1):
                for _ in range(100):
                    seen |= {place_of(int(task)) for task in os.listdir(f"/proc/{process.pid}/task")}
                    time.sleep(0.002)
            tasks = [int(task) for task in os.listdir(f"/proc/{process.pid}/task")]
            after = {place_of(task) for task in tasks}
        finally:
            process.kill()
    assert len(seen) > 3
    assert len(tasks) > 10, "threads started meanwhile inherit where their parent was put"
    assert after == {before}


@pytest.mark.parametrize("seed", range(10))
def test_a_thread_started_while_the_others_are_put_back_is_put_back_too(seed: int) -> None:
    with start_threads(600, pause_s=0) as process:
        try:
            before = place_of(process.pid)
            with jitter(lambda: [process.pid], seed=seed):
                time.sleep(0.12)
            after = {place_of(int(task)) for task in os.listdir(f"/proc/{process.pid}/task")}
        finally:
            process.kill()
    assert after == {before}


def test_jitter_survives_the_end_of_what_it_shakes() -> None:
    threads = threading.active_count()
    with subprocess.Popen(["/bin/sleep", "0.05"]) as process, jitter(lambda: [process.pid], seed=1):
        process.wait()
        time.sleep(0.02)
    assert threading.active_count() == threads
