"""Controls: the judge's checks that a test can switch off, to show that each one is what stops a cheat."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Controls:
    """All on outside tests. A bench with one off names it in its verdicts, which are then of level L0 for good."""

    # What a candidate is given, and when.
    fresh_inputs: bool = True
    """Every call gets inputs never seen before. Off: equal shapes get equal inputs."""
    protect_inputs: bool = True
    """The runner cannot write its inputs. Off: the mailbox is not sealed."""
    stop_waiting: bool = True
    """Whoever is not timed is stopped, and the timed arm while its inputs are written. Off: all keep running."""
    hidden_shapes: bool = True
    """Confirm draws shapes inside the declared ranges. Off: it asks for the timed shape only."""
    distributions: bool = True
    """Inputs of many kinds. Off: standard normal ones."""

    # What is taken from it, and when.
    poison: bool = True
    """Outputs are filled with a secret NaN before each call. Off: with zeros."""
    guard_zones: bool = True
    """The bytes around each output are checked. Off: they are not."""
    read_twice: bool = True
    """Results count as they are at the bell: read twice, or nothing runs on meanwhile. Off: read once, late."""

    # What is compared.
    masks: bool = True
    """NaN and infinities must stand where the reference has them. Off: such elements count as right."""
    relative_gate: bool = True
    """Errors are held to the incumbent's own against fp64. Off: allclose with 1e-2."""
    check_every_row: bool = True
    """All elements are judged. Off: the first row of each output."""
    judge_timed: bool = True
    """Results of timed calls are compared too. Off: only the calls made for correctness."""
    repeat_races: bool = True
    """Repeats at several thread counts and over other poison must give equal bits. Off: not tried."""
    sanitizer: bool = True
    """C++ is built with a race detector and run in it. Off: not tried."""

    # What is measured.
    watch_cpu: bool = True
    """CPU time is compared with wall time and threads. Off: it is not."""
    watch_after: bool = True
    """Processor time after the bell counts against it. Off: nobody looks."""
    watch_processes: bool = True
    """A runner must stay one process. Off: nobody counts."""
    linear_time: bool = True
    """Twice the calls take twice the time, and calls made one at a time as long as in a batch. Off: not tried."""
    roofline: bool = True
    """Faster than the machine can move the data or do the work is suspect. Off: believed."""
    screens: bool = True
    """Binaries and sources that ask for what no kernel needs are refused. Off: they are run."""

    def switched_off(self) -> tuple[str, ...]:
        return tuple(f.name for f in fields(self) if not getattr(self, f.name))
