"""Triton candidates are loaded into the interpreter, whose order of blocks can be chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernels.triton_load import arrange_blocks, has_triton
from kernelwright.profiles.errors import BrokenInput

needs_triton = pytest.mark.skipif(
    not has_triton(), reason="triton is not installed: pip install 'kernelwright[triton]'"
)
# in a process of its own: triton is imported for its interpreter once and for all
SCRIPT = """
import sys
sys.path.append(sys.argv[1])
import torch
import triton_sources
from kernelwright.kernels.load import load_implementation
from kernelwright.kernels.registry import define, op_of
from kernelwright.kernels.triton_load import set_block_order

definition = define("add_rmsnorm", h=96)
op = op_of(definition)
inputs = op.generate(definition, {"T": 5}, torch.Generator().manual_seed(3), "normal")

def results(source, order=None):
    candidate = triton_sources.triton_candidate(definition.name, getattr(triton_sources, source))
    slot = load_implementation(candidate, None, definition, op.contract(definition)).bind(inputs)
    if order:
        set_block_order(order)
    return slot(**{n: v for n, v in inputs.items() if n != "weight"})
"""


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", SCRIPT + text, str(Path(__file__).parent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@needs_triton
def test_an_honest_candidate_agrees_with_the_reference() -> None:
    done = run_script("""
own = {}
exec(definition.reference, own)
for order in (None, "forward", "reverse", "random:1"):
    for got, want in zip(results("HONEST", order), own["run"](**inputs), strict=True):
        torch.testing.assert_close(got, want)
""")
    assert done.returncode == 0, done.stderr


@needs_triton
@pytest.mark.parametrize("source", ["PREDECESSOR", "HALO"])
def test_what_depends_on_an_earlier_block_moves_with_the_order(source: str) -> None:
    done = run_script(f"""
honest = results("HONEST")
torch.testing.assert_close(results("{source}", "forward"), honest)
print(torch.allclose(results("{source}", "reverse")[0], honest[0]))
""")
    assert done.stdout.strip() == "False", done.stderr


@needs_triton
def test_a_candidate_that_writes_its_inputs_is_refused() -> None:
    done = run_script('results("WRITES_INPUTS")')
    assert done.returncode != 0 and "wrote to one of its inputs" in done.stderr


@needs_triton
def test_without_its_functions_a_source_is_broken_input() -> None:
    done = run_script('triton_sources.EMPTY = "import triton"\nresults("EMPTY")')
    assert done.returncode != 0 and "does not define run" in done.stderr


@given(count=st.integers(0, 200), seed=st.integers(0, 9))
def test_every_order_runs_every_block_once(count: int, seed: int) -> None:
    for order in ("forward", "reverse", f"random:{seed}"):
        assert sorted(arrange_blocks(order, count)) == list(range(count))
    assert arrange_blocks("forward", count) == arrange_blocks("reverse", count)[::-1]
    assert arrange_blocks(f"random:{seed}", count) == arrange_blocks(f"random:{seed}", count)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(BrokenInput):
        arrange_blocks("sideways", 3)
