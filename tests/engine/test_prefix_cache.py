"""What a prefix cache is for: the first token of an answer whose prompt begins as one before comes sooner."""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median

import pytest

from kernelwright.engine.client import EngineClient, ServerProcess
from kernelwright.engine.server import ServeOptions

pytestmark = pytest.mark.alone
SHARED, ROUNDS = 1000, 3


def first_token_s(client: EngineClient, prompt: list[int]) -> float:
    begun = time.perf_counter()
    (token,) = client.stream(prompt, max_tokens=1, temperature=0, ignore_eos=True)
    return token.at - begun


def test_a_shared_beginning_of_a_thousand_tokens_is_answered_five_times_sooner(smollm2: Path) -> None:
    """One server, in turns: a prompt that nobody sent before, then one of the same 1,000 tokens and another end."""
    draw = random.Random(5)
    cold, warm = list[float](), list[float]()
    with ServerProcess.start(ServeOptions(model=smollm2, port=0, max_model_len=2048)) as server:
        server.wait_until_healthy(240)
        with server.client() as client:
            first_token_s(client, [300] * 8)
            for _ in range(ROUNDS):
                shared = [draw.randrange(3000, 49_000) for _ in range(SHARED)]
                cold.append(first_token_s(client, [*shared, 301, 302]))
                warm.append(first_token_s(client, [*shared, 303, 304, 305]))
    assert median(cold) > 5 * median(warm), (cold, warm)
