"""What an app tells over HTTP: the page, `/healthz`, `/readyz`, `/metrics`, `/keys`, `/grouping` and `/state/KEY`; and
what it is told: `PUT /keys/KEY/slot` and `PUT /grouping`.

The server is the standard library's, on a thread; what it tells is read on the event loop, between two of its turns. So
an event loop that is stuck is seen: nothing but 503 comes from it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
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
_MOST_BODY = 10_000

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

Puts = Mapping[str, Callable[[bytes], Answer]]
"""By path: takes the body."""

PutsOfKey = Mapping[tuple[str, str], Callable[[bytes, bytes], Answer]]
"""By what stands before and behind a key in the path: takes the key, of which the escapes are undone, and the body."""


def text(status: HTTPStatus, body: str) -> Answer:
    """A line for people."""
    return status, "text/plain; charset=utf-8", f"{body}\n".encode()


_NOT_OURS = text(HTTPStatus.MISDIRECTED_REQUEST, "this server has no such name: ask for it by its address")

_NO_BODY = text(
    HTTPStatus.LENGTH_REQUIRED, f"give a body of at most {_MOST_BODY} bytes, and its length by Content-Length"
)

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


def _put_of(path: str, body: bytes, puts: Puts, of_key: PutsOfKey) -> Callable[[], Answer] | None:
    for (start, end), answer in of_key.items():
        if path.startswith(start) and path.endswith(end) and len(path) > len(start) + len(end):
            return partial(answer, unquote_to_bytes(path[len(start) : -len(end)]), body)
    return partial(puts[path], body) if path in puts else None


def _asked(loop: asyncio.AbstractEventLoop, path: str, answer: Callable[[], Answer] | None, there: str) -> Answer:
    """What is answered on the event loop, within seconds; None: there is nothing at this path."""
    if answer is None:
        return text(HTTPStatus.NOT_FOUND, f"no {path}: there are {there}")
    answering = answer

    async def on_loop() -> Answer:
        return answering()

    asked = asyncio.run_coroutine_threadsafe(on_loop(), loop)
    try:
        return asked.result(_SECONDS)
    except TimeoutError:
        asked.cancel()
        return text(HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop has not answered for {_SECONDS:.0f} s")
    except Exception as error:
        log.exception("%s can't be answered", path)
        return text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{path} can't be answered: {error!r}")


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Instead of a traceback on stderr; clients that go away are nothing to tell."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request can't be answered")


@contextmanager
def serving(
    port: int,
    answers: Mapping[str, Callable[[], Answer]],
    below: Mapping[str, Callable[[bytes], Answer]] = MappingProxyType({}),
    puts: Puts = MappingProxyType({}),
    puts_of_key: PutsOfKey = MappingProxyType({}),
) -> Iterator[int]:
    """Answers GET and PUT by path, on all addresses, while it is entered; gives the port. OSError if it is taken.

    `answers` are called on the event loop that it is entered on; so are those `below` a path, with the rest of it, of
    which the escapes are undone, `puts`, and `puts_of_key`.
    """
    ask = partial(_asked, asyncio.get_running_loop())
    given_at = ", ".join([*answers, *(f"{start}KEY" for start in below)])
    taken_at = ", ".join([*puts, *(f"{start}KEY{end}" for start, end in puts_of_key)])
    by_get = f"{given_at}; by PUT {taken_at}" if taken_at else given_at
    by_put = f"{taken_at}; by GET {given_at}" if taken_at else f"none by PUT; by GET {given_at}"

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            self._tell(lambda: ask(path, _answer_of(path, answers, below), by_get))

        def do_PUT(self) -> None:
            path, length = self.path, self.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > len(str(_MOST_BODY)) or int(length) > _MOST_BODY:
                self.close_connection = True  # what it sends all the same is no request
                self._tell(lambda: _NO_BODY)
                return
            given = self.rfile.read(int(length))
            self._tell(lambda: ask(path, _put_of(path, given, puts, puts_of_key), by_put))

        def _tell(self, answer: Callable[[], Answer]) -> None:
            known = is_ours(self.headers.get("Host", ""))
            status, kind, body = _NOT_OURS if not known else _NO_QUERY if "?" in self.path else answer()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for header in _HEADERS.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: probes and scrapes are not worth a line."""

    with _Server(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        paths = "/metrics, /healthz, /readyz, /keys, /grouping and /state/KEY"
        log.info("the page, %s on port %d", paths, server.server_port)
        try:
            yield server.server_port
        finally:
            server.shutdown()
