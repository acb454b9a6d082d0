from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.profiles.attribute import Attribution, SlotKey, attribute, parse_range
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.trace import read_trace

Writer = Callable[..., Path]


def summed(attribution: Attribution) -> dict[str, tuple[int, int]]:
    return {key.definition: (slot.calls, slot.self_ns) for key, slot in attribution.slots.items()}


def test_nested_slots_count_once_and_the_rest_is_unattributed(write_trace: Writer) -> None:
    path = write_trace(
        ("step|decode|1|1", 1000, 100),
        ("slot|region|decode|1|0", 1010, 50),
        ("slot|inner|decode|1|0", 1020, 30),
        ("slot|leaf|decode|1|0", 1025, 5),
        ("aten::mm", 1021, 3),
        ("slot|inner|decode|1|1", 1070, 7),
    )
    got = attribute(read_trace(path))
    assert summed(got) == {"region": (1, 20), "inner": (2, 25 + 7), "leaf": (1, 5)}
    assert (got.busy_ns, got.unattributed_ns) == (100, 43)
    assert got.decode_step_ns == (100,)


def test_phases_and_step_buckets_stay_apart(write_trace: Writer) -> None:
    path = write_trace(
        ("step|prefill|128|1", 0, 500),
        ("slot|a|prefill|128|0", 100, 300),
        ("step|decode|8|8", 500, 90),
        ("slot|a|decode|8|0", 500, 80),
        ("step|decode|1|1", 600, 40),
        ("slot|a|decode|1|0", 600, 40),
    )
    got = attribute(read_trace(path))
    assert {key: slot.self_ns for key, slot in got.slots.items()} == {
        SlotKey("a", "prefill", 128): 300,
        SlotKey("a", "decode", 8): 80,
        SlotKey("a", "decode", 1): 40,
    }
    assert got.steps == {"decode": 2, "prefill": 1}
    assert got.step_ns == {"decode": 130, "prefill": 500}
    assert got.decode_step_ns == (40,)


def test_slots_outside_steps_and_gpu_copies_of_ranges_are_left_out(write_trace: Writer, tmp_path: Path) -> None:
    path = write_trace(
        ("slot|warmup|decode|1|0", 0, 10),
        ("step|decode|1|1", 20, 10),
        ("slot|a|decode|1|0", 22, 4),
        ("slot|other_thread|decode|1|0", 22, 4, 99),
    )
    file = json.loads(path.read_text())
    file["traceEvents"].append(file["traceEvents"][3] | {"cat": "gpu_user_annotation"})
    path.write_text(json.dumps(file))
    got = attribute(read_trace(path))
    assert summed(got) == {"a": (1, 4)}
    assert got.outside == 2


def test_a_range_that_outlives_its_parent_is_clipped_and_the_sums_still_hold(write_trace: Writer) -> None:
    path = write_trace(("step|decode|1|1", 0, 100), ("slot|outer|decode|1|0", 10, 50), ("slot|late|decode|1|0", 50, 30))
    got = attribute(read_trace(path))
    assert summed(got) == {"outer": (1, 40), "late": (1, 10)}
    assert got.clipped == 1
    assert sum(slot.self_ns for slot in got.slots.values()) + got.unattributed_ns == got.busy_ns == 100


def test_equal_intervals_and_empty_ranges(write_trace: Writer) -> None:
    path = write_trace(
        ("slot|whole|decode|1|0", 0, 10),  # written before the step that it fills
        ("step|decode|1|1", 0, 10),
        ("slot|empty|decode|1|0", 10, 0),
        ("step|decode|1|1", 20, 0),
    )
    got = attribute(read_trace(path))
    assert summed(got) == {"whole": (1, 10), "empty": (1, 0)}
    assert (got.busy_ns, got.unattributed_ns) == (10, 0)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([("aten::mm", 0, 5)], "no `step"),
        ([("slot|a|decode|1|0", 0, 5)], "no `step"),
        ([("step|decode|1|1", 0, 9), ("step|decode|1|1", 5, 9)], "nest or overlap"),
        ([("step|decode|1|1", 0, -9)], "negative"),
        ([("step|warp|1|1", 0, 9)], "unknown phase"),
        ([("step|decode|one|1", 0, 9)], "step.decode.one.1"),
        ([("slot|a|decode|1", 0, 9)], "slot.a.decode.1"),
    ],
)
def test_a_trace_that_is_not_of_the_engine_is_refused(write_trace: Writer, events: list[Any], complaint: str) -> None:
    with pytest.raises(BrokenInput, match=complaint) as caught:
        attribute(read_trace(write_trace(*events)))
    assert caught.value.remedy


