"""What both daemons' HTTP faces share: bounded bodies, coded errors, streams, a quiet server."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException

from verillm import api, sse
from verillm.api import ErrorBody, JobEvent, TaskEvent
from verillm.errors import InputError, MalformedError, PortInUse, VeriLLMError
from verillm_node.feed import Feed

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0
MAX_TASK_BYTES = 16 << 20
MAX_BUNDLE_BYTES = 64 << 20
Metrics = Callable[[], Mapping[str, float]]


def make_app(title: str, metrics: Metrics) -> FastAPI:
    """An app that answers every refusal with a code, and no page made for browsers."""
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(VeriLLMError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/metrics")
    async def prometheus() -> Response:
        lines = [f"{name} {value:g}\n" for name, value in sorted(metrics().items())]
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")

    return app


def answer(value: Mapping[str, object]) -> Response:
    """A JSON body."""
    return Response(api.dumps(value), media_type="application/json")


async def read_body(request: Request, cap: int) -> bytes:
    """The body, read only as far as `cap`; raises `MalformedError` beyond."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > cap:
            raise MalformedError("body", f"longer than {cap} bytes")
    return bytes(body)


def last_event_id(request: Request) -> int:
    """Where a reader left off; 0 is the beginning."""
    text = request.headers.get(sse.LAST_EVENT_ID)
    return 0 if text is None else sse.parse_event_id(text)


def stream(feed: Feed[Any], after: int = 0) -> Response:
    """A feed as server-sent events."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_encoded(feed, after), media_type=sse.MEDIA_TYPE, headers=headers)


async def _encoded(feed: Feed[JobEvent | TaskEvent], after: int) -> AsyncIterator[bytes]:
    async for entry in feed.follow(after, KEEP_ALIVE_SECONDS):
        yield sse.KEEP_ALIVE if entry is None else api.encode_event(*entry).encode()


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, VeriLLMError):  # registered for these only
        raise error
    body = ErrorBody.of(error)
    log.info("refused", extra={"code": body.code, "reason": body.message})
    return JSONResponse(body.to_json(), status_code=api.status_of(body.code))


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 422
    name = "not_found" if status == 404 else InputError.code
    body = ErrorBody(name, "no such path or method here", "see the API in verillm/api")
    return JSONResponse(body.to_json(), status_code=status)


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Binds before anything expensive is started; raises `PortInUse`."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise PortInUse(port, str(error.strerror)) from error
    listener.setblocking(False)
    return listener


async def serve(app: FastAPI, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serves until `stop`; open streams get two seconds to end."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        ws="none",
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]))
        await stop.wait()
        server.should_exit = True
        await serving
