"""`GET /events`: loads, hot keys, plans and changes as they happen, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from keygrouping_service.openapi import problems
from keygrouping_service.problems import Problem

from keygrouping_router.plane import Plane

RETRY_MS = 2000
"""Pause until a client that lost the connection comes back."""

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


def events_routes(plane: Plane, most: int = MAX_LISTENERS) -> APIRouter:
    """The event stream."""
    routes = APIRouter(tags=["events"])
    listeners = _Listeners(most)

    @routes.get(
        "/events",
        response_class=EventSourceResponse,
        dependencies=[Depends(listeners.seat)],
        responses={200: {"content": {"text/event-stream": _STREAM}}, **problems(422, 503)},
    )
    async def get_events(
        last_event_id: Annotated[
            str | None,
            Header(description="id of the last interval seen: what is kept of all that followed it comes first"),
        ] = None,
    ) -> AsyncIterator[ServerSentEvent]:
        """Server-sent events, each with JSON on one line; a comment as heartbeat each 15 seconds of silence.

        - `interval`: at the end of each interval, the head of `GET /keyspace` and `hot`, the keys of the largest share
        - `plan`: a plan comes into force, as in `GET /plan`
        - `control`: something was changed, as an entry of `GET /thresholds/history`
        """
        yield ServerSentEvent(retry=RETRY_MS)
        async for event in plane.events(_number(last_event_id)):
            number = None if event.id is None else str(event.id)
            yield ServerSentEvent(raw_data=event.json, event=event.kind, id=number)

    return routes


def _number(text: str | None) -> int | None:
    """An id that is none of ours is as good as none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 18 else None
