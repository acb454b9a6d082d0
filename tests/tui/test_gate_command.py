"""`kernelwright gate`: wrong use and servers that are not there end with a sentence and their own exit code."""

from __future__ import annotations

import pytest

from kernelwright.tui.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["http://localhost:9", "http://localhost:9"], 3, "Start the server"),
        (["http://localhost:9", "pack"], 2, "Give two URLs"),
        (["http://localhost:9", "http://localhost:9", "--tokens", "-5"], 2, "positive number"),
        (["no.gguf", "no-pack"], 4, "not a kernel pack"),
    ],
)
def test_what_cannot_be_compared_is_told(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", *arguments]) == code
    assert says in capsys.readouterr().err
