"""Errors that reach a person: what is wrong, and what to do about it.

Every error carries the exit code of the verb that meets it (0 done, 1 the answer is no, 2 wrong use, 3 the environment
lacks something, 4 input broken, 5 interrupted). They live in the lowest folder so that every folder can raise them.
"""

from __future__ import annotations

from typing import ClassVar


class KernelwrightError(Exception):
    """Something is broken outside our reach; `message` says what, `remedy` says what to do."""

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}")
        self.message = message
        self.remedy = remedy


class WrongUse(KernelwrightError):
    """The caller asked for something that cannot be: an unknown name, a value out of range."""

    exit_code = 2


class EnvironmentLacks(KernelwrightError):
    """This machine lacks something: a compiler, a network, disk space, namespaces."""

    exit_code = 3


class BrokenInput(KernelwrightError):
    """A file or a request cannot be read as what it claims to be."""

    exit_code = 4
