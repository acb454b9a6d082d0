"""Every family, at its default and at random points: right at odd shapes and batches, as its ranges claim."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.build import compile_command, run_here, write_sources
from kernelwright.kernels.families.rendering import LANES
from kernelwright.kernels.families.table import FAMILIES, Family, family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.ops.draws import DISTRIBUTIONS
from kernelwright.kernels.registry import define, op_of

sys.path.append(str(Path(__file__).parent))
from slots import draw_inputs, load_built, load_incumbent, max_error, reference_outputs, slot_outputs, small

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(detect_isa() not in LANES, reason="no family is rendered for this processor"),
]
SLACK = 16.0
"""Times the incumbent's error on tiny shapes, where its own is a matter of luck; the judge's gates are far stricter."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def family(op_type: str) -> Family:
    found = family_of(small(op_type))
    assert found is not None
    return found


def check(op_type: str, index: int, isa: str, cache: Path) -> None:
    definition = small(op_type)
    points = family(op_type).points(definition, isa)
    point = points[0] if index == 0 else random.Random(f"{op_type}{index}").choice(points[1:])
    candidate = load_built(definition, family(op_type).render(definition, point, isa), cache)
    incumbent = load_incumbent(definition)
    for tokens in (1, 2, 3, 7, 8):
        for distribution in DISTRIBUTIONS:
            inputs = draw_inputs(definition, tokens, distribution, seed=tokens)
            want = reference_outputs(definition, inputs)
            theirs, mine = slot_outputs(incumbent, inputs), slot_outputs(candidate, inputs)
            for name, tensor in want.items():
                floor = 4 * torch.finfo(torch.float32).eps * float(tensor.abs().max())
                allowed = max(SLACK * max_error(theirs[name], tensor), floor)
                assert max_error(mine[name], tensor) <= allowed, (point, tokens, distribution, name)
                if candidate.contract.linear and distribution == "exact":
                    assert torch.equal(mine[name].double(), tensor), (point, tokens)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("op_type", FAMILIES)
def test_points_agree_with_the_reference(op_type: str, index: int, cache: Path) -> None:
    check(op_type, index, detect_isa(), cache)


@pytest.mark.skipif(detect_isa() not in ("x86-64-v3", "x86-64-v4"), reason="this host's own level is the portable one")
@pytest.mark.parametrize("op_type", FAMILIES)
def test_the_portable_level_agrees_with_the_reference(op_type: str, cache: Path) -> None:
    check(op_type, 1, "x86-64-v2", cache)


@pytest.mark.skipif(detect_isa() != "x86-64-v4", reason="this host's own level is no higher, or another one")
@pytest.mark.parametrize("op_type", [name for name, made in FAMILIES.items() if ":" in made])
def test_the_avx2_level_agrees_with_the_reference_too(op_type: str, cache: Path) -> None:
    check(op_type, 3, "x86-64-v3", cache)


@pytest.mark.slow
@pytest.mark.skipif(not detect_isa().startswith("x86"), reason="compiles x86 code")
@pytest.mark.parametrize("op_type", FAMILIES)
def test_the_avx512_level_compiles(op_type: str, tmp_path: Path) -> None:
    definition = small(op_type)
    for point in family(op_type).points(definition, "x86-64-v4")[:1]:
        candidate = family(op_type).render(definition, point, "x86-64-v4")
        write_sources(candidate, tmp_path)
        done = run_here([*compile_command(candidate, Path("kernel.so")), "-Wall", "-Werror"], tmp_path, 120.0)
        assert done.returncode == 0, done.log


@pytest.mark.parametrize("op_type", FAMILIES)
def test_points_start_at_the_default_and_are_distinct(op_type: str) -> None:
    definition, mine = small(op_type), family(op_type)
    points = mine.points(definition, detect_isa())
    assert points[0] == mine.default_point()
    assert len({tuple(point.items()) for point in points}) == len(points) >= 6
    candidates = [mine.render(definition, point, detect_isa()) for point in points[:8]]
    assert len({candidate.sources[0].content for candidate in candidates}) == len(candidates)


@pytest.mark.parametrize("op_type", FAMILIES)
def test_candidates_say_who_made_them_and_where_they_hold(op_type: str) -> None:
    definition = small(op_type)
    candidate = family(op_type).render(definition, family(op_type).default_point(), detect_isa())
    assert (candidate.proposer, candidate.author, candidate.isa) == ("templates", op_type, detect_isa())
    assert candidate.parameters == family(op_type).default_point()
    token_axis = op_of(definition).contract(definition).token_axis
    assert candidate.covers({token_axis: 1})
    assert candidate.covers({token_axis: 9}) == (token_axis not in candidate.ranges)


