"""The router's app: all routes, the page, and what holds for every request and answer."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from keygrouping_service.http.app import create_app
from keygrouping_service.http.auth import Auth
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.http.problems import problem_response
from keygrouping_service.settings import ApiSettings

from keygrouping_router.api.guard import Guard
from keygrouping_router.api.openapi import describe_api
from keygrouping_router.api.page import SecurityHeaders, add_page
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.renderings import RenderedOnce, Renderings
from keygrouping_router.api.resources.events import events_routes
from keygrouping_router.api.resources.grouping import grouping_routes
from keygrouping_router.api.resources.keyspace import keyspace_routes
from keygrouping_router.api.resources.overrides import overrides_routes
from keygrouping_router.api.resources.plan import plan_routes
from keygrouping_router.api.resources.ready import readiness_routes
from keygrouping_router.api.resources.shadow import shadow_routes
from keygrouping_router.api.resources.thresholds import thresholds_routes
from keygrouping_router.api.resources.workers import workers_routes
from keygrouping_router.errors import Degraded, Refused, Stale, Unknown

STATUSES: dict[type[Exception], int] = {Unknown: 404, Stale: 412, Refused: 422, Degraded: 503}
"""How an order that is not carried out is answered."""

RENDERED_ONCE = frozenset({"/keyspace"})
"""What many watch, and takes long to make."""


def router_app(plane: Plane, settings: ApiSettings) -> FastAPI:
    """The app that asks and orders this plane."""
    renderings = Renderings()
    guard = Guard(Auth(settings), renderings)
    app = create_app("keygrouping router", None, readiness_routes(plane, closed=settings.api_reads == "closed"))
    for routes in (
        keyspace_routes(plane),
        thresholds_routes(plane, guard),
        workers_routes(plane, guard),
        grouping_routes(plane, guard),
        overrides_routes(plane, guard),
        plan_routes(plane),
        shadow_routes(plane, guard),
        events_routes(plane),
    ):
        app.include_router(routes, dependencies=guard.reading, responses=guard.refused_reads)
    add_page(app)
    for error, status in STATUSES.items():
        _answer(app, error, status)
    app.add_middleware(RenderedOnce, renderings=renderings, paths=RENDERED_ONCE)
    limit_requests(app, body_bytes=settings.api_body_bytes, rate=settings.api_rate)
    app.add_middleware(SecurityHeaders)
    describe_api(app)
    return app


def _answer(app: FastAPI, error: type[Exception], status: int) -> None:
    async def on_error(_: Request, raised: Exception) -> JSONResponse:
        return problem_response(status, str(raised))

    app.add_exception_handler(error, on_error)
