"""What a gate feeds both engines, and where in the model it looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kernelwright.engine.client import ScoreRow
from kernelwright.engine.gate_hidden import judge_hidden, measure_hidden
from kernelwright.engine.gate_modes import mode_runs
from kernelwright.engine.gate_plan import GatePlan
from kernelwright.engine.gate_texts import KINDS, Library, plan_batched, plan_decode, plan_prefill


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(lambda text: list(text.encode()))


def test_plans_reach_their_tokens_with_all_kinds_of_text(library: Library) -> None:
    decode, batched = list(plan_decode(library, 1024, 2047)), list(plan_batched(library, 4096, 2047))
    prefill = list(plan_prefill(library, 16384, 2047))
    for runs, least in ((decode, 1024), (batched, 4096), (prefill, 16384)):
        assert least <= sum(run.rows for run in runs) < 1.2 * least
        assert {s.document.split("@")[0] for run in runs for s in run.sequences} == set(KINDS)
    assert all(len(run.sequences) == 8 for run in batched) and all(len(run.sequences) == 1 for run in prefill)
    assert {len(run.sequences[0].prompt) % 16 for run in prefill} > {0, 1, 15}


def test_decode_is_forced_at_short_and_at_the_longest_contexts(library: Library) -> None:
    for runs in (list(plan_decode(library, 1024, 2047)), list(plan_batched(library, 4096, 2047))):
        positions = [p for run in runs for s in run.sequences for p in range(len(s.prompt), len(s.prompt + s.forced))]
        assert min(positions) == 16 and max(positions) == 2046
        assert sum(position >= 1000 for position in positions) >= 100


def test_a_plan_is_cut_where_the_machine_is_slow(library: Library) -> None:
    plan = GatePlan(library)
    assert plan.within(left_s=400, null_s=20) is plan
    assert plan.within(left_s=400, null_s=60).brief and plan.within(left_s=400, null_s=60).rows < plan.rows / 4
    roomy = GatePlan(library, longest=1 << 20)
    assert roomy.within(left_s=400, null_s=600) is roomy


def test_batches_of_every_size_from_eight_to_one_are_forced(library: Library) -> None:
    lengths = [sorted(len(s.forced) for s in run.sequences) for run in plan_batched(library, 4096, 2047)]
    assert any(len(set(forced)) == 8 for forced in lengths) and [128] * 8 in lengths


def test_nothing_planned_is_longer_than_the_model_takes(library: Library) -> None:
    for longest in (200, 400):
        plans = [plan(library, 4096, longest) for plan in (plan_decode, plan_batched, plan_prefill)]
        for run in (*(run for plan in plans for run in plan), *mode_runs(library, longest)):
            assert all(len(sequence.prompt) + len(sequence.forced) <= longest for sequence in run.sequences)


def test_a_window_knows_what_follows_each_token(library: Library) -> None:
    window = library.window("code", 5, 16, 4)
    assert window.prompt + window.forced == tuple(library.stream("code")[5:25])
    assert window.after(0) == window.prompt[1] and window.after(15) == window.forced[0]
    assert window.after(16) == window.forced[1] and window.after(19) is None


class Layered:
    """Hidden states of four layers; from layer `wrong_from` on they are off by `error`."""

    def __init__(self, error: float = 0.0, wrong_from: int = 2) -> None:
        self.error, self.wrong_from = error, wrong_from

    def score(
        self, sequences: Sequence[Any], phase: Any, what: str = "logits", chunk: Any = None
    ) -> Iterator[ScoreRow]:
        assert what == "hidden"
        for number, (prompt, forced) in enumerate(sequences):
            tokens = prompt if phase == "prefill" else (*prompt, *forced)
            for position in range(0 if phase == "prefill" else len(prompt), len(tokens)):
                seed = hash(tuple(tokens[: position + 1])) % 2**32
                states = np.random.default_rng(seed).standard_normal((4, 32))
                states *= 1 + 1e-6 * np.random.default_rng([seed, len(sequences)]).standard_normal((4, 32))
                states[self.wrong_from :] *= 1 + self.error * np.random.default_rng(seed + 1).standard_normal((1, 32))
                yield ScoreRow(number, position, states.astype(np.float32).ravel())


@pytest.mark.parametrize(
    ("error", "state"), [(0.0, None), (3e-5, "review"), (4e-3, "refuse"), (float("nan"), "refuse")]
)
def test_the_layer_where_states_part_is_named(library: Library, error: float, state: str | None) -> None:
    hidden = measure_hidden(library, Layered(), Layered(error), 4, 500)
    found = judge_hidden(hidden)
    assert max(hidden.null) < 1e-5 and [state for state, _ in found] == [state] * 2 if state else found == []
    if state and error == error:
        assert all("from layer 2 on" in reason for _, reason in found) and hidden.decode[1] < 1e-5 < hidden.decode[2]