def test_a_point_outside_the_space_is_refused() -> None:
    mine, definition = family("q4_1_linear"), small("q4_1_linear")
    with pytest.raises(ValueError, match="tiles=3"):
        mine.render(definition, mine.default_point() | {"tiles": 3}, "x86-64-v3")
    with pytest.raises(ValueError, match="names exactly"):
        mine.render(definition, {"tiles": 1}, "x86-64-v3")
    with pytest.raises(ValueError, match="rendered for one of"):
        mine.render(definition, mine.default_point(), "any")


@pytest.mark.parametrize(
    ("kind", "most"), [("q4_0", 1.0), ("q8_0", 1.0), ("q4_k", 1.03), ("q6_k", 1.01), ("bf16", 1.0)]
)
@pytest.mark.parametrize("isa", LANES)
def test_packed_weights_are_hardly_larger_than_the_file(kind: str, most: float, isa: str) -> None:
    definition = define(f"{kind}_gate_up_silu", f=512, h=2048)
    mine = family_of(definition)
    assert mine is not None
    (packed,) = mine.render(definition, mine.default_point(), isa).packed
    assert 1.0 <= packed.shape[0] / (1024 * definition.axes["HB"].value) <= most  # type: ignore[operator]


def test_a_table_of_sixteen_lanes_is_only_offered_where_there_are_sixteen() -> None:
    definition, mine = small("q4_0_linear"), family("q4_0_linear")
    ways = {isa: {point["decode"] for point in mine.points(definition, isa)} for isa in LANES}
    assert ways.pop("x86-64-v4") == {"shift", "table"}
    assert set().union(*ways.values()) == {"shift"}


def test_bfloat16_rows_that_are_not_whole_parts_have_no_points() -> None:
    for definition in (define("bf16_linear", n=8, k=40), define("bf16_mlp_block", f=72, h=64)):
        mine = family_of(definition)
        assert mine is not None and mine.points(definition, "x86-64-v3") == []


def test_a_shape_the_vectors_do_not_fit_has_no_points() -> None:
    assert family("add_rmsnorm").points(define("add_rmsnorm", h=100), "x86-64-v3") == []
    assert family_of(define("f32_linear", n=8, k=32)) is None


@pytest.mark.parametrize("op_type", ["q4_1_linear", "q8_0_linear"])
def test_more_tokens_than_claimed_are_refused(op_type: str, cache: Path) -> None:
    definition = small(op_type)
    candidate = family(op_type).render(definition, family(op_type).default_point(), detect_isa())
    inputs = draw_inputs(definition, 9, "normal")
    with pytest.raises(ValueError, match="1 to 8 tokens"):
        slot_outputs(load_built(definition, candidate, cache), inputs)


def test_slots_and_pages_out_of_range_are_refused_before_anything_is_written(cache: Path) -> None:
    definition = small("rope_cache")
    rope = load_built(
        definition, family("rope_cache").render(definition, family("rope_cache").default_point(), detect_isa()), cache
    )
    inputs = draw_inputs(definition, 2, "normal")
    inputs["slot_mapping"][1] = inputs["k_cache"].shape[0] * 16
    before = inputs["k_cache"].clone()
    with pytest.raises(ValueError, match="a slot is out of range"):
        rope.bind(inputs)(**inputs)
    assert torch.equal(inputs["k_cache"], before)
    definition = small("decode_attention")
    mine = family("decode_attention")
    attention = load_built(definition, mine.render(definition, mine.default_point(), detect_isa()), cache)
    inputs = draw_inputs(definition, 2, "normal")
    inputs["block_table"][0, 0] = -1
    with pytest.raises(ValueError, match="a page is out of range"):
        slot_outputs(attention, inputs)


def test_equal_calls_give_equal_bits_at_every_thread_count(cache: Path) -> None:
    definition = small("q4_1_attention_block")
    mine = family("q4_1_attention_block")
    point = mine.default_point() | {"split": 32, "schedule": "dynamic"}
    block = load_built(definition, mine.render(definition, point, detect_isa()), cache)
    inputs = draw_inputs(definition, 3, "normal")
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 5, 2):
            torch.set_num_threads(count)
            results.append(slot_outputs(block, inputs))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(results[0][name], other[name]) for name in results[0])
