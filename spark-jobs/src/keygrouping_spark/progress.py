"""Commits the event-time progress of Spark's queries, which know nothing of it, and tells them what is complete.

Both loops hold on to one horizon (see `keygrouping_service.progress`) until the query's finished batches cover it, and
then commit its time as the query's own progress. The aggregator's loop has a step more: before it commits, the query
must have closed the windows, for which it waits for a mark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from keygrouping.job import JobSpec
from keygrouping_service.progress import END, MIN_TIME, Committed, Horizon, Progress

from keygrouping_spark.reports import Reading

Commit = Callable[[Mapping[int, Committed]], Awaitable[None]]
ReadHorizon = Callable[[], Awaitable[Horizon]]


def vouch(last: Mapping[int, Committed], positions: Mapping[int, int], horizon: Horizon) -> dict[int, Committed]:
    """What to commit per partition: its position, and the horizon's time if the position covers it, else as before."""
    return {
        partition: Committed(
            positions.get(partition, 0),
            _later(_progress(last, partition), horizon)
            if horizon.covered(partition, positions.get(partition, 0))
            else _progress(last, partition),
        )
        for partition in horizon.ends
    }


def covers(positions: Mapping[int, int], horizon: Horizon) -> bool:
    """Whether every partition has been read up to the horizon."""
    return all(horizon.covered(partition, positions.get(partition, 0)) for partition in horizon.ends)


def mark_for(job: JobSpec, time: int) -> int:
    """The end (ms) of the last window that is complete at an event time, MIN_TIME if there is none; END stays END."""
    if time >= END:
        return time
    end = job.window_of(time)
    return end if end > 0 else MIN_TIME


def _progress(last: Mapping[int, Committed], partition: int) -> Progress:
    return last[partition].progress if partition in last else Progress()


def _later(progress: Progress, horizon: Horizon) -> Progress:
    return Progress(max(progress.time, horizon.time), max(progress.epoch, horizon.epoch))


@dataclass
class WorkerProgress:
    """Commits for the worker query; `last` is what its group has committed so far."""

    reading: Reading
    read_horizon: ReadHorizon
    commit: Commit
    last: dict[int, Committed]
    horizon: Horizon = field(default_factory=lambda: Horizon(MIN_TIME, 0, {}))

    async def step(self) -> None:
        """One round: commits what can be vouched for, and goes on to the next horizon once this one is covered."""
        await self._commit()
        if covers(self.reading.positions, self.horizon):
            self.horizon = await self.read_horizon()
            await self._commit()

    async def _commit(self) -> None:
        vouched = vouch(self.last, self.reading.positions, self.horizon)
        if vouched and vouched != self.last:
            await self.commit(vouched)
            self.last = vouched


@dataclass
class AggregatorProgress:
    """Marks and commits for the aggregator query; `last` is what its group has committed so far."""

    reading: Reading
    read_horizon: ReadHorizon
    commit: Commit
    publish: Callable[[int], Awaitable[None]]
    job: JobSpec
    last: dict[int, Committed]
    horizon: Horizon = field(default_factory=lambda: Horizon(MIN_TIME, 0, {}))
    published: int = 0

    async def step(self) -> None:
        """One round: as the worker's, but a time is committed only once its windows have been closed."""
        await self._commit()
        if self._is_closed():
            self.horizon = await self.read_horizon()
            await self._commit()

    async def _commit(self) -> None:
        if covers(self.reading.positions, self.horizon) and self._mark() > self.published:
            await self.publish(self._mark())
            self.published = self._mark()
        vouched = vouch(self.last, self.reading.positions, self.horizon if self._is_closed() else self._unproven())
        if vouched and vouched != self.last:
            await self.commit(vouched)
            self.last = vouched

    def _mark(self) -> int:
        return mark_for(self.job, self.horizon.time)

    def _is_closed(self) -> bool:
        return covers(self.reading.positions, self.horizon) and self.reading.watermark >= self._mark()

    def _unproven(self) -> Horizon:
        return Horizon(MIN_TIME, 0, self.horizon.ends)
