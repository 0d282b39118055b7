"""What the page's tests open: the double behind a port, and the router's own app."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import uvicorn
from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from keygrouping_router.api import router_app
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.page import SecurityHeaders, add_page
from keygrouping_router.api.shapes import History, Model, PlanHistory
from keygrouping_router.naming import key_of
from keygrouping_router.replica import new_replica
from keygrouping_service.http.app import serving
from keygrouping_service.store.memory import MemoryStore

from .page_double import Double
from .planes import route, settings_of, skewed


def app_of(double: Double) -> FastAPI:
    """The page with the API that it talks to."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(SecurityHeaders)
    get = {
        "/workers": double.workers_report,
        "/grouping": double.grouping,
        "/shadow": double.shadow,
        "/overrides": double.overrides_report,
        "/thresholds": double.thresholds,
        "/plan": double.plan_in_force,
        "/plan/history": lambda: PlanHistory(entries=double.plans[::-1][:100]),
        "/thresholds/history": lambda: History(entries=double.history[::-1]),
    }
    for path, answer in get.items():
        app.get(path)(_answering(double, answer))
    _add_reads(app, double)
    _add_writes(app, double)
    add_page(app)
    return app


def _answering(double: Double, answer: Callable[[], Model]) -> Callable[[Request], Response]:
    def handler(request: Request) -> Response:
        return _refused(double, request, double.reads_closed) or _json(double, answer())

    return handler


def _add_reads(app: FastAPI, double: Double) -> None:
    @app.get("/readyz")
    def readyz() -> Response:
        return _json(double, double.readiness(), 503 if double.status == "starting" else 200)

    @app.get("/keyspace")
    def keyspace(request: Request) -> Response:
        return _json(double, double.found(dict(request.query_params)))

    @app.get("/keyspace/{key:path}")
    def key(request: Request) -> Response:
        return _json(double, double.explained(key_of(request.scope["raw_path"].split(b"/keyspace/")[1])))

    @app.get("/events")
    async def events(request: Request, last_event_id: str = Header()) -> Response:
        if double.reads_closed and (refused := _refused(double, request, True)):
            return refused
        return StreamingResponse(_events(double, int(last_event_id)), media_type="text/event-stream")


async def _events(double: Double, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 100\n\n: hello\n\n"
    position = 0 if after == 0 else next((i + 1 for i, (number, *_) in enumerate(double.sent) if number == after), 0)
    while True:
        while position < len(double.sent):
            number, kind, model = double.sent[position]
            position += 1
            yield (
                f"id: {number}\n" if number else ""
            ).encode() + f"event: {kind}\ndata: {model.model_dump_json()}\n\n".encode()
        await asyncio.sleep(0.02)


def _add_writes(app: FastAPI, double: Double) -> None:  # noqa: C901 -- the routes of a stand-in, each a line or two
    async def change(request: Request, apply: Callable[[Any], Model], dry_run: bool = False) -> Response:
        body = json.loads(await request.body() or b"null")
        double.asked.append((request.method, str(request.url.path) + ("?dry_run" if dry_run else ""), body))
        if refused := _refused(double, request, double.token is not None):
            return refused
        if request.headers.get("if-match", f'"{double.version}"') != f'"{double.version}"':
            return _problem(412, f"version {double.version} is in force")
        if body and body.get("check_interval") == -1:
            return _problem(422, "thresholds: check_interval must be at least 0, not -1")
        if dry_run:
            return _json(double, double.dry_run())
        if double.degraded:
            return _problem(503, "the store can't be reached: nothing is changed")
        return _json(double, apply(body))

    def set_values(body: Any) -> Model:
        before = {name: double.values[name] for name in body}
        double.values |= body
        double.control("thresholds", before, body)
        return double.thresholds()

    def set_workers(body: Any) -> Model:
        before, double.mode = double.workers, "auto" if body["workers"] == "auto" else "fixed"
        double.workers = before if double.mode == "auto" else body["workers"]
        double.control("workers", {"workers": before}, body)
        double.push()
        return double.workers_report()

    def set_shadow(body: Any) -> Model:
        before, double.shadows = double.shadows, [one["name"] for one in body["groupings"]]
        double.control("shadow", {"groupings": ",".join(before)}, {"groupings": ",".join(double.shadows)})
        return double.shadow()

    @app.put("/overrides/{key:path}")
    @app.delete("/overrides/{key:path}")
    async def override(request: Request, dry_run: bool = False) -> Response:
        key = key_of(request.scope["raw_path"].split(b"/overrides/")[1])
        return await change(request, lambda body: double.override(key, body), dry_run)

    @app.patch("/thresholds")
    async def thresholds(request: Request, dry_run: bool = False) -> Response:
        return await change(request, set_values, dry_run)

    @app.put("/workers")
    async def workers(request: Request, dry_run: bool = False) -> Response:
        return await change(request, set_workers, dry_run)

    def set_grouping(body: Any) -> Model:
        before, double.grouping_name = double.grouping_name, body["name"]
        double.observe_only = body["observe_only"]
        double.control("grouping", {"name": before}, {"name": body["name"]})
        return double.grouping()

    @app.put("/grouping")
    async def grouping(request: Request, dry_run: bool = False) -> Response:
        return await change(request, set_grouping, dry_run)

    @app.put("/shadow")
    async def shadow(request: Request) -> Response:
        return await change(request, set_shadow)


def _refused(double: Double, request: Request, closed: bool) -> Response | None:
    if not closed or request.headers.get("authorization") == f"Bearer {double.token}":
        return None
    return _problem(401, "a bearer token is needed")


def _json(double: Double, model: Model, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, {"ETag": f'"{double.version}"'}, "application/json")


def _problem(status: int, detail: str) -> Response:
    return JSONResponse(
        {"title": "no", "status": status, "detail": detail}, status, media_type="application/problem+json"
    )


class Site:
    """The double behind a port, in a thread; it can be stopped and started again at the same port."""

    def __init__(self, double: Double) -> None:
        self.double = double
        self._socket_address = ("127.0.0.1", 0)
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self._socket_address[0]}:{self._socket_address[1]}/"

    def start(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(self._socket_address)
        self._socket_address = listening.getsockname()
        config = uvicorn.Config(app_of(self.double), log_config=None, lifespan="off", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)


class RouterSite:
    """The router's own app behind a port, with a control plane that gets skewed traffic without Kafka."""

    def __init__(self) -> None:
        self._port: Future[int] = Future()
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._port.result(30)}/"

    def stop(self) -> None:
        self._end.set()
        self._thread.join(10)

    async def _run(self) -> None:
        settings = settings_of(interval=0.5, workers=4)
        plane = ControlPlane(new_replica(settings, MemoryStore(), 16), settings.max_batch)
        await plane.replica.start()
        async with plane.replica.running(), serving(router_app(plane, settings), "127.0.0.1", 0) as port:
            self._port.set_result(port)
            seed = 0
            while not self._end.is_set():
                route(plane, skewed(500, 0.3, seed), time.monotonic())
                seed += 1
                await asyncio.sleep(0.05)
