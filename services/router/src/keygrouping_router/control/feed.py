"""What happens, as a stream for everybody who listens; nobody who listens slowly holds anything up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

from keygrouping_router import metrics

_BEHIND = 100
"""Events that a listener may be behind, and that are kept for those who come back."""


@dataclass(frozen=True, eq=False)
class FeedEvent:
    """The end of an interval, a new plan or a change of what can be set; one object for all who listen."""

    kind: Literal["interval", "plan", "control"]
    data: Any
    """An `Interval`, a `PlanRecord` or a `Change`."""
    id: int | None = None
    """Number of an `interval`: who comes back gets what followed the last one that was seen."""


class Feed:
    """Passes events on to any number of listeners, and keeps the last ones for those who come back."""

    def __init__(self) -> None:
        self._kept: deque[FeedEvent] = deque(maxlen=_BEHIND)
        self._listeners: set[asyncio.Queue[FeedEvent | None]] = set()

    def publish(self, event: FeedEvent) -> None:
        """Passes an event on; a listener that is too far behind is cut off, and may come back."""
        self._kept.append(event)
        for queue in list(self._listeners):
            if queue.qsize() < _BEHIND:
                queue.put_nowait(event)
            else:
                self._listeners.discard(queue)
                queue.put_nowait(None)
                metrics.DROPPED_LISTENERS.inc()

    def close(self) -> None:
        """Ends all streams."""
        for queue in self._listeners:
            queue.put_nowait(None)
        self._listeners.clear()

    async def listen(self, last_id: int | None) -> AsyncGenerator[FeedEvent]:
        """Events as they come, before them those that are kept from after the interval `last_id` on.

        Without `last_id`: the newest interval, so that there is something to show.
        """
        queue: asyncio.Queue[FeedEvent | None] = asyncio.Queue()
        for event in self._missed(last_id):
            queue.put_nowait(event)
        self._listeners.add(queue)
        try:
            while (found := await queue.get()) is not None:
                yield found
        finally:
            self._listeners.discard(queue)

    def _missed(self, last_id: int | None) -> list[FeedEvent]:
        if last_id is None:
            return [event for event in reversed(self._kept) if event.kind == "interval"][:1]
        kept = list(self._kept)
        known = [index for index, event in enumerate(kept) if event.id is not None and event.id <= last_id]
        return kept[max(known, default=-1) + 1 :]
