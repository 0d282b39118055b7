"""How much of an HTTP interface one request, and one client, may take."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException
from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keygrouping_service.http.problems import problem_response

_UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked by the platform, which must get an answer however many others ask."""

_ASSETS = "/assets/"
"""Files of pages: opening one asks for dozens of them at once, and they cost next to nothing."""


def limit_requests(app: FastAPI, *, body_bytes: int, rate: int = 0) -> None:
    """Answers 413 to bodies of more than `body_bytes`, and 429 to more than `rate` requests per second of one client.

    A client is an address; a rate of 0 is none. Health, metrics and files of pages have no rate.
    """
    app.add_middleware(BodyLimit, most=body_bytes)
    if rate:
        app.add_middleware(RateLimit, rate=rate)


class BodyLimit:
    """Middleware: a body is refused by its stated length, or as soon as more has come."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._detail = f"the body has more than {most} bytes: send less at once"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        stated = Headers(scope=scope).get("content-length", "")
        if stated.isdecimal() and int(stated) > self._most:
            return await problem_response(413, self._detail)(scope, receive, send)
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                raise HTTPException(413, self._detail)
            return message

        await self._app(scope, counted, send)


class RateLimit:
    """Middleware: requests per second and client address, over a sliding window."""

    def __init__(self, app: ASGIApp, rate: int) -> None:
        self._app = app
        self._limit = RateLimitItemPerSecond(rate)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["path"] in _UNLIMITED or scope["path"].startswith(_ASSETS):
            return await self._app(scope, receive, send)
        client = (scope.get("client") or ("unknown", 0))[0]
        if await self._limiter.hit(self._limit, client):
            return await self._app(scope, receive, send)
        detail = f"more than {self._limit.amount} requests per second: wait a second"
        await problem_response(429, detail, headers={"Retry-After": "1"})(scope, receive, send)
