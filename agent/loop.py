"""optimize(): the walk, forwards, on one screen. Each line is a step the ledger remembers."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.agent.assemble import assemble_report
from kernelwright.agent.delivery import commit_stack, gate_stack, write_session_report
from kernelwright.agent.events import Event
from kernelwright.agent.options import OptimizeOptions
from kernelwright.agent.session import Session, open_session
from kernelwright.agent.workbench import Workbench


def optimize(options: OptimizeOptions, listen: Callable[[Event], None], resume: bool = False) -> dict[str, Any]:
    """Run or resume a session and return the object of `optimize --json`.

    The report is written whatever happens: at the end, when the budget is spent, on Ctrl-C, on SIGTERM, and when a
    step fails; then the error is raised after it. Raises KernelwrightError and KeyboardInterrupt.
    """
    check_options(options)
    session = open_session(options, listen, resume)
    with contextlib.closing(session.ledger), _terminate_as_interrupt():
        try:
            with Workbench(session) as bench:
                walk(session, bench)
        except KeyboardInterrupt:
            _close(session, "interrupted", "stopped from outside; --resume goes on")
            raise
        except Exception as error:
            # Whatever broke, hours of verdicts must end in a report; the error itself is raised after it.
            _close(session, "failed", str(error) or type(error).__name__)
            raise
        return _close(session, "done", session.budget.exhausted() or "")


def walk(session: Session, bench: Workbench) -> None:
    """Test the judge → profile → rank → solve each target → gate → commit."""
    step = session.step
    tested = step("selftest", bench.test_judge)
    step("incumbent", bench.measure_incumbent)
    step("profile", bench.take_profile)
    step("capture", bench.capture)
    step("control", bench.measure_control)
    targets = step("rank", bench.rank)["targets"]
    for target, seconds in bench.worklist(targets):
        step(f"solve:{target.definition}", lambda t=target, s=seconds: bench.solve(t, s), seconds)  # type: ignore[misc]
    bench.stop_engine()
    stack = step("compose", bench.compose)
    if stack["chosen"] and not stack["gate_lacks"]:
        gate = step("gate", lambda: gate_stack(session, bench, stack), session.budget.gate_s)
        if gate["passed"] and tested["passed"]:
            step("commit", lambda: commit_stack(session, bench, stack, gate))


def check_options(options: OptimizeOptions) -> None:
    """Refuse what cannot work before anything is written: no model, no compiler, no cage, no such repository."""
    from kernelwright.agent.preflight import preflight

    preflight(options)


def _close(session: Session, status: str, reason: str) -> dict[str, Any]:
    session.save_spent()
    session.ledger.mark_interrupted()
    report = {**assemble_report(session.ledger), "status": status, "reason": reason}
    write_session_report(session, report)
    session.ledger.end(status, reason)  # type: ignore[arg-type]
    for _, event in session.ledger.events()[-1:]:
        session.tell(event)
    return report


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C while a session runs, so that it ends with a report."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: the caller deals with signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
