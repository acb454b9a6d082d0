"""Ranks: clocks aligned on collectives, waiting told from transfer, ranks of different runs refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.profiles.errors import MixedRanks
from kernelwright.profiles.ranks import RankTrace, compare_ranks, tell_rank
from kernelwright.profiles.trace import read_trace
from tests.profiles.test_answers import TRACES, needs_traces
from tests.profiles.test_origin import MAKER, needs_maker


def write(folder: Path, rank: int, *spans: tuple[str, int, int], world: int = 2) -> RankTrace:
    """Kernels (name, start us, us) of one rank."""
    events = [
        {"ph": "X", "cat": "kernel", "name": n, "pid": rank, "tid": 7, "ts": ts, "dur": dur, "args": {"stream": 7}}
        for n, ts, dur in spans
    ]
    path = folder / f"t{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}))
    trace = read_trace(path)
    return RankTrace(tell_rank(trace, path.name) or 0, path.name, trace)


AR = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_waiting_is_what_passes_before_the_last_has_come(tmp_path: Path) -> None:
    # rank 1's clock is 1000 us ahead; it comes 30 us later to each of three collectives
    first = write(tmp_path, 0, ("k", 0, 10), (AR, 10, 50), ("k", 70, 10), (AR, 100, 50), (AR, 200, 50))
    second = write(tmp_path, 1, ("k", 1000, 40), (AR, 1040, 20), ("k", 1070, 10), (AR, 1130, 20), (AR, 1230, 20))
    found = compare_ranks([second, first])
    assert [r.rank for r in found.ranks] == [0, 1] and found.matched == 3 and found.spread_ns == 0
    assert [r.offset_ns for r in found.ranks] == [0, 1_000_000]
    assert [r.wait_ns for r in found.ranks] == [90_000, 0] and found.slowest == 1
    assert [r.transfer_ns for r in found.ranks] == [60_000, 60_000]


def test_a_collective_that_one_rank_lacks_is_counted_and_left_out(tmp_path: Path) -> None:
    found = compare_ranks([write(tmp_path, 0, (AR, 0, 5), (AR, 9, 5)), write(tmp_path, 1, (AR, 0, 5))])
    assert (found.matched, found.unmatched) == (1, 1)


@pytest.mark.parametrize("fault", ["rank twice", "world", "nothing in common"])
def test_ranks_of_different_runs_are_refused(tmp_path: Path, fault: str) -> None:
    first = write(tmp_path, 0, (AR, 0, 5))
    second = write(tmp_path, 1, ("k" if fault == "nothing in common" else AR, 0, 5), world=4 if fault == "world" else 2)
    if fault == "rank twice":
        second = second._replace(rank=0)
    with pytest.raises(MixedRanks, match={"rank twice": "twice", "world": "sizes"}.get(fault, "common")):
        compare_ranks([first, second])


@needs_maker
def test_synthetic_ranks_are_told_by_their_headers(tmp_path: Path) -> None:
    command = [sys.executable, MAKER, tmp_path / "t.json", "--events", "12000", "--ranks", "2", "--skew-us", "1500"]
    subprocess.run(command, check=True, capture_output=True)
    traces = [RankTrace(r, f"t.rank{r}.json", read_trace(tmp_path / f"t.rank{r}.json")) for r in (0, 1)]
    assert [tell_rank(t.events, "x.json") for t in traces] == [0, 1]
    assert compare_ranks(traces).matched > 10


@needs_traces
def test_eight_recorded_ranks_wait_for_each_other() -> None:
    traces = [
        RankTrace(r, f"rank{r}.json.gz", read_trace(TRACES / "dlrm_8rank" / f"rank{r}.json.gz")) for r in range(8)
    ]
    found = compare_ranks(traces)
    assert found.matched == 8 and len(found.ranks) == 8
    assert all(r.wait_ns + r.transfer_ns == r.collective_ns for r in found.ranks)
    assert max(r.wait_ns for r in found.ranks) > 3 * min(r.wait_ns for r in found.ranks)
