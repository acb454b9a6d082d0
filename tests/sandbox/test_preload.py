"""Torch without its meta registrations is torch, and has them when a source asks for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from kernelwright.sandbox.preload import LATER, complete, load_torch
load_torch()
assert getattr(sys.modules[LATER], "__file__", None) is None, "nothing was left out"
import torch
assert torch.equal(torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)), torch.full((2, 4), 3.0))
complete({source!r})
print(getattr(sys.modules[LATER], "__file__", None) is not None)
"""


@pytest.mark.parametrize(
    ("source", "completed"),
    [
        ("def run(x):\n    return (x + 1,)\n", False),
        ("run = torch.compile(f)\n", True),
        ("x.to('meta')", True),
        ("torch.Generator()", True),
    ],
)
def test_what_was_left_out_is_loaded_for_who_needs_it(source: str, completed: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(source=source)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(completed)


@pytest.mark.slow
def test_a_compiled_candidate_works_after_it() -> None:
    program = PROGRAM.format(source="torch.compile") + (
        "f = torch.compile(lambda x: x * 2 + 1, backend='eager')\n"
        "assert torch.equal(f(torch.ones(3)), torch.full((3,), 3.0))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
