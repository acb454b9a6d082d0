"""The table of proposers: from the brains a session was given to the objects that propose."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernelwright.agent.events import ProgressMade
from kernelwright.agent.model import Model
from kernelwright.agent.propose import Proposer
from kernelwright.agent.session import Session
from kernelwright.agent.templates import Templates
from kernelwright.kernels.isa import cpu_name, detect_isa


def make_proposers(session: Session, engine: Callable[[], Any]) -> list[Proposer]:
    """Return one proposer per brain, templates first: they are quick and give the model something to beat.

    `engine` returns a client of the served model, which is what the brain `self` asks.
    """
    made: list[Proposer] = []
    isa = detect_isa()
    for brain in sorted(session.options.brains, key=lambda name: name != "templates"):
        if brain == "templates":
            made.append(Templates(isa))
            continue
        client, name = _endpoint(brain, engine)
        facts = {"cpu": cpu_name(), "threads": session.options.threads}

        def trouble(text: str) -> None:
            session.emit(ProgressMade(phase="model", done=0, total=0, text=text))

        made.append(Model(client, name, session.budget, isa, facts, on_trouble=trouble))
    return made


def _endpoint(brain: str, engine: Callable[[], Any]) -> tuple[Any, str]:
    """Return an OpenAI client and a model name. A remote endpoint's key comes from OPENAI_API_KEY."""
    import openai

    if brain == "self":
        served = engine()
        return openai.OpenAI(
            base_url="http://engine/v1", api_key="none", http_client=served.http, max_retries=0
        ), served.model
    client = openai.OpenAI(base_url=brain, api_key=os.environ.get("OPENAI_API_KEY", "none"), max_retries=2)
    return client, client.models.list().data[0].id
