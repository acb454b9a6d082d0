"""Which accepted kernels go into the pack together."""

from __future__ import annotations

from kernelwright.agent.compose import Accepted, compose
from kernelwright.agent.regions import add_regions
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import SlotContract
from kernelwright.profiles.target import Target
from tests.agent.scripted_bench import verdict

CONTRACTS = {
    "norm": SlotContract(definition="norm", token_axis="T"),
    "up": SlotContract(definition="up", token_axis="T"),
    "block": SlotContract(definition="block", token_axis="T", regions=("norm", "up")),
}


def accepted(name: str, ratio: float) -> Accepted:
    source = SourceFile(path="k.cpp", content=name)
    candidate = Candidate(definition=name, language="cpp", sources=(source,), proposer="templates", author="x")
    return Accepted(candidate, verdict(candidate, "confirm", "faster", ratio))  # candidate_us = 100 / ratio


def target(name: str, ns: float, share: float, roofline: float | None = None) -> Target:
    return Target(
        profile="0" * 64, definition=name, phase="decode", tokens=1, share=share, ns_per_call=ns, headroom=None,
        roofline_ns=roofline, bound="memory", ceiling=1.1, reachable=True,
    )  # fmt: skip


LONE = {"norm": target("norm", 20e3, 0.1, 2e3), "up": target("up", 90e3, 0.4, 30e3)}


def test_a_region_that_beats_its_ops_goes_in_beside_them() -> None:
    chosen, left = compose({"up": accepted("up", 2.0), "block": accepted("block", 2.0)}, CONTRACTS, LONE)
    assert chosen == ["up", "block"] and left == {}  # 50 us against 20 + 50


def test_a_region_slower_than_its_ops_apart_stays_out_and_the_reason_is_told() -> None:
    chosen, left = compose({"up": accepted("up", 4.0), "block": accepted("block", 2.0)}, CONTRACTS, LONE)
    assert chosen == ["up"] and "45 us" in left["block"]  # 50 us against 20 + 25


def test_a_regions_share_is_that_of_what_it_hides() -> None:
    ranked = add_regions(LONE.values(), CONTRACTS.values(), {"norm": 61, "up": 30, "block": 30})
    block = next(t for t in ranked if t.definition == "block")
    assert abs(block.share - (0.1 * 30 / 61 + 0.4)) < 1e-9
    assert block.ns_per_call == 110e3 and block.roofline_ns == 32e3


def test_a_region_is_not_ranked_when_the_trace_lacks_one_of_its_ops() -> None:
    ranked = add_regions([LONE["up"]], CONTRACTS.values(), {"norm": 61, "up": 30, "block": 30})
    assert [t.definition for t in ranked] == ["up"]
