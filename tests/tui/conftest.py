"""Session folders with synthetic data for the tests of the screens."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load_builder() -> ModuleType:
    # Tests are no package (import mode importlib), so a module beside them is loaded by its path.
    path = Path(__file__).with_name("scripted_session.py")
    spec = importlib.util.spec_from_file_location("scripted_session", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripted_session"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    return _load_builder()


@pytest.fixture(scope="session")
def finished(scripted: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished session; tests must not write to it."""
    folder = tmp_path_factory.mktemp("finished") / "session"
    scripted.write_finished(folder)
    return folder


@pytest.fixture
def live(scripted: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """A live session: the ScriptedSession that writes it, its folder held by this process."""
    session = scripted.write_live(tmp_path / "session")
    yield session
    session.ledger.close()
