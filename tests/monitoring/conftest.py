"""What the tests of rules and dashboards share: programs that may be missing, and small HTTP servers."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
}
Answer = Callable[[bytes], str]
Serve = Callable[[Answer], str]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install --no-install-recommends {PACKAGES[name]})")
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    return program("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    return program("prometheus")


@pytest.fixture(scope="session")
def alertmanager() -> str:
    return program("prometheus-alertmanager")


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.rfile.read(int(self.headers.get("Content-Length") or 0))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answers all requests by a function of their bodies; gives the address."""
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(served(answer))
