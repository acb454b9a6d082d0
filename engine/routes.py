"""The endpoints: check what is asked, hand it to the engine, answer in OpenAI's form."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kernelwright.engine import wire
from kernelwright.engine.answers import Asked, events, whole
from kernelwright.engine.chat_messages import native, spelled_out
from kernelwright.engine.generation import Choice, Piece, Text, prompt_logprobs, speak_all
from kernelwright.engine.grammar import check_grammar
from kernelwright.engine.link import EngineGone, EngineLink
from kernelwright.engine.openai_api import ChatRequest, CompletionRequest, ScoreRequest, SwitchRequest
from kernelwright.engine.tools import ToolPlan
from kernelwright.profiles.errors import WrongUse

MAX_BODY = 32 * 1024 * 1024
_RECORD = struct.Struct("<II")
_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")


class ApiError(Exception):
    """An answer other than 200, in OpenAI's form."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


class ClientLeft(Exception):
    """The client closed the connection before it had its answer."""


class Desk:
    """What the handlers share. `text` is None until the tokenizer is loaded."""

    def __init__(self, link: EngineLink) -> None:
        self.link = link
        self.text: Text | None = None
        self._since = int(time.time())

    @property
    def is_ready(self) -> bool:
        return self.link.state == "ready"

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/kernels", self.kernels),
            Route("/v1/kernels/{definition}", self.switch_kernel, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/score", self.score, methods=["POST"]),
            Route("/start_profile", self.start_profile, methods=["POST"]),
            Route("/stop_profile", self.stop_profile, methods=["POST"]),
            Route("/reset_prefix_cache", self.reset_prefix_cache, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        tripped = {"tripped_kernels": self.link.tripped} if self.link.tripped else {}  # it serves all the same
        return answer({"status": self.link.state, **tripped}, 200 if self.is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        kernels = None
        if self.link.state in ("ready", "draining"):
            try:
                kernels = await asyncio.wait_for(self.link.ask("kernels"), timeout=5)
            except (TimeoutError, EngineGone):
                kernels = None  # a scrape in the middle of a long step still gets the front end's own numbers
        self.link.metrics.open.set(self.link.num_requests)
        return Response(self.link.metrics.render(kernels), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, request: Request) -> Response:
        return answer({"object": "list", "data": [self._card()] if self.link.ready else []})

    async def model(self, request: Request) -> Response:
        self._ready()
        self._check_model(request.path_params["name"])
        return answer(self._card())

    async def kernels(self, request: Request) -> Response:
        self._ready()
        return answer(await self.link.ask("kernels"))

    async def switch_kernel(self, request: Request) -> Response:
        asked = await read_json(request, SwitchRequest)
        self._ready()
        named = {"definition": request.path_params["definition"], "enabled": asked.enabled}
        return answer(await self.link.ask("switch_kernel", **named))

    async def start_profile(self, request: Request) -> Response:
        self._ready()
        return answer(await self.link.ask("start_profile"))

    async def stop_profile(self, request: Request) -> Response:
        self._ready()
        return answer(await self.link.ask("stop_profile"))

    async def reset_prefix_cache(self, request: Request) -> Response:
        self._ready()
        return answer(await self.link.ask("reset_prefix_cache"))

    async def completions(self, request: Request) -> Response:
        asked = await read_json(request, CompletionRequest)
        text = self._admit(asked.model, asked.n * len(asked.prompts))
        self._check_bias(asked.logit_bias)
        grammar = await self._compilable(asked.form_grammar, asked.form_field)
        prompts = [text.encode(prompt) if isinstance(prompt, str) else prompt for prompt in asked.prompts]
        echoes = [prompt if isinstance(prompt, str) else text.decode(prompt) for prompt in asked.prompts]
        max_tokens = 16 if asked.max_tokens is None else asked.max_tokens
        choices = [
            Choice(number * asked.n + i, ids, asked.sampling(self._fit(ids, max_tokens), asked.logprobs, i, grammar))
            for number, ids in enumerate(prompts)
            for i in range(asked.n)
        ]
        whole_request = Asked(
            request=asked,
            choices=choices,
            echoes=[echo if asked.echo else "" for echo in echoes for _ in range(asked.n)],
            prompt_tokens=sum(map(len, prompts)),
            fingerprint=self._fingerprint,
        )
        if asked.echo and asked.logprobs is not None:
            scored: list[list[wire.Token]] = await unless_client_leaves(
                request, self._score_prompts(prompts, asked.logprobs)
            )
            whole_request = replace(whole_request, echoed=[tokens for tokens in scored for _ in range(asked.n)])
        return await self._speak(request, whole_request, text)

    async def chat(self, request: Request) -> Response:
        asked = await read_json(request, ChatRequest)
        text = self._admit(asked.model, asked.n)
        self._check_bias(asked.logit_bias)
        plan = asked.plan(text.call_form)
        grammar = await self._chat_grammar(asked, plan)
        if text.call_form is not None:
            ids = text.render_chat(native(asked.messages), plan.declared() if plan else None)
        else:
            ids = text.render_chat(spelled_out(asked.messages, plan.preface() if plan else None))
        max_tokens = self._fit(ids, asked.limit, "messages")
        logprobs = asked.wanted_logprobs
        choices = [Choice(i, ids, asked.sampling(max_tokens, logprobs, i, grammar)) for i in range(asked.n)]
        whole_request = Asked(
            request=asked,
            choices=choices,
            echoes=[""] * asked.n,
            prompt_tokens=len(ids),
            fingerprint=self._fingerprint,
            plan=plan,
        )
        return await self._speak(request, whole_request, text)

    async def _chat_grammar(self, asked: ChatRequest, plan: ToolPlan | None) -> str | None:
        if plan is None:
            return await self._compilable(asked.form_grammar, asked.form_field)
        if asked.form_field is not None and asked.schema_asked is None:
            raise ApiError(400, f"`{asked.form_field}` with `tools` has to be a JSON schema", asked.form_field)
        return await self._compilable(lambda: plan.grammar(asked.schema_asked), "tools")

    async def _compilable(self, write: Callable[[], str | None], field: str | None) -> str | None:
        """Return the grammar that `write` returns, once it is known to be one. Raises ApiError(400) with the reason."""
        try:
            grammar = write()
            if grammar is not None:
                await asyncio.to_thread(check_grammar, grammar)
        except RecursionError as error:
            raise ApiError(400, f"{field}: it is nested too deeply", field, "invalid_grammar") from error
        except WrongUse as error:
            raise ApiError(400, f"{field}: {error.message}. {error.remedy}", field, "invalid_grammar") from error
        return grammar

    async def score(self, request: Request) -> Response:
        asked = await read_json(request, ScoreRequest)
        self._admit(None, 1)
        sequences = [wire.ForcedSequence(s.prompt, s.forced) for s in asked.sequences]
        for sequence in sequences:
            self._fit(sequence.prompt + sequence.forced, 0)
        rows = self.link.score(sequences, asked.phase, asked.what, asked.chunk)
        first: wire.Row | None = await unless_client_leaves(request, anext(rows, None))
        return StreamingResponse(_records(first, rows), media_type="application/octet-stream")

    async def _speak(self, request: Request, asked: Asked, text: Text) -> Response:
        if asked.choices[0].sampling.max_tokens == 0:
            return answer(await whole(asked, text, _nothing()))
        pieces = speak_all(self.link, text, asked.choices, asked.request.stops)
        if not asked.request.stream:
            async with aclosing(pieces):
                return answer(await unless_client_leaves(request, whole(asked, text, pieces)))
        # Wait for the first piece before the status line leaves: what the engine refuses gets its proper status.
        first: Piece = await unless_client_leaves(request, anext(pieces))
        stream = events(asked, text, _chain(first, pieces))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    async def _score_prompts(self, prompts: list[list[int]], num_top: int) -> list[list[wire.Token]]:
        return [await prompt_logprobs(self.link, prompt, num_top) for prompt in prompts]

    def _ready(self) -> Text:
        if not self.is_ready or self.text is None:
            raise ApiError(503, f"the engine is {self.link.state}; ask /health until it says 200", code="not_ready")
        return self.text

    def _admit(self, model: str | None, num_requests: int) -> Text:
        text = self._ready()
        if model is not None:
            self._check_model(model)
        limit = self.link.configured.max_queued if self.link.configured else 0
        if self.link.num_requests + num_requests > limit:
            raise ApiError(429, f"{limit} requests are queued already; try again in a moment", code="queue_full")
        return text

    def _check_model(self, name: str) -> None:
        served = self.link.ready.served_name if self.link.ready else None
        if name != served:
            raise ApiError(404, f"no model {name!r} here; this server serves {served!r}", "model", "model_not_found")

    def _check_bias(self, bias: dict[str, float] | None) -> None:
        vocab = self.link.ready.vocab_size if self.link.ready else 0
        beyond = [token for token in bias or {} if int(token) >= vocab]
        if beyond:
            raise ApiError(400, f"token id {beyond[0]} is outside the vocabulary of {vocab}", "logit_bias")

    @property
    def _fingerprint(self) -> str | None:
        return (self.link.ready.fingerprint or None) if self.link.ready else None

    def _fit(self, token_ids: list[int], max_tokens: int | None, field: str = "prompt") -> int:
        """Return how many tokens may be drawn; raises ApiError(400) when prompt and answer do not fit the context."""
        assert self.link.ready is not None
        limit, vocab = self.link.ready.max_model_len, self.link.ready.vocab_size
        if not token_ids:
            raise ApiError(400, "the prompt is empty", "prompt", "empty_prompt")
        if max(token_ids) >= vocab:
            raise ApiError(400, f"token id {max(token_ids)} is outside the vocabulary of {vocab}", "prompt")
        room = limit - len(token_ids)
        wanted = max(room, 1) if max_tokens is None else max_tokens
        if wanted > room:
            message = f"the context holds {limit} tokens; the prompt has {len(token_ids)}, {wanted} more were asked for"
            raise ApiError(400, message, field if room < 1 else "max_tokens", "context_length_exceeded")
        return wanted

    def _card(self) -> dict[str, Any]:
        ready = self.link.ready
        assert ready is not None
        card = {"id": ready.served_name, "object": "model", "created": self._since, "owned_by": "kernelwright"}
        shape = {"num_hidden_layers": ready.num_layers, "hidden_size": ready.hidden_size}
        return card | {"max_model_len": ready.max_model_len, "vocab_size": ready.vocab_size} | shape


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def read_json(request: Request, form: type[_Model]) -> _Model:
    """Return the body as `form`; raises ApiError(400) naming the field that is wrong, 413 when it is too large.

    Raises ClientLeft when the client goes before it has sent the whole.
    """
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY:
                raise ApiError(413, f"the body is over {MAX_BODY} bytes; send the sequences in several requests")
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientLeft from error
    try:
        body = msgspec.json.decode(b"".join(chunks))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="malformed_json") from error
    try:
        return form.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        message = f"{where}: {what}" if where else what
        named = re.match(r"`(\w+)`", what)
        field = where.split(".")[0] or (named[1] if named else None)
        raise ApiError(400, message, field, "bad_request") from error


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, _Result] | Any) -> _Result:
    """Return the result of `work`; cancel it and raise ClientLeft when the client closes the connection first."""
    task: asyncio.Task[_Result] = asyncio.ensure_future(_await(work))
    leaves = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({task, leaves}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeft
    finally:
        for waiting in (task, leaves):
            waiting.cancel()
        await asyncio.gather(task, leaves, return_exceptions=True)


async def _await(work: Any) -> Any:
    return await work


async def _left(receive: Callable[[], Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _chain(first: Piece, rest: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


async def _nothing() -> AsyncGenerator[Piece, None]:
    return
    yield


async def _records(first: wire.Row | None, rest: AsyncGenerator[wire.Row, None]) -> AsyncGenerator[bytes, None]:
    """Yield the records of `/v1/score`: u32 sequence, u32 position, then vocab or layers · H float32, little-endian."""
    async with aclosing(rest):
        if first is None:
            return
        yield _RECORD.pack(first.sequence, first.position) + first.logits
        async for row in rest:
            yield _RECORD.pack(row.sequence, row.position) + row.logits
