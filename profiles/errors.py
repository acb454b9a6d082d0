"""Errors a user can answer. Each carries what to do and the exit code of the command line.

KernelwrightError            1
├─ WrongUse                  2   arguments that make no sense
├─ EnvironmentLacks          3   something this machine does not have
├─ BrokenInput               4   a file that cannot be read as what it should be
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


class Interrupted(KernelwrightError):
    exit_code = 5
