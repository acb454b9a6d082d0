"""What the contract's tests share: clients of a started server, its metrics, and waiting for something."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

import httpx
import openai
from pydantic import BaseModel, Field

from kernelwright.engine.client import ServerProcess

START_S = 240.0
KEY = "kw-secret-4711"
CONTEXT = 4096
HELLO = [{"role": "user", "content": "Hello"}]
QUIET = {"temperature": 0, "max_tokens": 12}


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["é", "z"]}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


class Colour(Enum):
    red = "red"
    green = "grün"


class Part(BaseModel):
    name: str = Field(max_length=8)
    colour: Colour


class Thing(BaseModel):
    count: int = Field(ge=0, le=999)
    parts: list[Part] = Field(max_length=2)
    note: str | None = Field(max_length=5)


def client_of(server: ServerProcess, key: str = KEY, **options: Any) -> Any:
    http = httpx.Client(transport=httpx.HTTPTransport(uds=str(server.options.uds)), timeout=120)
    return openai.OpenAI(base_url="http://engine/v1", api_key=key, max_retries=0, http_client=http, **options)


@asynccontextmanager
async def async_client_of(server: ServerProcess) -> AsyncIterator[Any]:
    transport = httpx.AsyncHTTPTransport(uds=str(server.options.uds))
    async with httpx.AsyncClient(transport=transport, timeout=120) as http:
        yield openai.AsyncOpenAI(base_url="http://engine/v1", api_key=KEY, max_retries=0, http_client=http)


def metric(server: ServerProcess, name: str) -> float:
    with server.client() as client:
        found = re.search(rf"^kernelwright:{name} (\S+)$", client.metrics(), re.MULTILINE)
    assert found, name
    return float(found[1])


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
