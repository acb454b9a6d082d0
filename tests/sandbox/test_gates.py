"""Every gate fires on what it is for, and lets honest kernels through; the separations that the limits rest on."""

from __future__ import annotations

import pytest
import torch

from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.profiles.errors import WrongUse
from kernelwright.sandbox.fidelity import Finding, judge_output
from kernelwright.sandbox.nulls import round_to_int8, round_to_tf32
from kernelwright.sandbox.precision import RELAXATIONS, allowance_of, format_of

T, N = 16, 48


def draw_product(k: int, kind: str = "normal", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, w = torch.randn(T, k, generator=generator), torch.randn(N, k, generator=generator)
    if kind == "lognormal":
        return x.exp(), w.exp()
    if kind == "outliers":
        x[:, ::97] *= 50
    return x, w


def blocked(x: torch.Tensor, w: torch.Tensor, width: int) -> torch.Tensor:
    """Sums of blocks of `width` products, then the sum of the sums."""
    products = x.unsqueeze(1) * w.unsqueeze(0)
    return products.view(T, N, -1, width).sum(-1).sum(-1)


def sequential(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(T, N)
    for i in range(x.shape[1]):
        total += x[:, i : i + 1] * w[:, i]
    return total


def judge_product(
    result: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    zero_mean: bool = True,
    policy: PrecisionPolicy | None = None,
) -> Finding:
    return judge_output(
        result, x @ w.T, x.double() @ w.double().T, magnitude=x.double().abs() @ w.double().abs().T,
        zero_mean=zero_mean, kind="matmul", terms=x.shape[1], policy=policy or PrecisionPolicy(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["normal", "outliers"])
@pytest.mark.parametrize("k", [256, 4096, 16384])
def test_separation_on_zero_mean_inputs(k: int, kind: str) -> None:
    """Honest orders of summation pass; TF32, bfloat16 and int8 inputs fail by far, at every K."""
    x, w = draw_product(k, kind)
    for width in (64, 256):
        finding = judge_product(blocked(x, w, width), x, w)
        assert finding.failed == "" and finding.errors.bound_units < 4, (width, finding)
    for name, rounded, least in (
        ("tf32", round_to_tf32(x) @ round_to_tf32(w).T, 16),
        ("bf16", x.bfloat16().float() @ w.bfloat16().float().T, 128),
        ("int8", round_to_int8(x) @ w.T, 128),
    ):
        finding = judge_product(rounded, x, w)
        assert finding.failed == "error against the incumbent" and finding.rms_ratio > least, (name, finding)
        assert finding.errors.bound_units > 8, (name, finding)


def test_a_sequential_sum_is_weak_but_honest() -> None:
    """Beyond Gate A's factor, inside the review band: it passes because Gate B holds."""
    x, w = draw_product(2048)
    finding = judge_product(sequential(x, w), x, w)
    assert finding.failed == "" and 1.5 < finding.rms_ratio < 16 and finding.errors.bound_units < 8, finding


@pytest.mark.parametrize(("k", "zero_mean"), [(1024, False), (8192, False)])
def test_positive_inputs_have_their_own_limit(k: int, zero_mean: bool) -> None:
    """On lognormal inputs an honest sum needs more than 8 units, and TF32 far more than 32."""
    x, w = draw_product(k, "lognormal")
    assert judge_product(blocked(x, w, 64), x, w, zero_mean).failed == ""
    tf32 = judge_product(round_to_tf32(x) @ round_to_tf32(w).T, x, w, zero_mean)
    assert tf32.failed and tf32.errors.bound_units > 32


def test_the_a_priori_bound_stops_what_a_bad_incumbent_would_let_through() -> None:
    """The incumbent itself rounds its inputs; Gate A says 1.0, Gate B does not care."""
    x, w = draw_product(1024)
    bad = round_to_tf32(x) @ round_to_tf32(w).T
    exact, magnitude = x.double() @ w.double().T, x.double().abs() @ w.double().abs().T
    finding = judge_output(bad, bad, exact, magnitude=magnitude, zero_mean=True, kind="matmul", terms=1024)
    assert finding.rms_ratio == pytest.approx(1.0) and finding.failed == "a-priori bound"
    positive = judge_output(bad, bad, exact, magnitude=magnitude, zero_mean=False, kind="matmul", terms=1024)
    assert positive.failed == "a-priori bound"


def test_nobody_is_held_to_less_than_the_incumbent_reaches() -> None:
    """A sum that needs 10 units where the incumbent needs 7 is as honest; at 40 units the bound still stops it."""
    exact, magnitude = torch.ones(4, 64, dtype=torch.float64), torch.full((4, 64), 16.0, dtype=torch.float64)

    def off_by(units: float) -> torch.Tensor:
        signs = torch.ones(4, 64, dtype=torch.float64)
        signs[:, ::2] = -1
        return (exact + signs * units * 2.0**-24 * 16.0).float()

    asked = {"magnitude": magnitude, "zero_mean": True, "kind": "matmul", "terms": 512}
    assert judge_output(off_by(10), off_by(7), exact, **asked).failed == ""
    assert judge_output(off_by(10), off_by(4), exact, **asked).failed == "error against the incumbent"
    assert judge_output(off_by(40), off_by(38), exact, **asked).failed == "a-priori bound"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_have_gates_of_their_own(dtype: torch.dtype) -> None:
    """Accumulation in float32 (float64) passes; in the narrow type, or a float32 result for float64, it fails."""
    x, w = (t.to(dtype) for t in draw_product(512))
    exact, wide = x.double() @ w.double().T, torch.float64 if dtype == torch.float64 else torch.float32
    magnitude = x.double().abs() @ w.double().abs().T
    incumbent = (x.to(wide) @ w.to(wide).T).to(dtype)
    order = torch.randperm(512, generator=torch.Generator().manual_seed(0))
    honest = (x.to(wide)[:, order] @ w.to(wide)[:, order].T).to(dtype)
    narrow = torch.zeros(T, N, dtype=dtype)
    if dtype == torch.float64:
        narrow = (x.float() @ w.float().T).double()
    else:
        for i in range(512):
            narrow += x[:, i : i + 1] * w[:, i]
    asked = {"magnitude": magnitude, "zero_mean": True, "kind": "matmul", "terms": 512}
    assert judge_output(honest, incumbent, exact, **asked).failed == ""
    assert judge_output(narrow, incumbent, exact, **asked).failed == "error against the incumbent"


def test_an_unknown_dtype_is_an_error_and_not_a_default() -> None:
    numbers = torch.zeros(2, 2, dtype=torch.complex64)
    with pytest.raises(WrongUse, match="complex64"):
        judge_output(numbers, numbers, numbers)
    with pytest.raises(WrongUse, match="float8"):
        format_of("float8_e4m3fn")


def test_shape_and_dtype_come_from_the_trusted_side() -> None:
    exact = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    right = exact.float()
    assert judge_output(right, right, exact).failed == ""
    assert judge_output(torch.zeros(()), right, exact).failed == "shape"
    assert judge_output(right[:1], right, exact).failed == "shape"
    assert judge_output(exact, right, exact).failed == "dtype"
    with pytest.raises(WrongUse, match="of one call"):
        judge_output(right, right[:1], exact)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_each_mask_is_compared(wrong: float) -> None:
    exact = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    right, result = exact.float(), exact.float()
    result[2, 3] = wrong
    finding = judge_output(result, right, exact)
    assert finding.failed == "non-finite values" and finding.errors.num_mismatched == 1
    exact[2, 3] = wrong
    assert judge_output(result, exact.float(), exact).failed == ""
    assert judge_output(right, exact.float(), exact).failed == "non-finite values"


def test_a_nan_that_the_incumbent_drops_may_be_dropped_as_well() -> None:
    exact = torch.ones(2, 4, dtype=torch.float64)
    exact[0, 0] = float("nan")
    dropped = torch.ones(2, 4)
    assert judge_output(dropped, dropped, exact).failed == ""
    elsewhere = dropped.clone()
    elsewhere[1, 1] = float("nan")
    assert judge_output(elsewhere, dropped, exact).failed == "non-finite values"


def test_booleans_are_exact() -> None:
    exact = torch.tensor([[True, False], [False, False]])
    assert judge_output(exact.clone(), exact, exact).failed == ""
    finding = judge_output(~exact, exact, exact)
    assert finding.failed == "integers differ" and finding.errors.num_mismatched == 4


def locality(shape: tuple[int, ...], where: tuple[slice | int, ...]) -> Finding:
    """Judge a result whose errors are the incumbent's, but eight times as large at `where`."""
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(shape, dtype=torch.float64, generator=generator)
    noise = torch.randn(shape, dtype=torch.float64, generator=generator).clamp(-2, 2)
    mine = torch.randn(shape, dtype=torch.float64, generator=generator).clamp(-2, 2)
    mine[where] *= 8
    # one large error of the incumbent's, so that the largest errors say nothing
    noise[(-1,) * len(shape)] = 30
    return judge_output((exact + 1e-5 * mine).float(), (exact + 1e-5 * noise).float(), exact)


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ((256, 256), (7,)),
        ((256, 256), (slice(None), 200)),
        ((512, 512), (slice(32, 48), slice(64, 96))),
        ((16, 64, 32), (slice(None), 3)),
        ((400, 8, 32), (17,)),
    ],
    ids=["row", "column", "tile", "head", "batch entry"],
)
def test_damage_in_one_place_is_seen(shape: tuple[int, ...], where: tuple[slice | int, ...]) -> None:
    finding = locality(shape, where)
    assert finding.failed == "error in one slice", finding
    assert locality(shape, (slice(0, 0),)).failed == ""


def test_the_usual_tolerance_holds_even_beside_a_bad_incumbent() -> None:
    exact = torch.randn(32, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    off = (exact * (1 + 1e-4)).float()
    assert judge_output(off, off, exact, kind="elementwise").failed == "tolerance"
    assert judge_output(exact.float(), off, exact, kind="elementwise").failed == ""
    assert judge_output(off, off, exact, kind="conditioned").failed == ""
    assert judge_output(off, off, exact, kind="rotation").failed == "tolerance"


def test_copies_and_what_is_left_alone_stay_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    before = 1000 * torch.randn(8, 16, generator=generator)
    after = before.clone()
    after[3] = torch.randn(16, generator=generator)
    exact = after.double()
    assert judge_output(after, after, exact, before=before).failed == ""
    touched = after.clone()
    touched[5, 5] = torch.nextafter(touched[5, 5], torch.tensor(torch.inf))
    assert judge_output(touched, after, exact, before=before).failed == "untouched values"
    assert judge_output(touched, after, exact).failed == "", "without it, an ulp of the largest value passes"
    assert judge_output(touched, after, exact, kind="copy").failed == "untouched values"
    assert judge_output(after, after, exact, kind="copy").failed == ""


def test_flushed_denormals_fail_unless_the_policy_allows_them() -> None:
    x, w = draw_product(256)
    x = x * 2.0**-130
    exact, incumbent = x.double() @ (w.double() / 16).T, x @ (w / 16).T
    flushed, garbage = torch.zeros_like(incumbent), torch.ones_like(incumbent)
    other = blocked(x, w / 16, 64)
    may = PrecisionPolicy(allow_flush_to_zero=True)
    assert judge_output(other, incumbent, exact).failed == ""
    assert judge_output(flushed, incumbent, exact).failed == "error against the incumbent"
    assert judge_output(flushed, incumbent, exact, policy=may).failed == ""
    assert judge_output(garbage, incumbent, exact, policy=may).failed


@pytest.mark.parametrize("kind", ["normal", "outliers"])
def test_each_relaxation_lets_through_what_it_names_and_no_more(kind: str) -> None:
    x, w = draw_product(1024, kind)
    tf32 = round_to_tf32(x) @ round_to_tf32(w).T
    bf16 = x.bfloat16().float() @ w.bfloat16().float().T
    int8 = round_to_int8(x) @ w.T
    cut = x[:, :-64] @ w[:, :-64].T
    fast = (x.double() @ w.double().T * (1 + 2.0**-17)).float()
    allowed = {
        "allow_tf32": {"tf32": tf32, "fast": fast},
        "allow_fast_math": {"fast": fast},
        "allow_int8_activations": {"int8": int8, "tf32": tf32, "bf16": bf16, "fast": fast},
    }
    everything = {"tf32": tf32, "bf16": bf16, "int8": int8, "cut": cut, "fast": fast}
    for field in RELAXATIONS:
        for name, result in everything.items():
            finding = judge_product(result, x, w, policy=PrecisionPolicy(**{field: True}))
            assert (finding.failed == "") == (name in allowed[field]), (field, name, finding)
            assert judge_product(result, x, w).failed, f"{name} under the strict policy"


def test_a_relaxation_adds_exactly_its_stated_error() -> None:
    exact = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rms = float(exact.square().mean().sqrt())
    for field, added in RELAXATIONS.items():
        policy = PrecisionPolicy(**{field: True})
        strict, relaxed = (
            judge_output(exact.float(), exact.float(), exact, policy=p) for p in (PrecisionPolicy(), policy)
        )
        gained = relaxed.errors.allowed_max - strict.errors.allowed_max
        assert gained == pytest.approx(added * max(float(exact.abs().max()), 4 * rms))
    assert allowance_of(PrecisionPolicy(), "float32").relative == 0.0


def test_a_float64_accumulator_is_held_to_it() -> None:
    x, w = draw_product(2048)
    wide = (x.double() @ w.double().T).float()
    asked = PrecisionPolicy(accumulate="float64")
    exact, magnitude = x.double() @ w.double().T, x.double().abs() @ w.double().abs().T
    for result, passes in ((wide, True), (x @ w.T, False)):
        finding = judge_output(
            result, x @ w.T, exact, magnitude=magnitude, zero_mean=True, kind="matmul", terms=2048, policy=asked
        )
        assert (finding.failed == "") is passes, finding
        assert judge_product(result, x, w).failed == ""
