"""Hand-made traces, ceilings and profiles whose right answers are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.build import ProfileContext
from kernelwright.profiles.profile import Ceilings, Machine, Profile, SlotTime


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """Write events `(name, start_ns, dur_ns[, tid])` as a torch.profiler trace and return its path."""

    def write(*events: tuple[Any, ...], name: str = "trace.json", category: str = "user_annotation") -> Path:
        rows = [
            {
                "ph": "X", "cat": category, "name": event[0], "pid": 7, "tid": event[3] if len(event) > 3 else 7,
                "ts": event[1] / 1000, "dur": event[2] / 1000, "args": {"External id": i},
            }
            for i, event in enumerate(events)
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *rows]}))
        return path

    return write


@pytest.fixture
def ceilings() -> Ceilings:
    """Round numbers: 10 bytes/ns from memory, 100 bytes/ns from cache, 100 FLOP/ns."""
    return Ceilings(
        dram_bytes_per_s=1e10, cache_bytes_per_s=1e11, fp32_flops_per_s=1e11, threads=2, working_set_bytes=90_000_000
    )


@pytest.fixture
def context(ceilings: Ceilings) -> ProfileContext:
    return ProfileContext(
        engine="embedded",
        model="test-model",
        model_digest="m" * 64,
        configuration="c" * 64,
        machine=Machine(cpu="test cpu", isa="x86-64-v3", cores=2, torch="0", kernel="0"),
        ceilings=ceilings,
        step_ms_unprofiled=1.0,
    )


@pytest.fixture
def make_profile(context: ProfileContext) -> Callable[..., Profile]:
    """Return a profile of 1 ms of decode and 1 ms of prefill; what the given slots leave is unattributed."""

    def make(*slots: SlotTime, ceilings: Ceilings | None = context.ceilings) -> Profile:
        facts = context.model_dump(exclude={"costs", "step_ms_profiled", "ceilings"})
        return Profile(
            **facts,
            ceilings=ceilings,
            trace="t" * 64,
            busy_ns=2_000_000,
            unattributed_ns=2_000_000 - sum(slot.self_ns for slot in slots),
            steps={"decode": 1, "prefill": 1},
            step_ns={"decode": 1_000_000, "prefill": 1_000_000},
            step_ms_profiled=1.1,
            slots=slots,
        )

    return make
