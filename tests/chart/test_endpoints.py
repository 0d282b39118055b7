"""The chart's test of the endpoints, against parts that say this and that of themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from chart_files import CHART
from keygrouping_local.ports import free_ports

DEGRADED = {"name": "redis", "state": "degraded", "detail": "Redis at redis:6379 can't be used"}


class Part(ThreadingHTTPServer):
    """Says what the test wants to its /readyz."""

    status = 200
    said: dict[str, Any] | str


class Answer(BaseHTTPRequestHandler):
    server: Part

    def do_GET(self) -> None:
        ready = self.path == "/readyz"
        self.send_response(self.server.status if ready else 200)
        self.end_headers()
        said = self.server.said
        told = said if isinstance(said, str) else json.dumps(said)
        self.wfile.write(told.encode() if ready else b"up 1\n")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def part() -> Iterator[Part]:
    with Part(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_who_does_not_answer_at_once_is_asked_again() -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-u", "-c", (CHART / "files" / "endpoints.py").read_text(), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        with pytest.raises(subprocess.TimeoutExpired):
            asking.wait(timeout=1.5)
        with Part(("127.0.0.1", port), Answer) as server:
            server.said = {"status": "ready"}
            threading.Thread(target=server.serve_forever).start()
            told, faults = asking.communicate(timeout=60)
            server.shutdown()
    assert (asking.returncode, faults) == (0, "")
    assert told.splitlines() == [f"{url}/metrics 200", f"{url}/readyz 200"]


@pytest.mark.parametrize(
    ("status", "said", "passes", "told"),
    [
        (200, {"status": "ready"}, True, "/readyz 200"),
        (200, {"status": "ready", "store": {"name": "redis", "state": "ok", "detail": None}}, True, "/metrics 200"),
        (200, {"status": "ready", "store": DEGRADED}, False, "Redis at redis:6379 can't be used"),
        (503, {"status": "starting"}, False, "503"),
        (200, "the group has given this member its partitions", True, "/readyz 200"),
        (503, "the group has not given this member its partitions yet", False, "503"),
    ],
)
def test_a_part_is_well_if_it_is_ready_and_not_degraded(
    part: Part, status: int, said: dict[str, Any] | str, passes: bool, told: str
) -> None:
    part.status, part.said = status, said
    program = (CHART / "files" / "endpoints.py").read_text()
    url = f"http://127.0.0.1:{part.server_port}"
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is passes
    assert told in done.stdout + done.stderr
