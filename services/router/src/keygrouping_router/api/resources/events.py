"""`GET /events`: loads, hot keys, plans and changes as they happen, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from keygrouping_service.http.openapi import problems
from keygrouping_service.http.problems import Problem
from starlette.types import Receive, Scope, Send

from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import ServerEvent

RETRY_MS = 2000
"""Pause until a client that lost the connection comes back."""

HEARTBEAT_SECONDS = 15.0
"""Of silence, until a comment shows proxies that the connection lives."""

MAX_LISTENERS = 100

_EXAMPLE = 'id: 17\nevent: interval\ndata: {"grouping":"level-fill","workers":4,"lambda":1.0004}\n\n'
_STREAM = {"schema": {"type": "string"}, "example": _EXAMPLE}


class _Listeners:
    """Counts those who listen, and turns away what would be too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    async def seat(self) -> AsyncIterator[None]:
        """Takes a place until the answer has ended; raises Problem."""
        if self._count >= self._most:
            raise Problem(503, f"{self._most} listen already: close pages that nobody looks at, or ask /keyspace")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class EventStream(StreamingResponse):
    """Server-sent events until they end or the listener leaves: FastAPI's own answer would make that an error."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[ServerEvent]) -> None:
        # Without the second one Nginx would hold events back.
        super().__init__(_written(events), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends all of it."""
        content: Any = self.body_iterator
        async with aclosing(content):
            await super().__call__(scope, receive, send)


async def _written(events: AsyncIterator[ServerEvent]) -> AsyncGenerator[bytes]:
    yield format_sse_event(retry=RETRY_MS)
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            come, _ = await asyncio.wait({coming}, timeout=HEARTBEAT_SECONDS)
            if not come:
                yield KEEPALIVE_COMMENT
                continue
            event = coming.result()
            if event is None:
                return
            number = None if event.id is None else str(event.id)
            yield format_sse_event(data_str=event.json, event=event.kind, id=number)
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def events_routes(plane: Plane, most: int = MAX_LISTENERS) -> APIRouter:
    """The event stream."""
    routes = APIRouter(tags=["events"])
    listeners = _Listeners(most)

    @routes.get(
        "/events",
        status_code=200,
        response_class=EventStream,
        dependencies=[Depends(listeners.seat)],
        responses={200: {"content": {"text/event-stream": _STREAM}}, **problems(422, 503)},
    )
    async def get_events(
        last_event_id: Annotated[
            str | None,
            Header(description="id of the last interval seen: what is kept of all that followed it comes first"),
        ] = None,
    ) -> EventStream:
        """Server-sent events, each with JSON on one line; a comment as heartbeat each 15 seconds of silence.

        - `interval`: at the end of each interval, the head of `GET /keyspace` and `hot`, the keys of the largest share
        - `plan`: a plan comes into force, as in `GET /plan`
        - `control`: something was changed, as an entry of `GET /thresholds/history`
        """
        return EventStream(plane.events(_number(last_event_id)))

    return routes


def _number(text: str | None) -> int | None:
    """An id that is none of ours is as good as none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 18 else None
