"""The commands: settings as options, a short run against a broker, and locust's users against an interface."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from keygrouping_load.calls import locust_command
from keygrouping_load.settings import EventLoadSettings, HttpLoadSettings
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.settings import REQUEST_TIMEOUT_MS
from keygrouping_service.testing import Cluster, until
from pydantic import ValidationError


def load(command: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from keygrouping_load.cli import main; main()", command, *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"workload": "country-skew-101"},
        {"workload_settings": "[]"},
        {"workload_settings": "{"},
        {"workload": "zipf", "workload_settings": '{"exponnent": 2}'},
        {"rate": 0},
        {"tolerance": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EventLoadSettings(bootstrap_servers="unused:1", **wrong)  # type: ignore[arg-type]


def test_http_load_needs_something_to_call() -> None:
    with pytest.raises(ValidationError, match="KEYGROUPING_HTTPLOAD_ROUTER_URL"):
        HttpLoadSettings()
    assert locust_command(HttpLoadSettings(producer_url="http://p"))[-1:] == ["EventPoster"]
    both = locust_command(HttpLoadSettings(producer_url="http://p", router_url="http://r", users=1, seconds=7))
    assert both[-2:] == ["ApiReader", "EventPoster"]
    assert (both[both.index("--users") + 1], both[both.index("--run-time") + 1]) == ("2", "7s")


def test_an_unknown_command_is_told_what_there_is() -> None:
    found = load("evnts")
    assert found.returncode == 2
    assert "keygrouping-load events | http" in found.stderr


@pytest.mark.kafka
async def test_a_short_run_holds_its_rate_and_every_event_is_there(broker: EmbeddedBroker, topic_prefix: str) -> None:
    topic = f"{topic_prefix}-events"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 3})
        found = load(
            *("events", "--bootstrap-servers", broker.bootstrap_servers, "--events-topic", topic, "--rate", "500"),
            *("--seconds", "2", "--processes", "2", "--value-bytes", "50", "--log-format", "json"),
            # Not what is measured here: the machine may be busy.
            *("--tolerance", "0.9", "--delivery-timeout", "60"),
        )
        assert found.returncode == 0, found.stderr
        report = json.loads(found.stdout)
        assert report["acknowledged"] == report["events"] == 1000
        assert report["failed"] == 0 and report["held"]
        assert 0 < report["latency_p50_seconds"] <= report["latency_p99_seconds"] * 1.021
        records = await cluster.read(topic)
        numbers = Counter(json.loads(record.value or b"")["number"] for record in records)
        assert numbers == Counter(range(1000))
        stamps = {json.loads(record.value or b"")["number"]: record.timestamp for record in records}
        assert all(abs(stamps[n] - stamps[0] - 2 * n) <= 1000 for n in numbers), "the times they were intended for"


async def has_events(cluster: Cluster, topic: str, number: int) -> bool:
    return len(await cluster.read(topic)) >= number


@pytest.mark.long
@pytest.mark.kafka
async def test_after_a_long_outage_of_the_broker_events_are_acknowledged_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await cluster.create(events=2)
        limits = ("--tolerance", "0.9", "--delivery-timeout", "60")
        options = ("--rate", "100", "--seconds", "60", *limits, "--log-format", "json")
        running = asyncio.create_task(
            asyncio.to_thread(load, "events", "--bootstrap-servers", broker.bootstrap_servers, *options)
        )
        await until(partial(has_events, cluster, "events", 300))
        broker.kill()
        await asyncio.sleep(2 * REQUEST_TIMEOUT_MS / 1000)
        await asyncio.to_thread(broker.restart)
        found = await running
    report = json.loads(found.stdout)
    assert report["acknowledged"] + report["failed"] == 6000
    assert report["failed"] < 5000, "those of the outage at most"


def test_a_rate_that_is_not_held_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(
        "from keygrouping_load import cli, leader, report\n"
        "async def few(settings, stop): return report.Outcome(settings, [report.Report(acknowledged=1, last=60)])\n"
        "cli.generate = few\n"
        "cli.main(['events', '--bootstrap-servers', 'unused:1'])\n"
    )
    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1
    assert "fatal: the rate was not held: -100.00%, the tolerance is 1.00%" in found.stderr
    assert "1 of 60,000 acknowledged" in found.stdout


class Interface(ThreadingHTTPServer):
    """Answers as router and producer do; knows how often it was asked for what."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.hangs = False
        self.asked: Counter[str] = Counter()
        self.bodies: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Interface
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked[self.path] += 1
        if self.path == "/readyz":
            self._answer({}, 200)
        else:
            while self.server.hangs:
                time.sleep(0.1)
            self.server.tokens.add(self.headers["Authorization"])
            self._answer({"keys": [{"id": "T%C3%BCrkiye"}]} if self.path == "/keyspace" else {}, self.server.status)

    def do_POST(self) -> None:
        self.server.asked[self.path] += 1
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer({}, self.server.status)

    def _answer(self, body: object, status: int) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(params=[200])
def interface(request: pytest.FixtureRequest) -> Iterator[Interface]:
    with Interface(request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_locust_reads_and_posts(interface: Interface, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    found = load(
        *("http", "--router-url", interface.url, "--producer-url", interface.url, "--users", "4", "--rate", "0"),
        *("--seconds", "15", "--post-events", "3", "--token-file", str(tmp_path / "token")),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert {"/keyspace", "/keyspace/T%C3%BCrkiye", "/workers", "/plan", "/events"} <= set(interface.asked)
    assert interface.tokens == {"Bearer secret"}
    events = [json.loads(line) for line in interface.bodies[0].split("\n")]
    assert len(events) == 3 and all(event["key"] for event in events)
    assert "Response time percentiles" in found.stdout + found.stderr


@pytest.mark.parametrize("interface", [503], indirect=True)
def test_requests_that_fail_are_a_failure(interface: Interface) -> None:
    found = load("http", "--router-url", interface.url, "--users", "1", "--seconds", "3", "--rate", "5")
    assert found.returncode == 1


def test_a_load_without_requests_is_a_failure_and_says_why(interface: Interface) -> None:
    interface.hangs = True
    found = load("http", "--router-url", interface.url, "--users", "1", "--seconds", "1", "--rate", "5")
    interface.hangs = False
    assert found.returncode == 1
    why = "no request came to an end within 1 s: make it longer, or see what does not answer"
    assert [line for line in found.stderr.splitlines() if line.startswith("fatal")] == [f"fatal: {why}"]


def test_what_does_not_become_ready_is_told() -> None:
    (port,) = free_ports(1)
    found = load("http", "--router-url", f"http://127.0.0.1:{port}", "--ready-timeout", "0")
    assert found.returncode == 1
    assert f"fatal: http://127.0.0.1:{port} is not ready after 0 s" in found.stderr