def test_only_our_own_names_are_ranges() -> None:
    assert parse_range("slotted|x") is None
    assert parse_range("ProfilerStep#3") is None
    parsed = parse_range("slot|q4_1_linear_n960_k576|decode|1|12")
    assert parsed == ("slot", "q4_1_linear_n960_k576", "decode", 1, 12)


Node = tuple[str, int, list[Any], int]  # definition, own time before the children, children, gap after
NODES: st.SearchStrategy[Node] = st.recursive(
    st.tuples(st.sampled_from("abc"), st.integers(1, 10**6), st.just([]), st.integers(0, 999)),
    lambda children: st.tuples(
        st.sampled_from("abc"), st.integers(1, 10**6), st.lists(children, max_size=4), st.integers(0, 999)
    ),
    max_leaves=25,
)
STEPS = st.lists(
    st.tuples(st.sampled_from([("decode", 1), ("decode", 8), ("prefill", 64)]), st.lists(NODES, max_size=5)),
    min_size=1,
    max_size=6,
)


class Layout:
    """Lays out a random program in time and keeps its truth."""

    def __init__(self) -> None:
        self.now = 5_112_512_537_490_005
        self.events: list[tuple[str, int, int]] = []
        self.truth: dict[SlotKey, list[int]] = {}
        self.busy = self.unattributed = 0

    def run(self, node: Node, phase: str, tokens: int) -> None:
        definition, own, children, gap = node
        start = self.now
        self.now += own
        for child in children:
            self.run(child, phase, tokens)
        # the children's gaps are this range's own time
        mine = own + sum(child[3] for child in children)
        self.events.append((f"slot|{definition}|{phase}|{tokens}|0", start, self.now - start))
        calls = self.truth.setdefault(SlotKey(definition, phase, tokens), [0, 0])  # type: ignore[arg-type]
        calls[0] += 1
        calls[1] += mine
        self.now += gap

    def run_step(self, phase: str, tokens: int, nodes: list[Node]) -> None:
        start = self.now
        self.now += 13
        for node in nodes:
            self.run(node, phase, tokens)
        self.events.append((f"step|{phase}|{tokens}|1", start, self.now - start))
        self.busy += self.now - start
        self.unattributed += 13 + sum(node[3] for node in nodes)
        self.now += 5


@settings(max_examples=60, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_self_times_of_random_programs_are_exact(steps: list[Any], random: Any) -> None:
    layout = Layout()
    for (phase, tokens), nodes in steps:
        layout.run_step(phase, tokens, nodes)
    random.shuffle(layout.events)
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": ts / 1000, "dur": d / 1000}
        for n, ts, d in layout.events
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.json")
        path.write_text(json.dumps({"traceEvents": rows}))
        got = attribute(read_trace(path))
    assert {key: [slot.calls, slot.self_ns] for key, slot in got.slots.items()} == layout.truth
    assert (got.busy_ns, got.unattributed_ns) == (layout.busy, layout.unattributed)
    assert (got.clipped, got.outside) == (0, 0)


def test_a_hundred_thousand_ranges_take_one_sweep(write_trace: Writer) -> None:
    # a quadratic sweep would need 10^10 comparisons and run into the test's time limit
    events: list[tuple[str, int, int]] = [("step|decode|1|1", 0, 2_000_000)]
    events += [("slot|a|decode|1|0", 20 * i, 10) for i in range(100_000)]
    got = attribute(read_trace(write_trace(*events)))
    assert summed(got) == {"a": (100_000, 1_000_000)}


def test_a_real_profile_of_nested_ranges_is_attributed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with record_function("step|decode|1|1"):
                for layer in range(2):
                    with record_function(f"slot|outer|decode|1|{layer}"), record_function(f"slot|in|decode|1|{layer}"):
                        torch.ones(64, 64) @ torch.ones(64, 64)
    path = tmp_path / "real.json.gz"
    profiler.export_chrome_trace(str(path))
    trace = read_trace(path)
    got = attribute(trace)
    assert {key.definition: slot.calls for key, slot in got.slots.items()} == {"outer": 6, "in": 6}
    assert (got.steps, got.clipped, got.outside) == ({"decode": 3, "prefill": 0}, 0, 0)
    inner = sum(
        int(d) for d, n in zip(trace.dur, trace.name, strict=True) if trace.pool.names[n].startswith("slot|in|")
    )
    assert got.slots[SlotKey("in", "decode", 1)].self_ns == inner > 0
    assert sum(slot.self_ns for slot in got.slots.values()) + got.unattributed_ns == got.busy_ns
