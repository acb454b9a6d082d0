"""Number formats, and what a precision policy adds to the errors the gates allow.

Formats: IEEE 754 (binary64, binary32, binary16) and bfloat16; tolerances: torch.testing's defaults per dtype. TF32
keeps 10 explicit bits of mantissa (NVIDIA A100 whitepaper).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.profiles.errors import WrongUse

STRICT = PrecisionPolicy()
RELAXATIONS = {"allow_tf32": 2.0**-10, "allow_fast_math": 2.0**-17, "allow_int8_activations": 2.0**-4}
"""Policy field → relative error it adds. TF32: the last bit kept; fast math: 64 ulp of float32; int8 activations: one
scale per row of inputs with outlier columns."""
FLUSH_GAIN = 2.0**10
"""Times the smallest normal number that a result may be off where denormals may be flushed: a norm divides by
sqrt(eps), some 2^8, and a sum gains a little more."""


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format."""

    unit: float
    """Unit roundoff, half an ulp of 1."""
    normal: float
    """Smallest normal number."""
    subnormal: float
    """Smallest denormal number."""
    largest: float
    rtol: float
    """Gate C's relative tolerance."""
    atol: float


FORMATS = {
    "float64": Format(2.0**-53, 2.0**-1022, 2.0**-1074, 1.7976931348623157e308, 1e-7, 1e-7),
    "float32": Format(2.0**-24, 2.0**-126, 2.0**-149, 3.4028234663852886e38, 1.3e-6, 1e-5),
    "float16": Format(2.0**-11, 2.0**-14, 2.0**-24, 65504.0, 1e-3, 1e-5),
    "bfloat16": Format(2.0**-8, 2.0**-126, 2.0**-133, 3.3895313892515355e38, 1.6e-2, 1e-5),
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a policy allows in one output beyond rounding in its format."""

    unit: float
    """Unit roundoff of the accumulator."""
    relative: float
    """Added error, relative to the size of the output; 0 under the strict policy."""
    absolute: float
    """Added error as it is; not 0 where denormals may be flushed."""


def format_of(dtype: str) -> Format:
    """Return the format of a floating dtype. Raises WrongUse on any other: there is no default tolerance."""
    if dtype not in FORMATS:
        raise WrongUse(f"no gate is stated for dtype {dtype!r}", f"known: {', '.join(FORMATS)}, integers and bool")
    return FORMATS[dtype]


def allowance_of(policy: PrecisionPolicy, dtype: str) -> Allowance:
    """Return what `policy` allows in outputs of `dtype`. Raises WrongUse on a dtype without a format."""
    output = format_of(dtype)
    return Allowance(
        unit=min(FORMATS[policy.accumulate].unit, FORMATS["float32"].unit, output.unit),
        relative=sum(added for field, added in RELAXATIONS.items() if getattr(policy, field)),
        absolute=FLUSH_GAIN * output.normal if policy.allow_flush_to_zero else 0.0,
    )
