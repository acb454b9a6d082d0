"""Planted kernels in the engine, scored by the gate in real cages: damage is refused, an honest rewrite passes."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernelwright.engine.gate import Gate, prepare_arms
from kernelwright.engine.gate_hidden import judge_hidden
from kernelwright.engine.gate_limits import State, rule
from kernelwright.engine.gate_modes import judge_modes
from kernelwright.engine.gate_plan import GatePlan, plan_gate
from kernelwright.engine.weights import cached_default_model

DAMAGED = {"bf16": "decode", "one_row": "decode", "past_1000": "decode", "race": "decode_batch8"}


def plant(folder: Path, model: Path, name: str) -> Path:
    spec = importlib.util.spec_from_file_location("plants", Path(__file__).with_name("plants.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.plant(folder, model, name)  # type: ignore[no-any-return]


def score(folder: Path, model: Path, name: str, plan: GatePlan) -> tuple[Gate, dict[str, Any], list[tuple[State, str]]]:
    """Return the gate that scored the planted pack, its rulings by phase, and what the modes and layers say."""
    folder.chmod(0o755)
    pack = plant(folder / "pack", model, name)
    arm = prepare_arms(model, pack, min(2, len(os.sched_getaffinity(0))), folder / "cache", "bubblewrap")
    gate = Gate(arm, plan, lambda done, total, text: None, time.monotonic() + 600)
    with ExitStack() as stack:
        engines = gate.start(stack)
        gate.measure_null(*engines)
        gate.score(*engines)
    rulings = {phase.phase: rule(phase) for phase in gate.scores.fidelity(gate.null)}
    return gate, rulings, [*judge_modes(gate.modes), *judge_hidden(gate.hidden)]


def check(name: str, gate: Gate, rulings: dict[str, Any], rest: list[tuple[State, str]]) -> None:
    (kernel,) = gate.kernels
    assert kernel.state == "live" and kernel.hits_by_phase["decode"] > 100 and kernel.hits_by_phase["decode_batch8"] > 0
    if name == "split_sum":
        assert {ruling.state for ruling in rulings.values()} == {"pass"} and rest == []
        assert 0 < gate.scores.fidelity(gate.null)[0].mean_kld < 1e-10
    else:
        assert rulings[DAMAGED[name]].state == "refuse", (rulings, rest)


@pytest.mark.cage
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [*DAMAGED, "split_sum"])
def test_planted_damage_is_refused_on_a_tiny_model(
    name: str, tmp_path: Path, make_tiny_model: Callable[..., Path]
) -> None:
    model = make_tiny_model(tmp_path / "tiny.gguf", metadata={"llama.context_length": 2048})
    plan = plan_gate(model, budget_s=400)
    assert not plan.brief
    check(name, *score(tmp_path, model, name, GatePlan(plan.library, prefill_tokens=2048)))


@pytest.mark.slow
@pytest.mark.cage
@pytest.mark.weights
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*DAMAGED, "split_sum"])
def test_planted_damage_is_refused_on_a_real_model(name: str, tmp_path: Path) -> None:
    model = cached_default_model()
    if model is None:
        pytest.skip("the default model is not in the cache: run `kernelwright serve` once")
    found = score(tmp_path, model, name, GatePlan(plan_gate(model, budget_s=400).library, prefill_tokens=2048))
    print(
        name,
        *(
            phase.model_dump_json(exclude={"histogram", "histogram_edges"})
            for phase in found[0].scores.fidelity(found[0].null)
        ),
        found[1:],
    )
    check(name, *found)
