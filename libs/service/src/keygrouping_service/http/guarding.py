"""What all our HTTP servers refuse: hosts that they are not, other sites' pages, and half-sent requests."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keygrouping_service.http.audit import SAFE_METHODS
from keygrouping_service.http.media import JSON, is_json, media_type, wrong_media
from keygrouping_service.http.problems import problem_response

HEADER_SECONDS = 10.0
"""In which the head of a request has to come as a whole, and the first one of a connection."""

HEADER_BYTES = 64 << 10
"""Most bytes of the head of a request."""

_OUR_DOMAINS = (".localhost", ".svc", ".svc.cluster.local")
"""Nobody can register names below them on the Internet."""

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def guarded(app: ASGIApp, *, hosts: Iterable[str], body_seconds: float, media: Sequence[str] = (JSON,)) -> ASGIApp:
    """The app without what pages of other sites can make a browser send, and bodies that take longer than that.

    `hosts`: further names of this server; `*.example.org` are all below it, `*` is any. `media`: what bodies are here,
    besides JSON.
    """
    return KnownHost(SameSite(BodyDeadline(app, body_seconds), media), frozenset(name.lower() for name in hosts))


class KnownHost:
    """Middleware: 421 to a request for a host that this server is not.

    By DNS rebinding a page's own name leads here, so that to the browser we are that page's site. What can't be such a
    name is allowed: addresses, names without a dot, those of a cluster's services, the machine's own name.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts | {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or self._knows(_host_of(Headers(scope=scope).get("host", ""))):
            return await self._app(scope, receive, send)
        detail = "this server has no such name: add the host of the request to KEYGROUPING_HTTP_HOSTS"
        await problem_response(421, detail)(scope, receive, send)

    def _knows(self, host: str) -> bool:
        if "." not in host or host.endswith(_OUR_DOMAINS) or host in self._hosts or "*" in self._hosts:
            return True
        if any(name.startswith("*.") and host.endswith(name[1:]) for name in self._hosts):
            return True
        return _is_address(host)


class SameSite:
    """Middleware: 403 to what a page of another site has asked for, 415 to a body that is not said to be JSON.

    A browser asks nobody before it sends a form or a text for a page of another site, but before it sends JSON. Of
    reads those with a foreign origin are refused: links to us, which have none, may stand anywhere. A server whose
    `media` name forms must ask for what no browser has.
    """

    def __init__(self, app: ASGIApp, media: Sequence[str]) -> None:
        self._app = app
        self._media = media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        safe = scope["method"] in SAFE_METHODS
        if _has_foreign_origin(headers) or (not safe and _is_sent_for_others(headers)):
            detail = "a page of another site can ask for nothing here: ask from a program, or from our own page"
            return await problem_response(403, detail)(scope, receive, send)
        media = media_type(headers)
        if not safe and _has_body(headers) and not (is_json(media) or media in self._media):
            return await problem_response(415, wrong_media(media, *self._media))(scope, receive, send)
        await self._app(scope, receive, send)


class BodyDeadline:
    """Middleware: 408 to a request whose body has not come as a whole after so many seconds."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        deadline = asyncio.get_running_loop().time() + self._seconds
        complete = False

        async def in_time() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                detail = f"the body has not come within {self._seconds:g} s: send less at once"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, in_time, send)


class ImpatientProtocol(HttpToolsProtocol):
    """HTTP of uvicorn, which waits for the head of a request for ever and takes one of any size, with bounds."""

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """A part of a request has come."""
        super().data_received(data)
        if self._answering:
            self._stop_waiting()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEADER_BYTES:
            self._end(_TOO_LARGE)
        elif self._deadline is None:
            self._wait()

    def on_response_complete(self) -> None:
        """A request was answered; if nothing follows, uvicorn ends the connection after some seconds."""
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self._answering:
            self._end(_TOO_SLOW if self._head_bytes else b"")

    def _end(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _is_sent_for_others(headers: Headers) -> bool:
    """Whether a browser says that it sends this for a page that is not ours."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _has_foreign_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _host_of(given: str) -> str:
    """The host without port; an address in brackets without them."""
    host = given.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".") if host.count(":") <= 1 else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
