"""Commits the event-time progress of Spark's queries, which know nothing of it, and tells them what is complete.

Both loops read the upstream watermark (see `keygrouping_service.kafka.progress`) at every step, and advance to the
newest one that the query's finished batches have reached. The aggregator's loop has one more step: before it
commits a time, the query must have closed the windows up to then, which it does when a watermark is published to it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from keygrouping.job import JobSpec
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Progress, UpstreamWatermark
from keygrouping_service.kafka.upstream_watermarks import PendingWatermarks

from keygrouping_spark.reports import Reading

Commit = Callable[[Mapping[int, Committed]], Awaitable[None]]
ReadUpstreamWatermark = Callable[[], Awaitable[UpstreamWatermark]]

_NOTHING = UpstreamWatermark(MIN_TIME, 0, {})
_REFRESH_SECONDS = 3600.0


def entries_to_commit(
    last: Mapping[int, Committed], positions: Mapping[int, int], proven: UpstreamWatermark
) -> dict[int, Committed]:
    """Per partition: its position, and the time of an upstream watermark that all partitions have reached."""
    return {
        partition: Committed(positions.get(partition, 0), _later(last.get(partition, Committed()).progress, proven))
        for partition in last.keys() | proven.ends.keys()
    }


def window_watermark(job: JobSpec, time: int) -> int:
    """The end (ms) of the last window that is complete at an event time, MIN_TIME if there is none; END stays END."""
    if time >= END:
        return time
    end = job.window_of(time)
    return end if end > 0 else MIN_TIME


def _later(progress: Progress, upstream: UpstreamWatermark) -> Progress:
    return Progress(max(progress.time, upstream.time), max(progress.epoch, upstream.epoch))


@dataclass(kw_only=True)
class _Committing:
    """Commits what has changed, and what has not at the start and then hourly.

    Brokers forget the offsets of a group without members some time after their last commit.
    """

    reading: Reading
    read_upstream_watermark: ReadUpstreamWatermark
    commit: Commit
    last: dict[int, Committed]
    clock: Callable[[], float] = time.monotonic
    _due: float = -math.inf

    async def _commit(self, proven: UpstreamWatermark) -> None:
        entries = entries_to_commit(self.last, self.reading.positions, proven)
        now = self.clock()
        if entries != self.last or now >= self._due:
            await self.commit(entries)
            self.last, self._due = entries, now + _REFRESH_SECONDS


@dataclass(kw_only=True)
class WorkerProgress(_Committing):
    """Commits for the worker query; `last` is what its group has committed so far."""

    ahead: PendingWatermarks = field(default_factory=PendingWatermarks)
    proven: UpstreamWatermark = _NOTHING

    async def step(self) -> None:
        """One round: reads the upstream watermark, and commits how far the query has advanced."""
        self.ahead.add(await self.read_upstream_watermark())
        self.proven = self.ahead.reached(self.reading.positions) or self.proven
        await self._commit(self.proven)


@dataclass(kw_only=True)
class AggregatorProgress(_Committing):
    """Publishes watermarks and commits for the aggregator query; `last` is what its group has committed so far.

    `closing` holds the upstream watermarks that have been reached, or will be by the batch under way, while the query
    closes the windows that are complete by then.
    """

    publish: Callable[[int], Awaitable[None]]
    job: JobSpec
    ahead: PendingWatermarks = field(default_factory=PendingWatermarks)
    closing: deque[UpstreamWatermark] = field(default_factory=deque)
    proven: UpstreamWatermark = _NOTHING
    published: int = MIN_TIME
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def step(self) -> None:
        """One round: as the worker's, but a time is committed only once its windows have been closed."""
        await self.close(self.reading.positions)
        while self.closing and self._is_closed(self.closing[0]):
            self.proven = self.closing.popleft()
        await self._commit(self.proven)

    async def close(self, positions: Mapping[int, int]) -> None:
        """Has the query close the windows that are complete once everything before `positions` is merged.

        `positions` is where the last batch ended, or where the one under way is certain to end: what is published
        then is the watermark of a later batch.
        """
        async with self._reading:  # A batch that ends meanwhile must not add its newer one first.
            self.ahead.add(await self.read_upstream_watermark())
        if upstream := self.ahead.reached(positions):
            self.closing.append(upstream)
        if self.closing and (watermark := window_watermark(self.job, self.closing[-1].time)) > self.published:
            await self.publish(watermark)
            self.published = max(watermark, self.published)

    def _is_closed(self, upstream: UpstreamWatermark) -> bool:
        return upstream.reached(self.reading.positions) and self.reading.watermark >= window_watermark(
            self.job, upstream.time
        )
