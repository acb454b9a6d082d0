"""Over HTTP, on real servers with a planted pack: a collapse is stopped or mended, a wrong kernel goes, all is told."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernelwright.engine.client import EngineClient, EngineFailed, ServerProcess
from kernelwright.engine.guard import Guard
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.sequence import SamplingParams
from kernelwright.engine.server import ServeOptions

_spec = importlib.util.spec_from_file_location("planting", Path(__file__).with_name("planting.py"))
assert _spec is not None and _spec.loader is not None
planting = importlib.util.module_from_spec(_spec)
sys.modules["planting"] = planting
_spec.loader.exec_module(planting)

HEAD, DOWN = "q8_0_linear_n300_k64", "q4_1_linear_n64_k96"
SPOKEN = 40
LETTER, DASH = 3 + 65, 3 + 45
"""Tokens of the tiny model: three control tokens, then the bytes."""
COLLAPSE = planting.fault_after(14, f"outputs[0][:, {LETTER}] += 1e3")
"""Two calls at load, one a token: from the thirteenth token on it is nothing but one letter."""
SAID_BEFORE = 12


@pytest.fixture(scope="module")
def sound(tiny_model: Path) -> tuple[list[int], list[int]]:
    """A prompt and what the incumbents answer to it, greedily: forty tokens that the guard has nothing to say about."""
    engine = LLMEngine(tiny_model, num_pages=32)
    for first in range(3, 250):
        prompt, guard = [first, *range(100, 118)], Guard(text_of=chr)
        engine.add_request("a", prompt, SamplingParams(max_tokens=SPOKEN, ignore_eos=True))
        said: list[int] = []
        while engine.has_work():
            said += [output.token_id for output in engine.step() if output.token_id is not None]
        if all(guard.observe("a", token) is None for token in said) and LETTER not in said:
            return prompt, said
    raise AssertionError("the tiny model always repeats itself")


@contextmanager
def serving(tmp_path: Path, model: Path, planted: tuple[str, str] | None, **options: Any) -> Iterator[ServerProcess]:
    packs = (planting.write_planted_pack(tmp_path / "pack", model, *planted),) if planted else ()
    asked = ServeOptions(model=model, port=0, threads=1, packs=packs, **options)
    with ServerProcess.start(asked, log=tmp_path / "log") as server:
        server.wait_until_healthy(240)
        yield server


def ask(client: EngineClient, prompt: list[int], **fields: Any) -> dict[str, Any]:
    """Return the only choice."""
    fields = {"max_tokens": SPOKEN, "temperature": 0, "ignore_eos": True, "return_token_ids": True} | fields
    choice: dict[str, Any] = client.complete(prompt, **fields)["choices"][0]
    return choice


def streamed(client: EngineClient, prompt: list[int], **fields: Any) -> tuple[list[int], str | None]:
    tokens = list(client.stream(prompt, max_tokens=SPOKEN, temperature=0, ignore_eos=True, **fields))
    return [id for token in tokens for id in token.ids], tokens[-1].finish


def kernel(client: EngineClient, name: str) -> dict[str, Any]:
    return next(k for k in client.kernels()["kernels"] if k["definition"] == name)


# ---- shadow checks ---------------------------------------------------------------------------------------------------


def test_a_wrong_kernel_is_switched_off_live_and_the_text_is_the_incumbents(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    prompt, said = sound
    with serving(tmp_path, tiny_model, (HEAD, COLLAPSE), shadow=1.0) as server, server.client() as client:
        assert kernel(client, HEAD)["state"] == "live"
        assert streamed(client, prompt) == (said, "length")
        found = kernel(client, HEAD)
        assert found["state"] == "tripped" and found["trips"] == {"shadow": 1} and "layer 2" in found["reason"]
        assert found["tripped_at"] > 1.7e9 and found["checks"]["decode"] > 5
        health = client.http.get("/health")
        assert health.status_code == 200 and health.json() == {"status": "ready", "tripped_kernels": [HEAD]}
        metrics = client.metrics()
        assert (
            f'kernel_trips_total{{candidate="{found["candidate"][:12]}",definition="{HEAD}",reason="shadow"}} 1.0'
            in metrics
        )
        assert "kernelwright:shadow_check_seconds_total" in metrics
        assert ask(client, prompt)["token_ids"] == said
    assert (tmp_path / "log").read_text().count("switched off") == 1


def test_switched_off_shadow_checks_let_it_speak(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    with serving(tmp_path, tiny_model, (HEAD, COLLAPSE), shadow=0.0) as server, server.client() as client:
        ids, finish = streamed(client, sound[0])
        assert ids == [*sound[1][:SAID_BEFORE], *[LETTER] * (SPOKEN - SAID_BEFORE)] and finish == "length"
        assert client.http.get("/health").json() == {"status": "ready"}


# ---- the guard -------------------------------------------------------------------------------------------------------


def test_a_planted_collapse_is_stopped_within_eight_tokens_and_a_tables_rule_is_not(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    with (
        serving(tmp_path, tiny_model, (HEAD, COLLAPSE), shadow=0.0, guard_action="stop") as server,
        server.client() as client,
    ):
        ids, finish = streamed(client, sound[0])
        assert finish == "collapse" and ids == [*sound[1][:SAID_BEFORE], *[LETTER] * 8]
        rule = {"logit_bias": {str(DASH): 100, str(LETTER): -100}, "temperature": 0}
        client.http.post(f"/v1/kernels/{HEAD}", json={"enabled": False})
        choice = ask(client, sound[0], **rule)
        assert (choice["text"], choice["finish_reason"]) == ("-" * 40, "length")
        choice = ask(client, sound[0], **rule | {"max_tokens": 200})
        assert choice["finish_reason"] == "collapse" and len(choice["token_ids"]) == 113, "not for ever"


def test_a_collapse_is_mended_by_the_incumbents_and_no_token_is_taken_back(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    prompt, said = sound
    with (
        serving(tmp_path, tiny_model, (HEAD, COLLAPSE), shadow=0.0, guard_action="retry") as server,
        server.client() as client,
    ):
        assert streamed(client, prompt) == (said, "length")
        assert ask(client, prompt)["token_ids"] == said, "not streamed it is the same"
        facts = client.kernels()
        assert facts["guard"] == {"action": "retry", "trips": {"repeat": 2}, "retries": {"mended": 2}, "watched": 0}
        assert 'guard_retries_total{outcome="mended"} 2.0' in client.metrics()
    assert "did not collapse (repeat) where the pack's kernels did" in (tmp_path / "log").read_text()


def test_what_collapses_with_the_incumbents_too_ends_as_a_collapse_and_blames_no_kernel(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    with (
        serving(tmp_path, tiny_model, (DOWN, ""), shadow=0.0, guard_action="retry") as server,
        server.client() as client,
    ):
        choice = ask(client, sound[0], logit_bias={str(LETTER): 100})
        assert choice["finish_reason"] == "collapse" and choice["text"] == "A" * 8
        assert client.kernels()["guard"]["retries"] == {"collapsed": 1}
        assert "did not collapse" not in (tmp_path / "log").read_text()
        assert ask(client, sound[0])["token_ids"] == sound[1]


# ---- an operator's switch --------------------------------------------------------------------------------------------


def test_an_operator_switches_a_kernel_in_the_middle_of_an_answer(
    tiny_model: Path, tmp_path: Path, sound: tuple[list[int], list[int]]
) -> None:
    prompt, said = sound
    with (
        serving(tmp_path, tiny_model, (DOWN, ""), api_key="secret", max_model_len=256) as server,
        server.client() as client,
    ):
        stream = client.stream(prompt, max_tokens=230, temperature=0, ignore_eos=True)
        ids = list(next(stream).ids)
        with server.client() as another:
            answer = another.http.post(f"/v1/kernels/{DOWN}", json={"enabled": False})
        assert answer.status_code == 200 and answer.json()["enabled"] is False
        ids += [id for token in stream for id in token.ids]
        assert ids[:SPOKEN] == said
        found = kernel(client, DOWN)
        assert found["state"] == "disabled" == answer.json()["kernels"][0]["state"] and found["fallbacks"]["disabled"]
        assert f'kernel_live{{candidate="{found["candidate"][:12]}",definition="{DOWN}"}} 0.0' in client.metrics()
        assert client.http.post(f"/v1/kernels/{DOWN}", json={"enabled": True}).json()["kernels"][0]["state"] == "live"
        assert ask(client, prompt)["token_ids"] == said
        for name, body, status, says in (
            ("nothing", {"enabled": True}, 404, "no definition 'nothing'"),
            (HEAD, {"enabled": True}, 409, "no pack has a kernel"),
            (DOWN, {"enabled": "yes"}, 400, "enabled"),
            (DOWN, {}, 400, "enabled"),
        ):
            refused = client.http.post(f"/v1/kernels/{name}", json=body)
            assert refused.status_code == status and says in refused.json()["error"]["message"], refused.text
        with EngineClient("http://engine", uds=server.options.uds) as stranger:
            assert stranger.http.post(f"/v1/kernels/{DOWN}", json={"enabled": False}).status_code == 401
    assert f"an operator switched {DOWN} off" in (tmp_path / "log").read_text()


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_server_says_where_its_memory_is(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tmp_path, tiny_model, (DOWN, "")) as server, server.client() as client:
        facts = client.kernels()
        memory = facts["memory"]
        assert memory["packed_bytes"] == 2 * 64 * 96 * 4, "two layers, as the planted kernel keeps them dense"
        assert 0 < memory["dequantized_bytes"] < memory["dequantized_all_bytes"]
        assert (
            memory["mapped_bytes"] >= tiny_model.stat().st_size and memory["resident_bytes"] == facts["resident_bytes"]
        )
        assert facts["pages"] == {"free": 1024, "cached": 0, "owned": 0, "references": 0, "held": 0}
        metrics = client.metrics()
        for name in ('engine_memory_bytes{kind="packed"}', 'kv_pages{state="free"} 1024.0'):
            assert f"kernelwright:{name}" in metrics
    assert "packed for kernels" in (tmp_path / "log").read_text()


def test_a_refused_answer_is_the_clients_error(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tmp_path, tiny_model, None, num_pages=4) as server, server.client() as client:
        with pytest.raises(EngineFailed, match="the context holds 64 tokens"):
            ask(client, list(range(3, 60)))
