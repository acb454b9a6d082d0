"""Errors a user can answer. Each carries what to do and the exit code of the command line.

KernelwrightError            1
├─ WrongUse                  2   arguments that make no sense
├─ EnvironmentLacks          3   something this machine does not have
├─ BrokenInput               4   a file that cannot be read as what it should be
│  ├─ EmptyInput             6   nothing is in it
│  ├─ CutInput               7   its end is missing: what could be read is shown
│  ├─ NoDeviceWork           8   a trace of a GPU without a kernel
│  ├─ MixedRanks             9   traces that cannot be of one run
│  └─ CaptureGiven          10   a trace of a graph's capture where that of its replay is wanted
└─ Interrupted               5   stopped from outside; `--resume` goes on
"""

from __future__ import annotations


class KernelwrightError(Exception):
    """A failure with a remedy. `message` says what happened, `remedy` what to do about it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class WrongUse(KernelwrightError):
    exit_code = 2


class EnvironmentLacks(KernelwrightError):
    exit_code = 3


class BrokenInput(KernelwrightError):
    exit_code = 4


class EmptyInput(BrokenInput):
    exit_code = 6


class CutInput(BrokenInput):
    exit_code = 7


class NoDeviceWork(BrokenInput):
    exit_code = 8


class MixedRanks(BrokenInput):
    exit_code = 9


class CaptureGiven(BrokenInput):
    exit_code = 10


class Interrupted(KernelwrightError):
    exit_code = 5
