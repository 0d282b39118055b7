"""The small HTTP side of every service: health, metrics, and a place for its own routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from importlib.metadata import version
from typing import Literal

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import PlainTextResponse
from fastapi.telemetry import TelemetryConfig
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from keygrouping_service.errors import Fatal
from keygrouping_service.http.audit import Audit
from keygrouping_service.http.docs import add_docs
from keygrouping_service.http.guarding import ImpatientProtocol, guarded
from keygrouping_service.http.media import JSON
from keygrouping_service.http.openapi import Responses, complete, problems
from keygrouping_service.http.problems import answer_with_problems
from keygrouping_service.http.queries import known_query
from keygrouping_service.observability import metrics, tracing

log = logging.getLogger(__name__)


_MOST_CONNECTIONS = 1000
"""Open at once; beyond them the answer is 503."""

_NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)
_SCRAPED: Responses = {200: {"description": "In the text format of Prometheus"}}


class Health(BaseModel):
    """Whether a service can do its work now."""

    status: Literal["ok", "ready", "starting"]


def create_app(
    title: str, ready: Callable[[], bool] | None, *routers: APIRouter, frequent: Collection[str] = ()
) -> FastAPI:
    """App with `/healthz`, `/readyz`, `/metrics`, `/docs` and the given routes.

    `/readyz` is 503 until `ready()`; with a `ready` of None one of the routers brings it. Every error is answered with
    problem details, and so is a query that a route doesn't know. Every change is told in the log: for `frequent` see
    `audit.Audit`.
    """
    spans = tracing.active()
    app = FastAPI(
        title=title,
        telemetry=spans.of_requests() if spans is not None else _NO_TELEMETRY,
        version=version("keygrouping-service"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(known_query)],
    )
    _add_health(app)
    if ready is not None:
        _add_readiness(app, ready)
    for router in routers:
        app.include_router(router)
    add_docs(app)
    app.add_middleware(Audit, frequent=frequent)
    answer_with_problems(app)
    complete(app)
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"], responses=problems(422))
    async def get_healthz() -> Health:
        """The process lives: its event loop gives answers."""
        return Health(status="ok")

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=_SCRAPED | problems(422))
    async def get_metrics() -> Response:
        """All metrics, for Prometheus."""
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


def _add_readiness(app: FastAPI, ready: Callable[[], bool]) -> None:
    unready: Responses = {503: {"description": "Not yet, or not now", "model": Health}}

    @app.get("/readyz", tags=["health"], responses=unready | problems(422))
    async def get_readyz(response: Response) -> Health:
        """Whether the service can do its work now."""
        if ready():
            return Health(status="ready")
        response.status_code = 503
        return Health(status="starting")


class _Server(uvicorn.Server):
    """A server that leaves signals to the service: `serve` would otherwise take them over."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def serving(
    app: FastAPI,
    host: str,
    port: int,
    *,
    hosts: Iterable[str] = (),
    body_seconds: float = 60.0,
    media: Sequence[str] = (JSON,),
) -> AsyncIterator[int]:
    """Serves the app in this event loop; gives the port (a free one if 0 was asked) and stops on exit.

    For `hosts`, `body_seconds` and `media` see `guarding.guarded`.

    Raises `Fatal` if the port is taken.
    """
    config = uvicorn.Config(
        guarded(app, hosts=hosts, body_seconds=body_seconds, media=media),
        host=host,
        port=port,
        http=ImpatientProtocol,
        limit_concurrency=_MOST_CONNECTIONS,
        log_config=None,
        access_log=False,
        lifespan="off",
    )
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
