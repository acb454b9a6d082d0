"""The generic op draws what tags and constraints say, and is what every definition not of ours gets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernels.definition import Axis, Definition, TensorSpec
from kernelwright.kernels.ops import generic
from kernelwright.kernels.registry import OPS, is_ours, op_named, op_of
from kernelwright.profiles.errors import WrongUse
from tests.kernels.slots import SMALL, small


def define(constraints: tuple[str, ...] = (), tags: tuple[str, ...] = (), **inputs: TensorSpec) -> Definition:
    return Definition(
        name="somebody", op_type="thing",
        axes={"n": Axis(type="var"), "k": Axis(type="const", value=7), "one": Axis(type="const", value=1)},
        inputs=inputs or {"x": TensorSpec(shape=("n", "k"), dtype="float32")},
        outputs={"y": TensorSpec(shape=("n",), dtype="float32")},
        reference="def run(x):\n    return (x.sum(1),)\n", constraints=constraints, tags=tags,
    )  # fmt: skip


def draw(
    definition: Definition, n: int = 50, distribution: str = "normal", weights: bool = True
) -> dict[str, torch.Tensor]:
    return generic.generate(definition, {"n": n}, torch.Generator().manual_seed(1), distribution, weights)  # type: ignore[return-value]


@pytest.mark.parametrize("op_type", SMALL)
def test_ours_keep_their_own_op(op_type: str) -> None:
    assert is_ours(small(op_type)) and op_of(small(op_type)) is op_named(op_type)


@pytest.mark.parametrize("op_type", [*OPS, "thing"])
def test_a_foreign_definition_gets_the_generic_op_whatever_it_calls_itself(op_type: str) -> None:
    foreign = define().model_copy(update={"op_type": op_type, "name": f"{op_type}_h64"})
    assert not is_ours(foreign)
    assert op_of(foreign).incumbent(foreign).sources[0].content == foreign.reference


def test_ours_with_other_inputs_is_not_ours() -> None:
    mine = small("add_rmsnorm")
    inputs = {**mine.inputs, "more": TensorSpec(shape=("T",), dtype="float32")}
    assert not is_ours(Definition.model_validate({**mine.model_dump(), "inputs": inputs}))


IDS = TensorSpec(shape=("n",), dtype="int64")
BOUNDS = {
    (): (0, 1), ("ids >= 3", "ids <= 9"): (3, 9), ("3 <= ids < 10",): (3, 9), ("0 <= ids", "ids < k"): (0, 6),
    ("ids < k - 2",): (0, 4), ("-4 <= ids", "ids <= -2"): (-4, -2), ("ids == 5",): (5, 5), ("ids < other",): (0, 1),
    ("ids >= 3", "x > ids >", "len(ids) == 4"): (3, 3), ("10 > ids > 2",): (3, 9), ("ids <= n",): (0, 50),
}  # fmt: skip


@pytest.mark.parametrize(("constraints", "bounds"), BOUNDS.items(), ids=[" & ".join(c) or "none" for c in BOUNDS])
def test_integers_stay_inside_their_constraints_and_reach_both_ends(
    constraints: tuple[str, ...], bounds: tuple[int, int]
) -> None:
    definition = define(constraints, ids=IDS)
    assert generic.int_range(definition, "ids", {"n": 50}) == bounds
    values = torch.cat([draw(definition)["ids"] for _ in range(1)] + [
        generic.generate(definition, {"n": 50}, torch.Generator().manual_seed(s), "normal")["ids"] for s in range(40)
    ])  # fmt: skip
    assert values.dtype == torch.int64
    assert (int(values.min()), int(values.max())) == bounds


@given(st.integers(-1000, 1000), st.integers(0, 1000))
def test_any_range_is_read_back(low: int, width: int) -> None:
    definition = define((f"ids >= {low}", f"ids <= {low + width}"), ids=IDS)
    assert generic.contract(definition).int_ranges == {"ids": (low, low + width)}


@given(st.text(max_size=30))
def test_no_constraint_breaks_it(text: str) -> None:
    low, high = generic.int_range(define((text,), ids=IDS), "ids", {"n": 3})
    assert low <= high


def test_int8_and_bool_have_their_whole_range() -> None:
    both = define(q=TensorSpec(shape=("n", "k"), dtype="int8"), mask=TensorSpec(shape=("n",), dtype="bool"))
    drawn = draw(both, n=2000)
    assert (int(drawn["q"].min()), int(drawn["q"].max())) == (-128, 127)
    assert drawn["mask"].dtype == torch.bool and 0 < int(drawn["mask"].sum()) < 2000


def test_scalars_come_from_constraints_or_are_sensible() -> None:
    scalars = {n: TensorSpec(shape=None, dtype="float32") for n in ("alpha", "eps")}
    steps = TensorSpec(shape=None, dtype="int32")
    drawn = draw(define(("alpha == 0.25", "steps == 4"), steps=steps, **scalars))
    assert drawn == {"steps": 4, "alpha": 0.25, "eps": 1e-6} and type(drawn["steps"]) is int


def test_weights_are_told_by_tags_and_left_out_when_asked() -> None:
    specs = {"x": TensorSpec(shape=("n", "k"), dtype="float32"), "w": TensorSpec(shape=("k", "k"), dtype="bfloat16"),
             "g": TensorSpec(shape=(), dtype="float32")}  # fmt: skip
    definition = define(tags=("weight:w", "weight:g"), **specs)
    assert generic.contract(definition).weights == ("w", "g")
    assert set(draw(definition, weights=False)) == {"x"}
    drawn = draw(definition)
    assert drawn["w"].dtype == torch.bfloat16 and drawn["g"].shape == ()
    assert float(drawn["g"]) not in (0.0, 1.0), "away from what a layer begins with"


@pytest.mark.parametrize("side", ["triu", "tril"])
def test_triangles_are_triangles(side: str) -> None:
    square = TensorSpec(shape=("k", "k"), dtype="float32")
    drawn = draw(define((f"{side}(a)",), a=square))["a"]
    other = torch.tril(drawn, -1) if side == "triu" else torch.triu(drawn, 1)
    assert bool(drawn.any()) and not bool(other.any())


def test_cost_counts_every_byte_once() -> None:
    assert generic.cost(define(), {"n": 10}).bytes == 4 * (10 * 7 + 10)


def test_all_axes_may_be_const() -> None:
    fixed = define(x=TensorSpec(shape=("k", "one"), dtype="float16"))
    fixed = Definition.model_validate({**fixed.model_dump(), "axes": {k: v for k, v in fixed.axes.items() if k != "n"},
                                       "outputs": {"y": {"shape": [], "dtype": "float32"}}})  # fmt: skip
    assert generic.contract(fixed).token_axis == ""
    assert generic.generate(fixed, {}, torch.Generator(), "outliers")["x"].shape == (7, 1)  # type: ignore[union-attr]


def test_it_has_no_definition_of_its_own() -> None:
    with pytest.raises(WrongUse):
        generic.definition(h=4)
