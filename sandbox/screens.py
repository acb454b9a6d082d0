"""Screens: what can be told about a candidate without running it.

Screens raise scrutiny; they clear nobody. A rule refuses only where it can be decided and no honest kernel needs what
it forbids; everything else is a tripwire. Labels say where a result comes from: provenance, not merit.
"""

from __future__ import annotations

from pydantic import BaseModel

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.sandbox.findings import Findings
from kernelwright.sandbox.screen_elf import screen_elf
from kernelwright.sandbox.screen_python import screen_python
from kernelwright.sandbox.screen_source import screen_source

MOST_TRIPWIRES = 40
STRICT = PrecisionPolicy()


class Screening(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What the screens found."""

    refused: str = ""
    """'' or one coarse sentence: the first hard rule that was broken."""
    tripwires: tuple[str, ...] = ()
    """What deserves a look; honest code may raise some."""
    labels: tuple[str, ...] = ()
    """Of `custom`, `framework-wrap`, `vendor-wrap`, `compiler`, `graph`."""
    facts: dict[str, str] = {}
    """Details for a reader, among them `refused`: where and by what name the rule was broken."""


def screen(
    candidate: Candidate, binary: bytes | None, policy: PrecisionPolicy = STRICT, expanded: str = ""
) -> Screening:
    """Return what sources and, for native code, `binary` show.

    `policy`: what the problem allows of precision. `expanded`: the sources after the preprocessor
    (`screen_source.expand`), where macros hide nothing; without it macros are read as written. Raises nothing, whatever
    the candidate holds.
    """
    findings = Findings()
    if candidate.language in ("python", "triton"):
        screen_python(candidate, findings)
    else:
        screen_source(candidate, policy, findings, expanded)
    if binary is not None:
        screen_elf(binary, policy, findings)
    if findings.refusals:
        findings.fact("refused", "; ".join(dict.fromkeys(f"{r} ({d})" if d else r for r, d in findings.refusals)))
    return Screening(
        refused=findings.refusals[0][0] if findings.refusals else "",
        tripwires=tuple(findings.tripwires[:MOST_TRIPWIRES]),
        labels=tuple(findings.labels),
        facts=findings.facts,
    )
