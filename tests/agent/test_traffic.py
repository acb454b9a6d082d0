"""Bytes that one decoded token reads, whatever the kind of the weights."""

from __future__ import annotations

import pytest

from kernelwright.agent.traffic import _dense, _raw
from kernelwright.kernels.ops.weights import QUANTISED
from kernelwright.kernels.registry import define, op_of


@pytest.mark.parametrize("kind", [*QUANTISED, "f32"])
def test_dense_weights_take_four_bytes_each_and_raw_ones_the_files(kind: str) -> None:
    definition = define(f"{kind}_gate_up_silu", f=256, h=512)
    contract = op_of(definition).contract(definition)
    assert _dense(definition, contract) == 2 * 256 * 512 * 4
    per_block = (QUANTISED[kind].block_bytes, QUANTISED[kind].block_weights) if kind in QUANTISED else (4, 1)
    assert _raw(definition, contract) == 2 * 256 * 512 // per_block[1] * per_block[0]


@pytest.mark.parametrize("kind", QUANTISED)
def test_a_region_counts_its_norm_as_floats(kind: str) -> None:
    definition = define(f"{kind}_mlp_block", f=256, h=512)
    assert _dense(definition, op_of(definition).contract(definition)) == 4 * (3 * 256 * 512 + 512)
