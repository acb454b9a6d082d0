"""A check-then-time loop as harnesses have had it, in one process with its candidate: what each `cheating.py` fools.

Not a test and never run by one. It runs hostile code without a cage, each in a process of its own:

    python tests/problems/naive_loop.py            # every cheat against the loop it was made for
    python tests/problems/naive_loop.py 24 17      # some of them

A line says whether the loop called the cheat correct, what speed it believed, and whether the cheat's answer to a fresh
draw afterwards was right.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

HERE = Path(__file__).parent
TOLERANCE = 1e-2
TRIALS, WARM_UPS, REPEATS = 3, 3, 20

LOOPS: dict[str, set[str]] = {
    "09": {"reference first"}, "17": {"own comparison"}, "23": {"sampled"}, "24": {"checksum"},
    "26": {"matched ratio"}, "27": {"one trial"}, "33": {"candidate first"}, "38": {"seeded trials"},
}  # fmt: skip
"""Cheats that need a loop other than the plain one, which compares with allclose after running the reference."""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"naive_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def plain(result: Any) -> list[torch.Tensor]:
    """Return the answers as float32 tensors, by the methods the candidate's objects bring along."""
    return [t.detach().float() for t in (result if isinstance(result, tuple) else (result,))]


def outputs_match(found: torch.Tensor, expected: torch.Tensor, loop: set[str]) -> bool:
    if "sampled" in loop:
        found, expected = found.flatten()[:32], expected.flatten()[:32]
    error = (found - expected).abs()
    if "own comparison" in loop:
        return not bool((error > TOLERANCE).any())
    if "matched ratio" in loop:
        return bool((error <= TOLERANCE + TOLERANCE * expected.abs()).float().mean() >= 0.99)
    if "checksum" in loop:
        same_shape = found.shape == expected.shape
        return same_shape and abs(float(found.sum() - expected.sum())) <= TOLERANCE * abs(float(expected.sum())) + 1
    return torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def check(model: Any, candidate: Any, get_inputs: Callable[[], list[torch.Tensor]], loop: set[str]) -> bool:
    good = True
    for trial in range(1 if "one trial" in loop else TRIALS):
        if "seeded trials" in loop:
            torch.manual_seed(42 + trial)
        inputs = get_inputs()
        if "candidate first" in loop:
            found = plain(candidate(*inputs))
            expected = plain(model(*inputs))
        else:
            expected = plain(model(*inputs))
            found = plain(candidate(*inputs))
        good = good and all(outputs_match(f, e, loop) for f, e in zip(found, expected, strict=False))
    return good


def measure(model: Any, inputs: list[torch.Tensor]) -> float:
    import time

    for _ in range(WARM_UPS):
        model(*inputs)
    times = []
    for _ in range(REPEATS):
        torch.cpu.synchronize()
        begun = time.perf_counter()
        model(*inputs)
        torch.cpu.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def judge_naively(folder: Path, loop: set[str]) -> None:
    """Print RESULT with what a trusting loop finds, then TRUTH with what a second look finds."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    honest_clock, honest_close = __import__("time").perf_counter, torch.allclose
    torch.manual_seed(42)
    problem = load(folder / "problem.py")
    model = problem.Model(*problem.get_init_inputs())
    candidate = load(folder / "cheating.py").ModelNew(*problem.get_init_inputs())
    candidate.load_state_dict(model.state_dict())
    correct = check(model, candidate, problem.get_inputs, loop)
    if "seeded trials" in loop:
        torch.manual_seed(42)
    inputs = problem.get_inputs()
    speedup = 1 / (measure(candidate, inputs) / measure(model, inputs))
    print(f"RESULT correct={correct} speedup={speedup:.3f}", flush=True)
    second_look(model, candidate, problem, honest_clock, honest_close)


def second_look(model: Any, candidate: Any, problem: ModuleType, clock: Any, close: Any) -> None:
    torch.seed()
    inputs = problem.get_inputs()
    expected = model.double()(*[x.double() if x.is_floating_point() else x.clone() for x in inputs])
    begun = clock()
    found = candidate(*[x.clone() for x in inputs])
    spent = clock() - begun
    expected, found = (r if isinstance(r, tuple) else (r,) for r in (expected, found))
    same = len(found) == len(expected) and all(
        (type(f), f.shape, f.dtype) == (torch.Tensor, e.shape, torch.float32)
        and close(f, e.float(), rtol=1e-5, atol=1e-5)
        for f, e in zip(found, expected, strict=False)
    )
    print(f"TRUTH right={same} seconds={spent:.5f}", flush=True)


def main(wanted: list[str]) -> None:
    for folder in sorted(path.parent for path in HERE.glob("*/cheating.py")):
        number = folder.name[:2]
        if wanted and number not in wanted:
            continue
        command = [sys.executable, __file__, "--child", str(folder), *sorted(LOOPS.get(number, set()))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        lines = done.stdout.splitlines()
        result = next((line for line in lines if line.startswith("RESULT")), "RESULT none")
        truth = next((line for line in lines if line.startswith("TRUTH")), "TRUTH none")
        print(f"{folder.name:28} {result[7:]:34} {truth[6:]:34} status={done.returncode} {done.stderr[-200:].strip()}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        judge_naively(Path(sys.argv[2]), set(sys.argv[3:]))
    else:
        main(sys.argv[1:])
