"""The worker stage: routed events in, partials out, and how far they are complete."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from aiokafka.errors import UnknownTopicOrPartitionError
from keygrouping_service import metrics
from keygrouping_service.batches import origin_headers, partition_of
from keygrouping_service.horizons import Follower, SharedHorizon
from keygrouping_service.owned import OwnedPartition, Record
from keygrouping_service.progress import Horizon, Upstream, partitions_of

from keygrouping_worker.accumulator import Accumulator, Unusable
from keygrouping_worker.settings import WorkerSettings

_SLICE = 500
_MOST_UNUSABLE = 1000


class Flusher:
    """What one incarnation on one routed partition holds between two flushes, and how it is written.

    A flush is one transaction: the partials, the offset behind the last event in them, and the event time up to
    which this partition's partials are complete. As a flush writes everything up to its offset, whatever a horizon
    promised up to there is in `partials` when it commits.
    """

    def __init__(self, settings: WorkerSettings, owned: OwnedPartition, partitions: int) -> None:
        self.accumulator = Accumulator(settings.job, owned.partition)
        self._settings = settings
        self._owned = owned
        self._partitions = partitions
        self._unusable: list[Unusable[Record]] = []
        self._follower = Follower(owned.partition, owned.progress)
        self._written = (owned.committed.offset, owned.progress)

    def take(self, records: Sequence[Record]) -> None:
        """Aggregates records in memory."""
        self._unusable += self.accumulator.add(records)

    @property
    def full(self) -> bool:
        """Whether memory asks for a flush, whatever the clock says."""
        return (
            len(self.accumulator) >= self._settings.flush_groups
            or self.accumulator.key_bytes >= self._settings.flush_key_bytes
            or len(self._unusable) >= _MOST_UNUSABLE
        )

    async def write(self, newest: Horizon | None) -> None:
        """Writes what is held and commits; does nothing if nothing has changed since the last flush."""
        owned = self._owned
        progress = self._follower.reached(owned.position, newest)
        if (owned.position, progress) == self._written:
            return
        outbox = owned.outbox()
        now_ms = int(time.time() * 1000)
        topic = self._settings.partials_topic
        for count, (key, partial) in enumerate(self.accumulator.partials(progress.epoch), 1):
            outbox.append(topic, partition_of(key, self._partitions), now_ms, key, partial.encode())
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        for unusable in self._unusable:
            record, why = unusable.event, unusable.rejection
            headers = origin_headers(record, why.reason, why.detail)
            outbox.append(self._settings.dead_letters_topic, 0, record.timestamp, record.key, record.value, headers)
        metrics.WORKER_PARTIALS.inc(len(self.accumulator))
        metrics.WORKER_DEAD.inc(len(self._unusable))
        metrics.WORKER_FLUSHES.inc()
        self._written = (owned.position, progress)
        self.accumulator.clear()
        self._unusable.clear()
        await owned.submit(outbox, *self._written)


class WorkerStage:
    """Works on the routed partitions of one process; `work` is what a `PartitionRunner` runs."""

    def __init__(self, settings: WorkerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._running: dict[int, Flusher] = {}
        self._horizon = SharedHorizon(self._read_horizon, settings.flush_interval, clock)

    async def _read_horizon(self, upstream: Upstream) -> Horizon:
        settings = self._settings
        return await upstream.of_worker(
            settings.group("router"), settings.events_topic, settings.routed_topic, settings.job.lateness_ms
        )

    async def work(self, owned: OwnedPartition) -> None:
        """One incarnation on one routed partition."""
        partitions = len(await partitions_of(owned.admin, self._settings.partials_topic))
        if not partitions:
            raise UnknownTopicOrPartitionError(f"create the topic {self._settings.partials_topic!r}")
        flusher = Flusher(self._settings, owned, partitions)
        due = self._clock()
        with self._observed(owned, flusher):
            while not owned.stopping:
                records = await owned.poll(self._settings.batch_records, max(0.0, due - self._clock()))
                if records:
                    flusher.take(records)
                    metrics.WORKER_EVENTS.inc(len(records))
                    due = min(due, self._clock() + self._settings.flush_interval)
                if flusher.full or self._clock() >= due:
                    await flusher.write(await self._horizon.latest(owned.upstream))
                    self._observe()
                    due = self._clock() + self._horizon.pause
            await flusher.write(self._horizon.newest)

    @contextlib.contextmanager
    def _observed(self, owned: OwnedPartition, flusher: Flusher) -> Iterator[None]:
        self._running[owned.partition] = flusher
        try:
            yield
        finally:
            del self._running[owned.partition]
            self._observe()

    def _observe(self) -> None:
        metrics.WORKER_GROUPS.set(sum(len(flusher.accumulator) for flusher in self._running.values()))
