"""A request mix: what is asked of an engine while it is observed. The shipped ones are JSON files in `mixes/`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from kernelwright.profiles.errors import BrokenInput

if TYPE_CHECKING:
    from kernelwright.engine.client import EngineClient


class MixRequest(BaseModel, frozen=True, extra="forbid"):
    prompt: str
    max_tokens: int
    kind: str = ""


class Mix(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    name: str
    concurrency: int = 4
    """Requests in flight together."""
    requests: tuple[MixRequest, ...]


def read_mix(source: str | Path) -> Mix:
    """Return the mix of a JSON file, or a shipped one by name. Raises BrokenInput."""
    shipped = files("kernelwright.engine.mixes") / f"{source}.json"
    path = shipped if isinstance(source, str) and shipped.is_file() else Path(source)
    try:
        return Mix.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BrokenInput(
            f"cannot read the mix {source}: {error.strerror}", "Give a shipped name or a file."
        ) from error
    except (ValidationError, ValueError) as error:
        raise BrokenInput(
            f"{source} is not a request mix: {error}", "See engine/mixes/chat.json for the form."
        ) from error


def drive(client: EngineClient, mix: Mix, max_tokens: int | None = None) -> int:
    """Send every request of `mix`, `mix.concurrency` at a time; return the tokens generated. Raises EngineFailed."""

    def ask(request: MixRequest) -> int:
        limit = min(request.max_tokens, max_tokens) if max_tokens else request.max_tokens
        answer = client.complete(request.prompt, max_tokens=limit, temperature=0)
        return int(answer["usage"]["completion_tokens"])

    with ThreadPoolExecutor(max_workers=mix.concurrency) as pool:
        return sum(pool.map(ask, mix.requests))
