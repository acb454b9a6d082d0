"""The house rules that a machine can check."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("agent", "engine", "kernels", "profiles", "sandbox", "tui")
LIMIT = 400


def sources() -> list[Path]:
    return [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]


def test_every_package_with_code_or_data_is_listed_for_the_wheel() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    shipped = {p.parent for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.is_file()}
    shipped = {p for p in shipped if "__pycache__" not in p.parts}
    found = {"kernelwright." + ".".join(p.relative_to(ROOT).parts) for p in shipped}
    assert found - listed == set(), "add these to [tool.setuptools] packages"


def test_no_file_is_longer_than_the_limit() -> None:
    long = {str(p.relative_to(ROOT)): n for p in sources() if (n := len(p.read_text().splitlines())) > LIMIT}
    assert long == {}


def test_no_utils() -> None:
    banned = {"utils", "util", "common", "helpers", "core", "misc"}
    assert [str(p.relative_to(ROOT)) for p in sources() if p.stem in banned or p.parent.name in banned] == []


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("kernelwright.tui.cli", ("torch", "textual", "docker", "matplotlib", "git", "transformers", "openai")),
        ("kernelwright.engine.doctor", ("torch", "textual", "docker", "matplotlib")),
        ("kernelwright.profiles.trace", ("torch", "pandas")),
        ("kernelwright.profiles.rank", ("torch", "pandas")),
        ("kernelwright.agent.ledger", ("torch", "textual")),
    ],
)
def test_light_modules_stay_light(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_our_folders_are_never_loaded_under_their_bare_names() -> None:
    code = f"import sys, kernelwright.tui.cli; print([m for m in {FOLDERS!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
