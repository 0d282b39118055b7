"""How the watermarks of a stage's partitions advance behind the watermark of the stage before it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_service.kafka.progress import MIN_TIME, Progress, Upstream, UpstreamWatermark

log = logging.getLogger(__name__)

_CALMEST = 4
_MOST_AHEAD = 240


class SharedUpstreamWatermark:
    """The newest upstream watermark, read once for all partitions of a process.

    It is at most `pause` seconds old when it is handed out: `interval`, and up to four times that while nothing
    changes, to let an idle service rest. `read` asks one of the callers' `Upstream`.
    """

    def __init__(
        self,
        read: Callable[[Upstream], Awaitable[UpstreamWatermark]],
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._interval = interval
        self._clock = clock
        self._lock = asyncio.Lock()
        self.pause = interval
        self._read_at: float | None = None
        self.newest: UpstreamWatermark | None = None

    async def latest(self, upstream: Upstream) -> UpstreamWatermark | None:
        """The newest; while it can't be read, the one before (a watermark never goes back), or None."""
        async with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= self.pause:
                await self._refresh(upstream)
                self._read_at = now
        return self.newest

    async def _refresh(self, upstream: Upstream) -> None:
        try:
            with given_up_calls():
                found = await self._read(upstream)
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("cannot read the progress of the previous stage now: %s", error or type(error).__name__)
            return
        self.pause = min(_CALMEST * self._interval, 1.5 * self.pause) if found == self.newest else self._interval
        self.newest = found


class PartitionWatermark:
    """The watermark of one partition's output, which advances with the upstream watermarks that its reader has reached.

    The reader aims at one upstream watermark at a time: the ends of the newest one move on before a reader that lags
    reaches them, and its own watermark would never advance.
    """

    def __init__(self, partition: int, start: Progress) -> None:
        self._partition = partition
        self._ahead: UpstreamWatermark | None = None
        self.progress = Progress(start.time, start.epoch)

    def advance(self, position: int, newest: UpstreamWatermark | None) -> Progress:
        """The progress once everything before `position` is in the stage's output.

        `position` is the offset of the next record to read, `newest` the newest upstream watermark known.
        """
        for upstream in (self._ahead, newest):
            if upstream is not None and upstream.covered(self._partition, position):
                self._ahead = None
                self.progress = Progress(max(self.progress.time, upstream.time), self.progress.epoch)
        if newest is not None:
            self._ahead = self._ahead or newest
            self.progress = Progress(self.progress.time, max(self.progress.epoch, newest.epoch))
        return self.progress


class PendingWatermarks:
    """Upstream watermarks that a reader of all partitions has seen and not reached yet, oldest first.

    All are kept, up to a limit beyond which newer ones wait: a reader that takes large steps advances after each step
    to the newest one within it.
    """

    def __init__(self) -> None:
        self._ahead: deque[UpstreamWatermark] = deque()
        self.newest = UpstreamWatermark(MIN_TIME, 0, {})

    def add(self, upstream: UpstreamWatermark) -> None:
        """Keeps the current upstream watermark if it is ahead of the newest one kept."""
        if (upstream.time, upstream.epoch) != (self.newest.time, self.newest.epoch) and len(self._ahead) < _MOST_AHEAD:
            self._ahead.append(upstream)
            self.newest = upstream

    def reached(self, positions: Mapping[int, int]) -> UpstreamWatermark | None:
        """Removes those within `positions` (next offset per partition); returns the newest of them, if any."""
        found = None
        while self._ahead and self._ahead[0].reached(positions):
            found = self._ahead.popleft()
        return found
