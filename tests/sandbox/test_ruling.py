"""A miracle is `suspect`, not `faster`."""

from __future__ import annotations

import time

import pytest

from kernelwright.profiles.profile import Ceilings
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.ruling import Ruling, write_verdict
from kernelwright.sandbox.stats import Launch, bootstrap, decide
from tests.sandbox.posed import pose

CEILINGS = Ceilings(
    dram_bytes_per_s=10e9, cache_bytes_per_s=30e9, fp32_flops_per_s=50e9, threads=2, working_set_bytes=100_000_000
)


def rule(candidate_us: float, ceilings: Ceilings | None) -> Ruling:
    problem = pose()
    ruling = Ruling(problem.incumbent, "search", time.monotonic())
    launches = [Launch((1e-3,) * 8, (candidate_us * 1e-6,) * 8)]
    interval = bootstrap(launches)
    ruling.compare(interval, launches, 0.01, 0.95)
    ruling.check_roofline(problem, ceilings, ring=4)
    if not ruling.settled:
        ruling.settle(*decide(interval, 0.01))
    return ruling


@pytest.mark.parametrize(("microseconds", "outcome"), [(0.1, "suspect"), (500.0, "faster"), (2000.0, "slower")])
def test_faster_than_the_machine_can_be_is_suspect(microseconds: float, outcome: str) -> None:
    assert rule(microseconds, CEILINGS).outcome == outcome


def test_without_ceilings_the_miracle_would_pass() -> None:
    """The control switched off."""
    assert rule(0.1, None).outcome == "faster"


def test_the_first_outcome_stands() -> None:
    ruling = Ruling(pose().incumbent, "search", time.monotonic())
    ruling.settle("incorrect", "wrong")
    ruling.settle("faster", "no")
    assert (ruling.outcome, ruling.reason) == ("incorrect", "wrong")


def test_a_bench_with_a_control_off_claims_no_level() -> None:
    problem = pose()
    ruling = rule(500.0, CEILINGS)
    ruling.saw_isolation("L3", {"seccomp": "2"})
    assert write_verdict(problem, ruling, Controls()).isolation == "L3"
    open_verdict = write_verdict(problem, ruling, Controls(poison=False))
    assert open_verdict.isolation == "L0"
    assert "poison" in open_verdict.isolation_facts["controls_off"]
