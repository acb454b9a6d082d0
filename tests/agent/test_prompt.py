import jinja2
import pytest

from kernelwright.agent.prompt import prompt_digest, render_prompt


def test_an_undefined_variable_is_an_error_not_an_empty_string() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_prompt("propose", cpu="x")


def test_the_digest_tells_wordings_apart() -> None:
    assert prompt_digest("system") != prompt_digest("propose")
