"""The HTTP front end: a process of its own, so that it steals no core inside an engine step. It never imports torch.

Started by `server.serve` with two inherited file descriptors: the listening socket and the socket to the engine. It
ends when the engine does.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kernelwright.engine import wire
from kernelwright.engine.generation import Text
from kernelwright.engine.link import EngineGone, EngineLink, EngineRefused
from kernelwright.engine.metrics import Metrics
from kernelwright.engine.openai_api import error_body
from kernelwright.engine.routes import ApiError, ClientLeft, Desk, answer
from kernelwright.profiles.errors import KernelwrightError, WrongUse

DRAIN_SECONDS = 30
_OPEN_PATHS = ("/health", "/metrics")


def create_app(desk: Desk) -> Starlette:
    """Return the application over `desk`; nothing is opened."""
    handlers: dict[type[Exception] | int, Callable[[Request, Exception], Response]] = {
        ApiError: _refuse,
        EngineRefused: _refuse,
        EngineGone: _refuse,
        WrongUse: _refuse,
        HTTPException: _refuse,
        ClientLeft: lambda request, error: Response(status_code=499),  # nobody is there to read it
        Exception: _own_fault,
    }
    return Starlette(
        routes=desk.routes(),
        exception_handlers=handlers,  # type: ignore[arg-type]
        middleware=[Middleware(_KeyCheck, desk=desk)],
    )


def _refuse(request: Request, error: Exception) -> Response:
    desk: Desk = request.app.state.desk
    if isinstance(error, ApiError):
        status, body = error.status, error_body(error.message, error.status, error.param, error.code)
    elif isinstance(error, HTTPException):
        status, body = error.status_code, error_body(f"{request.url.path}: {error.detail}", error.status_code)
    elif isinstance(error, WrongUse):
        status, body = 400, error_body(f"{error.message}. {error.remedy}", 400)
    else:
        status = error.status if isinstance(error, EngineRefused) else 503
        body = error_body(str(error), status)
    desk.link.metrics.rejected.labels(status=str(status)).inc()
    return answer(body, status, {"Retry-After": "1"} if status in (429, 503) else None)


def _own_fault(request: Request, error: Exception) -> Response:
    # The traceback goes to the server's log (Starlette raises the error again); the client gets none of it.
    return answer(error_body("the server failed on this request; its log says why", 500), 500)


class _KeyCheck:
    """Asks for the API key, when one is set, on every path but health and metrics."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self.app = app
        self.desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = self.desk.link.configured.api_key if self.desk.link.configured else None
        if key is None or scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            return await self.app(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, b"Bearer " + key.encode()):
            return await self.app(scope, receive, send)
        body = error_body("give the server's API key as `Authorization: Bearer KEY`", 401, code="invalid_api_key")
        return await answer(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


async def serve_http(
    listening: socket.socket, connection: socket.socket, load: Callable[[dict[str, Any]], Text]
) -> int:
    """Serve until the engine closes its end or says `Drain`; return the exit status. `load` reads the tokenizer."""
    link = await EngineLink.open(connection, Metrics())
    desk = Desk(link)
    app = create_app(desk)
    app.state.desk = desk
    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_SECONDS
    )
    server = uvicorn.Server(config)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    preparing: list[asyncio.Task[None]] = []

    def on_message(message: wire.Configure | wire.Ready | wire.Drain) -> None:
        if isinstance(message, wire.Drain):
            server.should_exit = True
        elif isinstance(message, wire.Ready):
            preparing.append(asyncio.create_task(_prepare(desk, load, failed)))

    link.on_message = on_message
    pump = asyncio.create_task(link.pump())
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await asyncio.wait({pump, serving, failed}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        link.close()
        await pump
        return 0
    reason = f"the tokenizer: {failed.exception()}" if failed.done() else "the engine process has ended"
    print(f"kernelwright: {reason}; the HTTP front end ends", file=sys.stderr, flush=True)
    server.should_exit = True
    await asyncio.wait({serving}, timeout=2)  # the waiting requests get their 503
    link.close()
    return 1


async def _prepare(desk: Desk, load: Callable[[dict[str, Any]], Text], failed: asyncio.Future[None]) -> None:
    assert desk.link.ready is not None
    try:
        desk.text = await asyncio.to_thread(load, desk.link.ready.tokenizer)
    except KernelwrightError as error:
        failed.set_exception(error)
        return
    if desk.link.state == "loading":
        desk.link.state = "ready"


def main(arguments: list[str]) -> int:
    """Run the front end on the file descriptors `LISTENING ENGINE`."""
    from kernelwright.engine.text import load_text

    listening, connection = (socket.socket(fileno=int(fd)) for fd in arguments)
    listening.setblocking(False)
    return asyncio.run(serve_http(listening, connection, load_text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
