"""What an app tells over HTTP: the page, `/healthz`, `/readyz`, `/metrics`, `/keys` and `/state/KEY`.

The server is the standard library's, on a thread; what it tells is read on the event loop, between two of its turns. So
an event loop that is stuck is seen: nothing but 503 comes from it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from urllib.parse import unquote_to_bytes, urlsplit

log = logging.getLogger(__name__)

_SECONDS = 5.0
_REQUEST_SECONDS = 10.0

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
"""Of every answer: nothing from elsewhere, nothing inline, and nothing for pages of other sites."""

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""


def text(status: HTTPStatus, body: str) -> Answer:
    """A line for people."""
    return status, "text/plain; charset=utf-8", f"{body}\n".encode()


_NOT_OURS = text(HTTPStatus.MISDIRECTED_REQUEST, "this server has no such name: ask for it by its address")

_NO_QUERY = text(HTTPStatus.UNPROCESSABLE_ENTITY, "no query is taken here: leave it out")


def is_ours(given: str) -> bool:
    """Whether a request's host can be this server: an address, a name without a dot, a cluster's service, this machine.

    By DNS rebinding a page's own name leads here, and the page could read what is told.
    """
    try:
        host = urlsplit(f"//{given.strip().lower()}").hostname or ""
    except ValueError:
        return False
    if "." not in host or host.endswith((".localhost", ".svc", ".svc.cluster.local")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == socket.gethostname().lower()
    return True


def _answer_of(
    path: str, answers: Mapping[str, Callable[[], Answer]], below: Mapping[str, Callable[[bytes], Answer]]
) -> Callable[[], Answer] | None:
    for start, answer in below.items():
        if path.startswith(start) and path != start:
            return partial(answer, unquote_to_bytes(path.removeprefix(start)))
    return answers.get(path)


@contextmanager
def serving(
    port: int,
    answers: Mapping[str, Callable[[], Answer]],
    below: Mapping[str, Callable[[bytes], Answer]] = MappingProxyType({}),
) -> Iterator[int]:
    """Answers GET by path, on all addresses, while it is entered; gives the port. OSError if it is taken.

    `answers` are called on the event loop that it is entered on; so are those `below` a path, with the rest of it, of
    which the escapes are undone.
    """
    loop = asyncio.get_running_loop()

    def ask(path: str) -> Answer:
        answer = _answer_of(path, answers, below)

        async def on_loop() -> Answer:
            assert answer is not None
            return answer()

        if answer is None:
            return text(HTTPStatus.NOT_FOUND, f"no {path}: there are {', '.join([*answers, *below])}")
        asked = asyncio.run_coroutine_threadsafe(on_loop(), loop)
        try:
            return asked.result(_SECONDS)
        except TimeoutError:
            asked.cancel()
            return text(HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop has not answered for {_SECONDS:.0f} s")

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            known = is_ours(self.headers.get("Host", ""))
            status, kind, body = _NOT_OURS if not known else _NO_QUERY if query else ask(path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for header in _HEADERS.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: probes and scrapes are not worth a line."""

    with ThreadingHTTPServer(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        log.info("the page, /metrics, /healthz, /readyz, /keys and /state/KEY on port %d", server.server_port)
        try:
            yield server.server_port
        finally:
            server.shutdown()
