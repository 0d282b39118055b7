"""The small HTTP side of every service: health, metrics, and a place for its own routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from keygrouping_service.kafka import Fatal

log = logging.getLogger(__name__)


def create_app(title: str, ready: Callable[[], bool], *routers: APIRouter) -> FastAPI:
    """App with `/healthz` (the event loop runs), `/readyz` (503 until `ready()`), `/metrics` and the given routes."""
    app = FastAPI(title=title, docs_url="/docs", redoc_url=None)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        if ready():
            return {"status": "ready"}
        response.status_code = 503
        return {"status": "starting"}

    @app.get("/metrics")
    async def scrape() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    for router in routers:
        app.include_router(router)
    return app


class _Server(uvicorn.Server):
    """A server that leaves signals to the service: `serve` would otherwise take them over."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def serving(app: FastAPI, host: str, port: int) -> AsyncIterator[int]:
    """Serves the app in this event loop; gives the port (a free one if 0 was asked) and stops on exit.

    Raises `Fatal` if the port is taken.
    """
    config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off")
    server = _Server(config)
    try:
        socket = config.bind_socket()
    except SystemExit:
        raise Fatal(
            f"port {port} on {host} is taken or not allowed: set KEYGROUPING_HTTP_PORT to a free one (0 finds one)"
        ) from None
    bound = int(socket.getsockname()[1])
    task = asyncio.create_task(server.serve(sockets=[socket]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        log.info("listening on http://%s:%d", host, bound)
        yield bound
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=5)
        socket.close()
