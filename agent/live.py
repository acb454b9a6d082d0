"""Take a trace of a server that runs already: vLLM, SGLang or ours, through the endpoints they share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx

from kernelwright.engine.client import EngineClient, EngineFailed
from kernelwright.profiles.errors import EnvironmentLacks, WrongUse

PROMPT = "List the planets of the solar system and one fact about each of them."
QUIET_S = 2.0
"""A file that has not grown for so long is finished."""
FLUSH_S = 900.0
"""Writing a trace may take vLLM many minutes."""
TRACES = ("*.json", "*.json.gz")


def capture_live(
    url: str,
    folder: Path | None,
    *,
    requests: int = 4,
    tokens: int = 32,
    seconds: float = 0.0,
    api_key: str | None = None,
    say: Callable[[str], None] = lambda _text: None,
    quiet_s: float = QUIET_S,
) -> list[Path]:
    """Return the traces that the server at `url` wrote of `requests` completions of `tokens` tokens (or of `seconds`
    of whatever it serves, where `requests` is 0).

    `folder` is where the server writes its traces, as seen from here; ours tells the path itself. Raises WrongUse
    when the server does not profile, EngineFailed when it fails, EnvironmentLacks when no trace appears.
    """
    before = _list(folder)
    with EngineClient(url.rstrip("/"), api_key=api_key, timeout_s=FLUSH_S) as client:
        _post(client, "/start_profile", {"output_dir": str(folder)} if folder else {})
        try:
            say(f"profiling {url}")
            if requests:
                for number in range(requests):
                    _ask(client, tokens)
                    say(f"request {number + 1} of {requests} done")
            else:
                time.sleep(seconds)
        finally:
            say("the server writes its trace; a large model takes minutes")
            told = _post(client, "/stop_profile", {})
    if told is not None and told.is_file():
        return [told]
    if folder is None:
        raise WrongUse(
            "the server does not say where its trace is", "name the folder it writes traces to with --traces FOLDER"
        )
    return _await_files(folder, before, quiet_s)


def _ask(client: EngineClient, tokens: int) -> None:
    """Ask for `tokens` tokens: in a chat, where a model of instructions answers at length; else for a completion."""
    try:
        client.chat([{"role": "user", "content": PROMPT}], max_tokens=tokens, temperature=0.0)
    except EngineFailed:
        client.complete(PROMPT, max_tokens=tokens, temperature=0.0)


def _post(client: EngineClient, path: str, body: dict[str, str]) -> Path | None:
    """Return the path of the trace where the answer tells it. vLLM answers with nothing, SGLang with a sentence."""
    try:
        answer = client.http.post(path, json=body)
    except httpx.HTTPError as error:
        raise EngineFailed(f"{path}: {error}", "Does the server run, and is the address right?") from error
    if answer.status_code in (404, 405):
        raise WrongUse(
            "the server does not profile: it has no /start_profile",
            "start vLLM with --profiler-config.profiler=torch --profiler-config.torch_profiler_dir=FOLDER, SGLang with "
            "SGLANG_TORCH_PROFILER_DIR=FOLDER set, or ours with --profile-dir FOLDER",
        )
    if answer.status_code != 200:
        raise EngineFailed(f"{path}: status {answer.status_code}: {answer.text[:300]}", "See the server's log")
    try:
        trace = answer.json()["trace"]
    except (ValueError, KeyError, TypeError):
        return None
    return Path(str(trace))


def _list(folder: Path | None) -> dict[Path, int]:
    """Return the traces in `folder` and below, with their sizes."""
    if folder is None or not folder.is_dir():
        return {}
    return {path: path.stat().st_size for pattern in TRACES for path in folder.rglob(pattern)}


def _await_files(folder: Path, before: dict[Path, int], quiet_s: float) -> list[Path]:
    end, seen, since = time.monotonic() + FLUSH_S, dict[Path, int](), time.monotonic()
    while time.monotonic() < end:
        now = {path: size for path, size in _list(folder).items() if before.get(path) != size}
        if now != seen:
            seen, since = now, time.monotonic()
        elif seen and time.monotonic() - since >= quiet_s:
            return sorted(seen)
        elif not seen and time.monotonic() - since >= max(30.0, quiet_s):
            break
        time.sleep(0.2)
    raise EnvironmentLacks(
        f"no trace appeared in {folder}", "check that it is the folder the server writes to, seen from this machine"
    )
