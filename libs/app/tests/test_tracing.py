"""Spans continue the producer's trace, and what handlers return continues theirs."""

from __future__ import annotations

from typing import Any

import pytest
from keygrouping_app import App, Event, Output
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = int(PARENT[3:35], 16), int(PARENT[36:52], 16)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def of_orders(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == "process orders"]


def order(number: int, parent: str | None = PARENT) -> Event:
    headers = [("mine", None)] if parent is None else [("mine", None), ("traceparent", parent.encode())]
    return Event.of("orders", number, key="alice", headers=headers)


def parent_of(header: bytes | None) -> tuple[int, int]:
    assert header is not None
    _, trace_id, span_id, _ = header.decode().split("-")
    return int(trace_id, 16), int(span_id, 16)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_span_continues_the_event_s_trace_and_outputs_continue_it(
    exported: InMemorySpanExporter, plain: bool
) -> None:
    app = App("billing")

    def returned() -> list[Output]:
        own = [("traceparent", PARENT.encode())]
        return [Output("receipts", 1, headers=[("a", b"b")]), Output("receipts", 2, headers=own)]

    if plain:

        @app.on("orders")
        def charge(_: Event) -> list[Output]:
            return returned()

    else:

        @app.on("orders")
        async def charge_soon(_: Event, inner: Any) -> list[Output]:
            with inner.start_as_current_span("inner"):
                return returned()

        @app.lifespan
        async def inner() -> Any:
            yield trace.get_tracer_provider().get_tracer("user")

    tested = await app.test([order(1)])
    (span,) = of_orders(exported)
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id, span.kind) == (TRACE, SPAN, SpanKind.CONSUMER)
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "orders"
    assert span.attributes["messaging.consumer.group.name"] == "billing"
    assert span.attributes["messaging.kafka.offset"] == 0
    first, second = tested.outputs
    assert first.headers[0] == ("a", b"b")
    assert parent_of(dict(first.headers)["traceparent"]) == (TRACE, span.context.span_id)
    assert second.headers == (("traceparent", PARENT.encode()),)
    for other in exported.get_finished_spans():
        if other.name == "inner":
            assert other.parent is not None
            assert other.parent.span_id == span.context.span_id


async def test_each_try_has_a_span_and_says_how_it_failed(exported: InMemorySpanExporter) -> None:
    app = App("billing")

    @app.on("orders", retries=1)
    async def charge(_: Event) -> None:
        raise RuntimeError("no money")

    await app.test([order(1, parent=None)])
    first, second = of_orders(exported)
    assert (first.parent, second.parent) == (None, None)
    assert {span.status.status_code for span in (first, second)} == {StatusCode.ERROR}


async def test_the_span_of_a_batch_links_to_the_traces_of_its_events(exported: InMemorySpanExporter) -> None:
    app = App("billing")

    @app.on("orders", batch=True)
    async def charge(_: list[Event]) -> None: ...

    other = PARENT.replace("b7ad", "1111")
    await app.test([order(1), order(2), order(3, other), order(4, None), order(5, "garbage")])
    (span,) = of_orders(exported)
    assert span.parent is None
    assert [link.context.trace_id for link in span.links] == [TRACE, TRACE]
    assert len({link.context.span_id for link in span.links}) == 2


async def test_without_a_provider_a_handler_runs_as_it_is() -> None:
    app = App("billing")

    @app.on("orders")
    async def charge(_: Event) -> None: ...

    (handler,) = app.handlers
    assert app.bound(handler, {}) is charge
    assert (await app.test([order(1)])).outputs == []
