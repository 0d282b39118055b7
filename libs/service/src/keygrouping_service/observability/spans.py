"""The spans of a service: its requests, by FastAPI's own instrumentation, and one for every transaction.

The instrumentation of aiokafka is no use here: it makes a span of every record that is read, and knows nothing of
whole batches. A transaction of a stage reads thousands of records of many traces; so it has a span of its own, which
links to the contexts in the headers of what it has read. The headers stay as they came, for the stages that follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from aiokafka import TopicPartition
from fastapi.telemetry import TelemetryConfig
from keygrouping.job import Headers
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, Tracer, format_span_id, format_trace_id

MOST_LINKS = 128
"""Contexts of one transaction that are linked to: what OpenTelemetry's SDK keeps of them."""

_EXPORT_TIMEOUT = 5.0
_NOT_TRACED = frozenset({"/healthz", "/readyz", "/metrics"})


def exporting(endpoint: str | None) -> SpanProcessor:
    """Sends spans to a collector by OTLP over HTTP; `endpoint` is its base URL, None leaves it to the environment."""
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=_EXPORT_TIMEOUT))


class Spans:
    """Makes the spans of one process, under a service's name."""

    def __init__(self, processor: SpanProcessor, service: str) -> None:
        resource = Resource.create({SERVICE_NAME: service, **OTELResourceDetector().detect().attributes})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("keygrouping")

    def of_requests(self) -> TelemetryConfig:
        """For an app: a span for every request but those for health and metrics."""
        return TelemetryConfig(
            tracer_provider=self._provider,
            operation_spans=False,
            metrics=False,
            logs=False,
            auto_configure=False,
            exclude=lambda scope: scope["path"] in _NOT_TRACED,
        )

    def transactions(self, tp: TopicPartition, group: str) -> TransactionSpans:
        """What makes the spans of one partition's transactions."""
        return TransactionSpans(self._tracer, tp, group)

    def current_ids(self) -> dict[str, str]:
        """The trace and span that this code runs in, in hexadecimal digits; empty if in none."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}

    def headers(self) -> list[tuple[str, bytes]]:
        """Headers for a new record that tell the trace that it is made in; none if in no trace."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return [(name, value.encode()) for name, value in carrier.items()]

    def close(self) -> None:
        """Exports what is left, within seconds."""
        self._provider.shutdown()


class TransactionSpans:
    """The spans of one partition's transactions; each links to what was read since the one before."""

    def __init__(self, tracer: Tracer, tp: TopicPartition, group: str) -> None:
        self._tracer = tracer
        self._attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": tp.topic,
            "messaging.destination.partition.id": str(tp.partition),
            "messaging.consumer.group.name": group,
        }
        self._name = f"process {tp.topic}"
        self._read = 0
        self._contexts: dict[tuple[int, int], SpanContext] = {}

    def saw(self, records: int, headers: Iterable[Headers]) -> None:
        """Remembers whose traces so many records belong to, by the headers of each."""
        self._read += records
        for own in headers:
            if len(self._contexts) >= MOST_LINKS:
                return
            if own and (context := _context_of(own)).is_valid:
                self._contexts[context.trace_id, context.span_id] = context

    @contextlib.contextmanager
    def transaction(self, offset: int, written: int) -> Iterator[None]:
        """The span of a transaction that commits `offset` and writes so many records."""
        links = [Link(context) for context in self._contexts.values()]
        attributes = self._attributes | {
            "messaging.batch.message_count": self._read,
            "keygrouping.committed_offset": offset,
            "keygrouping.written_records": written,
        }
        self._contexts, self._read = {}, 0
        with self._tracer.start_as_current_span(self._name, kind=SpanKind.CONSUMER, attributes=attributes, links=links):
            yield


def _context_of(headers: Headers) -> SpanContext:
    carrier = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    return trace.get_current_span(propagate.extract(carrier)).get_span_context()
