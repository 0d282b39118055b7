"""Spans of OpenTelemetry around calls of handlers, and their context in what they return.

There are some if the process has set a tracer provider before the app starts, as `opentelemetry-instrument` does;
otherwise handlers run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keygrouping_app.events import Event, Headers, Output

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from keygrouping_app.handlers import Function, Handler

_MOST_LINKS = 128
"""What OpenTelemetry's SDK keeps of a span's links."""


def traced(handler: Handler, function: Function, group: str) -> Function:
    """The function, in a span of each call; the function itself where nothing takes spans.

    The span of one event continues the trace of the event's headers; that of a batch links to those of its events.
    """
    try:
        from opentelemetry import trace
    except ImportError:
        return function
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return function
    span_of = _spans(handler, provider.get_tracer("keygrouping"), group)
    if handler.is_async:

        async def run(given: Any, *state: Any) -> Any:
            with span_of(given):
                return _with_context(await function(given, *state))

        return run

    def work(given: Any, *state: Any) -> Any:
        with span_of(given):
            return _with_context(function(given, *state))

    return work


def _spans(handler: Handler, tracer: Any, group: str) -> Callable[[Any], AbstractContextManager[Span]]:
    from opentelemetry.trace import SpanKind

    topic = handler.topic.name
    fixed: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": group,
    }

    def span_of(given: Event | Sequence[Event]) -> AbstractContextManager[Span]:
        events = [given] if isinstance(given, Event) else given
        first = events[0]
        told = fixed | {"messaging.destination.partition.id": str(first.partition)}
        if isinstance(given, Event):
            told |= {"messaging.kafka.offset": first.offset}
            how: dict[str, Any] = {"context": _context(first.headers)}
        else:
            told |= {"messaging.batch.message_count": len(events)}
            how = {"links": _links(events)}
        span: AbstractContextManager[Span] = tracer.start_as_current_span(
            f"process {topic}", kind=SpanKind.CONSUMER, attributes=told, **how
        )
        return span

    return span_of


def _context(headers: Headers) -> Any:
    from opentelemetry import propagate

    return propagate.extract({name: value.decode(errors="replace") for name, value in headers if value is not None})


def _links(events: Sequence[Event]) -> list[Any]:
    from opentelemetry.trace import Link, get_current_span

    found: dict[tuple[int, int], Link] = {}
    for event in events:
        context = get_current_span(_context(event.headers)).get_span_context()
        if context.is_valid and len(found) < _MOST_LINKS:
            found[context.trace_id, context.span_id] = Link(context)
    return list(found.values())


def _with_context(result: Any) -> Any:
    """What a handler returned, its outputs with headers of the span that they were made in, unless they have some."""
    if isinstance(result, Output):
        return _carrying(result)
    if isinstance(result, list | tuple):
        return [_carrying(each) if isinstance(each, Output) else each for each in result]
    return result


def _carrying(output: Output) -> Output:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    own = {name for name, _ in output.headers}
    if own & carrier.keys():
        return output
    return replace(output, headers=(*output.headers, *((name, value.encode()) for name, value in carrier.items())))
