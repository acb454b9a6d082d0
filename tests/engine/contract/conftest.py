"""The servers that the contract is held against: a random model that reads bytes, and real weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.engine.client import ServerProcess
from kernelwright.engine.server import ServeOptions
from tests.engine.contract.asking import (
    CONTEXT,
    KEY,
    START_S,
    client_of,
)


@pytest.fixture(scope="module")
def server(make_tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("contract")
    model = make_tiny_model(folder / "tiny.gguf", metadata={"llama.context_length": CONTEXT})
    options = ServeOptions(model=model, port=0, threads=1, api_key=KEY, max_queued=40)
    with ServerProcess.start(options, log=folder / "log") as server:
        server.wait_until_healthy(START_S)
        yield server


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[ServerProcess]:
    with ServerProcess.start(ServeOptions(model=smollm2, port=0, threads=1, served_name="tiny")) as server:
        server.wait_until_healthy(START_S)
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    with client_of(server) as client:
        yield client
