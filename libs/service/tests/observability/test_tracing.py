"""Traces: a span for each request and each transaction, linked to what was read; nothing at all when off."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from aiokafka import TopicPartition
from fastapi import APIRouter
from keygrouping_service.errors import Fatal
from keygrouping_service.http.app import create_app
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.observability import tracing
from keygrouping_service.observability.logs import set_up_logging
from keygrouping_service.observability.spans import MOST_LINKS, Spans
from keygrouping_service.run import run
from keygrouping_service.settings import ServiceSettings, StageSettings
from keygrouping_service.testing import Cluster, until
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

TP = TopicPartition("events", 3)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[Spans]:
    made = Spans(SimpleSpanProcessor(exporter), "keygrouping-test")
    with tracing.using(made):
        yield made


def header(trace: int, span: int) -> tuple[str, bytes]:
    return ("traceparent", b"00-%032x-%016x-01" % (trace, span))


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    routes = APIRouter()

    @routes.get("/state")
    async def read() -> dict[str, str]:
        logging.getLogger("test").warning("asked")
        spans = tracing.active()
        return {name: value.decode() for name, value in (spans.headers() if spans else [])}

    transport = httpx.ASGITransport(create_app("test", lambda: True, routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as running:
        yield running


@pytest.mark.usefixtures("spans")
async def test_a_request_is_a_span_of_the_callers_trace(exporter: InMemorySpanExporter) -> None:
    async with client() as http:
        for path in ("/healthz", "/readyz", "/metrics", "/state"):
            assert (await http.get(path, headers={"traceparent": header(7, 8)[1].decode()})).is_success
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("GET /state", SpanKind.SERVER)
    assert span.context is not None and span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (7, 8)
    assert span.resource.attributes["service.name"] == "keygrouping-test"


async def test_logs_and_new_records_carry_the_trace(
    spans: Spans, exporter: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("WARNING", "json")
    async with client() as http:
        headers = (await http.get("/state")).json()
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    trace_id, span_id = format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)
    event = json.loads(capsys.readouterr().err)
    assert (event["trace_id"], event["span_id"]) == (trace_id, span_id)
    assert headers["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
    assert spans.current_ids() == {} and spans.headers() == []


def test_a_transaction_links_once_to_each_context_that_was_read(spans: Spans, exporter: InMemorySpanExporter) -> None:
    traced = spans.transactions(TP, "app-router")
    traced.saw(3, [[header(1, 2), ("other", None)], [], [header(1, 2)]])
    traced.saw(3, [[header(3, 4)], [("traceparent", b"\xff")], [("traceparent", None)]])
    with traced.transaction(42, 5):
        pass
    with traced.transaction(43, 0):
        pass
    first, second = exporter.get_finished_spans()
    assert [(link.context.trace_id, link.context.span_id) for link in first.links] == [(1, 2), (3, 4)]
    assert (first.name, first.kind, second.links) == ("process events", SpanKind.CONSUMER, ())
    assert first.attributes is not None
    assert first.attributes["messaging.batch.message_count"] == 6
    assert first.attributes["keygrouping.committed_offset"] == 42
    assert first.attributes["messaging.destination.partition.id"] == "3"


def test_links_are_bounded(spans: Spans, exporter: InMemorySpanExporter) -> None:
    traced = spans.transactions(TP, "app-router")
    traced.saw(1, [[header(n, n)] for n in range(1, 10 * MOST_LINKS)])
    with traced.transaction(1, 1):
        pass
    (span,) = exporter.get_finished_spans()
    assert len(span.links) == MOST_LINKS


def test_a_transaction_that_fails_says_so(spans: Spans, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(TimeoutError), spans.transactions(TP, "g").transaction(1, 1):
        raise TimeoutError
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok


@pytest.mark.kafka
@pytest.mark.usefixtures("spans")
async def test_a_stage_links_to_the_traces_of_its_records_and_leaves_their_headers_alone(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, exporter: InMemorySpanExporter
) -> None:
    source, target = f"{topic_prefix}-in", f"{topic_prefix}-out"
    await cluster.create(**{source: 1, target: 1})
    headers = [("own", b"\x00"), header(5, 6)]
    await cluster.producer.send_and_wait(source, b"v", b"k", partition=0, headers=headers)

    async def copy(owned: OwnedPartition) -> None:
        while not owned.stopping:
            if records := await owned.poll(10, 0.1):
                outbox = owned.outbox()
                outbox.pass_on(target, 0, records)
                await owned.commit(outbox, owned.position, Progress())

    stop = asyncio.Event()
    running = asyncio.create_task(PartitionRunner(settings, "copy", source, copy).run(stop))
    await until(lambda: exporter.get_finished_spans())
    stop.set()
    await running
    (span, *_) = exporter.get_finished_spans()
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(5, 6)]
    (copied,) = await cluster.read(target)
    assert list(copied.headers) == headers


def settings_of(endpoint: str | None) -> ServiceSettings:
    return ServiceSettings(bootstrap_servers="unused:9092", otel_endpoint=endpoint)


async def one_request(_: asyncio.Event) -> None:
    async with client() as http:
        assert (await http.get("/state")).json()["traceparent"]


class Collector(BaseHTTPRequestHandler):
    """Remembers what it was sent."""

    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self.got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("by_setting", [True, False])
def test_spans_reach_a_collector_by_setting_or_standard_environment(
    by_setting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Collector.got = []
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        if not by_setting:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            monkeypatch.setenv("OTEL_SERVICE_NAME", "my-router")
        assert run(one_request, settings_of(f"{url}/" if by_setting else None)) == 0
        server.shutdown()
    ((path, body),) = Collector.got
    assert path == "/v1/traces"
    assert b"GET /state" in body and (b"keygrouping" if by_setting else b"my-router") in body
    assert tracing.active() is None


def test_a_collector_that_is_away_does_not_keep_a_service_from_ending() -> None:
    ended = threading.Event()

    def work() -> None:
        run(one_request, settings_of("http://127.0.0.1:1"))
        ended.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.AbstractEventLoop, "add_signal_handler", lambda *_: None)
        patch.setattr("asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler", lambda *_: None)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert ended.wait(30)


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from keygrouping_service import observability

    monkeypatch.delattr(observability, "spans")
    monkeypatch.delitem(sys.modules, "keygrouping_service.observability.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with (
        pytest.raises(Fatal, match=r"install keygrouping-service\[tracing\]"),
        tracing.tracing(settings_of("http://c")),
    ):
        pass


def test_when_off_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, keygrouping_service.kafka.runner, keygrouping_service.http.app, keygrouping_service.run as r\n"
        "from keygrouping_service.settings import ServiceSettings\n"
        "async def main(stop): pass\n"
        "r.run(main, ServiceSettings(bootstrap_servers='unused:9092'))\n"
        "sys.exit(any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
