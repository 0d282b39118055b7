"""Commits the event-time progress of Spark's queries, which know nothing of it, and tells them what is complete.

Both loops read a horizon (see `keygrouping_service.kafka.progress`) at every step, and vouch for the newest one that
the query's finished batches have reached. The aggregator's loop has a step more: before it commits a time, the query
must have closed the windows until then, for which it waits for a mark.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from keygrouping.job import JobSpec
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Horizon, Progress
from keygrouping_service.kafka.upstream_watermarks import Horizons

from keygrouping_spark.reports import Reading

Commit = Callable[[Mapping[int, Committed]], Awaitable[None]]
ReadHorizon = Callable[[], Awaitable[Horizon]]

_NOTHING = Horizon(MIN_TIME, 0, {})
_REFRESH_SECONDS = 3600.0


def vouch(last: Mapping[int, Committed], positions: Mapping[int, int], proven: Horizon) -> dict[int, Committed]:
    """What to commit per partition: its position, and the time of a horizon that all partitions have reached."""
    return {
        partition: Committed(positions.get(partition, 0), _later(last.get(partition, Committed()).progress, proven))
        for partition in last.keys() | proven.ends.keys()
    }


def mark_for(job: JobSpec, time: int) -> int:
    """The end (ms) of the last window that is complete at an event time, MIN_TIME if there is none; END stays END."""
    if time >= END:
        return time
    end = job.window_of(time)
    return end if end > 0 else MIN_TIME


def _later(progress: Progress, horizon: Horizon) -> Progress:
    return Progress(max(progress.time, horizon.time), max(progress.epoch, horizon.epoch))


@dataclass(kw_only=True)
class _Committing:
    """Commits what has changed, and what has not at the start and then hourly.

    Brokers forget the offsets of a group without members some time after their last commit.
    """

    reading: Reading
    read_horizon: ReadHorizon
    commit: Commit
    last: dict[int, Committed]
    clock: Callable[[], float] = time.monotonic
    _due: float = -math.inf

    async def _commit(self, proven: Horizon) -> None:
        vouched = vouch(self.last, self.reading.positions, proven)
        now = self.clock()
        if vouched != self.last or now >= self._due:
            await self.commit(vouched)
            self.last, self._due = vouched, now + _REFRESH_SECONDS


@dataclass(kw_only=True)
class WorkerProgress(_Committing):
    """Commits for the worker query; `last` is what its group has committed so far."""

    ahead: Horizons = field(default_factory=Horizons)
    proven: Horizon = _NOTHING

    async def step(self) -> None:
        """One round: reads a horizon, and commits what can be vouched for."""
        self.ahead.add(await self.read_horizon())
        self.proven = self.ahead.reached(self.reading.positions) or self.proven
        await self._commit(self.proven)


@dataclass(kw_only=True)
class AggregatorProgress(_Committing):
    """Marks and commits for the aggregator query; `last` is what its group has committed so far.

    `closing` holds the horizons that have been reached, or will be by the batch under way, while the query closes the
    windows that are complete by then.
    """

    publish: Callable[[int], Awaitable[None]]
    job: JobSpec
    ahead: Horizons = field(default_factory=Horizons)
    closing: deque[Horizon] = field(default_factory=deque)
    proven: Horizon = _NOTHING
    published: int = MIN_TIME

    async def step(self) -> None:
        """One round: as the worker's, but a time is committed only once its windows have been closed."""
        self.ahead.add(await self.read_horizon())
        await self.close(self.reading.positions)
        while self.closing and self._is_closed(self.closing[0]):
            self.proven = self.closing.popleft()
        await self._commit(self.proven)

    async def close(self, positions: Mapping[int, int]) -> None:
        """Has the query close the windows that are complete once everything before `positions` is merged.

        `positions` is where the last batch ended, or where the one under way is certain to end: the mark then is read
        by a later batch, and sets the watermark for the one after that.
        """
        if horizon := self.ahead.reached(positions):
            self.closing.append(horizon)
        if self.closing and (mark := mark_for(self.job, self.closing[-1].time)) > self.published:
            await self.publish(mark)
            self.published = max(mark, self.published)

    def _is_closed(self, horizon: Horizon) -> bool:
        return horizon.reached(self.reading.positions) and self.reading.watermark >= mark_for(self.job, horizon.time)
