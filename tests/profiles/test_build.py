from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from kernelwright.profiles.build import ProfileContext, SlotCost, build_profile
from kernelwright.profiles.digest import digest_bytes
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.profile import Profile

Writer = Callable[..., Path]
EVENTS = [
    ("step|prefill|64|1", 0, 9000),
    ("slot|linear|prefill|64|0", 100, 8000),
    ("step|decode|1|1", 10_000, 1000),
    ("slot|linear|decode|1|0", 10_100, 500),
    ("step|decode|1|1", 12_000, 3000),
    ("slot|rope|decode|1|0", 12_100, 200),
]


def test_the_profile_sums_exactly_and_names_its_trace(write_trace: Writer, context: ProfileContext) -> None:
    path = write_trace(*EVENTS)
    profile = build_profile(path, context)
    assert profile.trace == digest_bytes(path.read_bytes())
    assert profile.busy_ns == 13_000
    assert profile.unattributed_ns == 13_000 - 8000 - 500 - 200
    assert [(s.definition, s.phase) for s in profile.slots] == [
        ("linear", "prefill"), ("linear", "decode"), ("rope", "decode"),
    ]  # fmt: skip
    assert (profile.steps, profile.step_ns) == ({"decode": 2, "prefill": 1}, {"decode": 4000, "prefill": 9000})
    assert profile.step_ms_profiled == pytest.approx(0.002)
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


def test_costs_join_by_definition_and_bucket_and_their_lack_is_said(
    write_trace: Writer, context: ProfileContext
) -> None:
    costs = (
        SlotCost(definition="linear", tokens=1, bytes=10, flops=20),
        SlotCost(definition="linear", tokens=64, bytes=11, flops=21),
        SlotCost(definition="linear", tokens=64, bytes=12, flops=22, phase="prefill"),
    )
    profile = build_profile(write_trace(*EVENTS), ProfileContext(**{**dict(context), "costs": costs}))
    assert [(s.bytes_per_call, s.flops_per_call) for s in profile.slots] == [(12, 22), (10, 20), (None, None)]


def test_the_profilers_own_cost_must_be_known(write_trace: Writer, context: ProfileContext) -> None:
    path = write_trace(*EVENTS[:2])
    with pytest.raises(BrokenInput, match="no decode step"):
        build_profile(path, context)
    given = ProfileContext(**{**dict(context), "step_ms_profiled": 1.5})
    assert build_profile(path, given).step_ms_profiled == 1.5


def test_a_profile_that_does_not_add_up_cannot_be_made(write_trace: Writer, context: ProfileContext) -> None:
    profile = build_profile(write_trace(*EVENTS), context)
    with pytest.raises(ValidationError, match="sum to"):
        Profile.model_validate(profile.model_dump() | {"unattributed_ns": profile.unattributed_ns + 1})
