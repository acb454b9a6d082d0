"""Controls: the judge's checks that a test can switch off, to show that each one is what stops a cheat."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Controls:
    """All on outside tests. A bench with one off names it in its verdicts and refuses to confirm."""

    fresh_inputs: bool = True
    """Every call gets inputs never seen before. Off: equal shapes get equal inputs."""
    poison: bool = True
    """Outputs are filled with a secret NaN before each call. Off: with zeros."""
    judge_timed: bool = True
    """Results of timed calls are compared too. Off: only the calls made for correctness."""
    relative_gate: bool = True
    """Errors are held to the incumbent's own against fp64. Off: allclose with 1e-2."""
    read_twice: bool = True
    """Results are read at the bell and again later, and must agree. Off: read once, late."""
    protect_inputs: bool = True
    """The runner cannot write its inputs. Off: the mailbox is not sealed."""
    check_every_row: bool = True
    """All elements are judged. Off: the first row of each output."""
    watch_cpu: bool = True
    """CPU time is compared with wall time and threads. Off: it is not."""

    def switched_off(self) -> tuple[str, ...]:
        return tuple(f.name for f in fields(self) if not getattr(self, f.name))
