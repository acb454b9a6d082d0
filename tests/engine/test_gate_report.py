"""The gate's page: whole, without scripts or anything from outside, with a picture for all it has data for."""

from __future__ import annotations

import re

from kernelwright.engine.gate_collapse import Generation
from kernelwright.engine.gate_fidelity import summarise
from kernelwright.engine.gate_generate import GenerationCheck
from kernelwright.engine.gate_hidden import HiddenDrift
from kernelwright.engine.gate_limits import rule
from kernelwright.engine.gate_liveness import LiveKernel
from kernelwright.engine.gate_modes import ModeDrift
from kernelwright.engine.gate_report import render_gate_report
from kernelwright.engine.gate_result import GateResult
from kernelwright.engine.gate_row import Row
from kernelwright.engine.gate_speed import EngineComparison, Kind


def speed(kind: Kind) -> EngineComparison:
    return EngineComparison(
        kind=kind, incumbent_tok_s=10, patched_tok_s=30, ratio=3.0, low=2.8, high=3.2, n=4, launches=2, floor=0.01,
        prompt_tokens=128, new_tokens=64, pairs=(((3.0, 1.0), (3.1, 1.0)), ((2.9, 1.0), (3.0, 1.1))),
    )  # fmt: skip


def result(**more: object) -> GateResult:
    rows = [Row("d", p, 1e-12 * (p + 1), True, 0.5, 0.0, 0.0, True, False) for p in range(2000)]
    fidelity = tuple(summarise(name, rows, rows[:9]) for name in ("decode", "decode_batch8", "prefill"))
    answer = Generation(tokens=9, finish="stop", longest_run=1, repeated_4grams=0.0, replacement_characters=0)
    values = {
        "pack": "6" * 64, "model_digest": "0" * 64, "state": "review", "reasons": ("decode: <b>odd</b>",),
        "isolation": "L3", "isolation_facts": {}, "decode": speed("decode"), "prefill": speed("prefill"),
        "fidelity": fidelity, "rulings": {phase.phase: rule(phase) for phase in fidelity},
        "kernels": (
            LiveKernel(definition="d_h8", candidate="7" * 64, state="live", hits=5, hits_by_phase={"decode": 5}),
        ),
        "generation": GenerationCheck(
            prompts=1, max_tokens=9, identical=0, first_divergence=(4,), incumbent=(answer,), patched=(answer,)
        ),
        "modes": (
            ModeDrift(
                mode="together", tokens=8, incumbent_kld=1e-12, patched_kld=0.0, incumbent_max=0, patched_max=0,
                incumbent_identical=0, patched_identical=1,
            ),
        ),
        "hidden": HiddenDrift(tokens=8, decode=(1e-7, 2e-7), prefill=(0.0, 0.0), null=(1e-7, 1e-7)),
        "resident_bytes": (10**9, 11 * 10**8), "ready_s": (1.0, 1.0), "threads": 2, "seconds": {},
    }  # fmt: skip
    return GateResult.model_validate(values | more)


def test_the_page_has_every_picture_and_asks_nothing_from_outside() -> None:
    page = render_gate_report(result())
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 5 and all(svg.count("<path") > 3 for svg in pictures)
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|url\((?!#)", page)
    assert "A person has to decide" in page and "1000 MB resident before, 1100 MB with the pack (+10.0 %)" in page
    assert "&lt;b&gt;odd" in page and "<b>odd" not in page
    assert ">5</td>" in page and "3.00× [2.80, 3.20], n=4" in page


def test_an_older_result_without_modes_and_layers_is_shown() -> None:
    page = render_gate_report(result(modes=(), hidden=None))
    assert page.count("<svg") == 3


def test_the_same_result_gives_the_same_page() -> None:
    assert render_gate_report(result()) == render_gate_report(result())
