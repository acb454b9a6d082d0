from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kernelwright.agent.pictures import draw_attempts, draw_kl, draw_pairs, draw_pictures, draw_roofline
from kernelwright.profiles.drawing import VARIABLES

FIXTURE = Path(__file__).resolve().parents[1] / "data" / "report.json"


@pytest.fixture
def report() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(FIXTURE.read_text())
    return values


def words(svg: str) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))


def test_every_picture_is_sound_svg_in_the_colours_of_the_page(report: dict[str, Any]) -> None:
    pictures = draw_pictures(report)
    assert set(pictures) == {"time", "roofline", "attempts", "pairs", "kl"}
    ids: list[str] = []
    for svg in pictures.values():
        ElementTree.fromstring(svg.replace("xlink:href", "href"))
        assert not [colour for colour in VARIABLES if colour in svg]
        assert "var(--ink)" in svg or "var(--muted)" in svg
        ids += re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids)), "two pictures on one page share an id"


def test_without_data_there_is_no_picture() -> None:
    empty: dict[str, Any] = {
        "profile": {"slots": [], "busy_ns": 0}, "attempt_log": [{"definition": "a", "ratio": None}], "pairs": {"a": []},
        "kl_histogram": {"decode": {"edges": [0, 1], "counts": [0]}, "prefill": {"edges": [0, 1], "counts": [0]}},
    }  # fmt: skip
    assert draw_pictures(empty) == {}
    assert draw_pictures({}) == {}


def test_slots_without_a_model_are_left_out_of_the_roofline(report: dict[str, Any]) -> None:
    svg = draw_roofline(report)
    assert svg and "q4_1_gate_up_silu_f1536_h576 (decode, 1)" in words(svg)
    assert "prefill_attention" not in words(svg)
    for slot in report["profile"]["slots"]:
        slot["flops_per_call"] = None
    assert draw_roofline(report) is None
    assert draw_roofline(report | {"ceilings": None}) is None


def test_ratios_near_one_still_have_ticks() -> None:
    kernel = {"definition": "a", "ratio": 1.03, "interval": [1.02, 1.04]}
    report = {"accepted": [kernel], "pairs": {"a": [math.log(1.02), math.log(1.03), math.log(1.04)]}}
    svg = draw_pairs(report)
    assert svg and len(re.findall(r"1(?:\.\d+)?×", words(svg))) >= 3
    assert "a (n=3)" in re.sub(r"\s+", " ", words(svg))
    alone = draw_pairs({"accepted": [kernel | {"n": 40}]})
    assert alone and "[1.02, 1.04]" in words(alone) and "n=40" in words(alone)
    assert draw_pairs({"accepted": [kernel | {"interval": None}], "pairs": report["pairs"]}) is None


def test_one_attempt_and_one_phase_are_enough(report: dict[str, Any]) -> None:
    row = {"definition": "a", "phase": "confirm", "outcome": "faster", "ratio": 1.2, "low": 1.1, "high": 1.3}
    assert draw_attempts({"attempt_log": [row]})
    only = {"kl_histogram": {"decode": report["kl_histogram"]["decode"]}}
    svg = draw_kl(only)
    assert svg and "prefill" not in words(svg)
