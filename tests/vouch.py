"""A selftest record to order, for tests of what it allows; the real one takes a minute and a quiet machine."""

from __future__ import annotations

from kernelwright.sandbox.environment import harness_digest, host_digest
from kernelwright.sandbox.selftest_report import Played, SelfAgainstSelf, SelftestReport


def make_record(
    *, harness: str = "", host: str = "", accepted: bool = False, isolation: str = "L3", faster: int = 0
) -> SelftestReport:
    """Return a record of one exploit; with everything left out, one that vouches for this judge on this machine."""
    exploit = Played(
        name="fake", kind="exploit", problem="linear", family="H01", text="", phase="confirm", caught_by="",
        seconds=1.0, outcome="faster" if accepted else "incorrect", reason="",
    )  # fmt: skip
    return SelftestReport(
        full=False, harness=harness or harness_digest(), host=host or host_digest(), finished=1e9, seconds=60.0,
        isolation=isolation, played=(exploit,), planted=(),
        aa=SelfAgainstSelf(search_trials=10, search_faster=faster, confirm_trials=0, confirm_faster=0),
    )  # fmt: skip
