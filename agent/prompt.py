"""Fill the prompt templates in `agent/prompts/`. An undefined variable is an error, not an empty string."""

from __future__ import annotations

from importlib.resources import files

from kernelwright.profiles.digest import digest_bytes


def render_prompt(name: str, **values: object) -> str:
    """Return template `name` (without `.md`) filled with `values`. Raises jinja2.UndefinedError on a missing one."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(_template(name)).render(**values)


def prompt_digest(*names: str) -> str:
    """Return the digest of the templates: which wording an answer was given to."""
    return digest_bytes("\0".join(_template(name) for name in names).encode())


def _template(name: str) -> str:
    return (files("kernelwright.agent.prompts") / f"{name}.md").read_text(encoding="utf-8")
