"""The aggregator stage: partials in, each window's final results out once it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from aiokafka.errors import UnknownTopicOrPartitionError
from keygrouping.partial import RecordError
from keygrouping_service import metrics
from keygrouping_service.batches import Outbox, origin_headers, partition_of
from keygrouping_service.horizons import Follower, SharedHorizon
from keygrouping_service.owned import OwnedPartition, Record
from keygrouping_service.progress import Horizon, Progress, Upstream, partitions_of

from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.windows import OpenWindows

_SLICE = 500
_MOST_UNUSABLE = 1000


class Closer:
    """What one incarnation on one partition of `partials` holds, and how final windows are written.

    A commit is one transaction: the results of the windows that are final, the event time up to which windows are
    final, and the offset of the first partial of those still open. A restart reads the open ones again from there,
    and passes over the partials of final ones by the committed time.
    """

    def __init__(self, settings: AggregatorSettings, owned: OwnedPartition, partitions: int) -> None:
        self.windows = OpenWindows(settings.job, owned.progress.time)
        self._settings = settings
        self._owned = owned
        self._partitions = partitions
        self._unusable: list[tuple[Record, str]] = []
        self._follower = Follower(owned.partition, owned.progress)
        self._written = (owned.committed.offset, owned.progress)

    async def take(self, records: list[Record]) -> None:
        """Merges partials, letting heartbeats through in between."""
        for start in range(0, len(records), _SLICE):
            for record in records[start : start + _SLICE]:
                self._merge(record)
            await asyncio.sleep(0)

    def _merge(self, record: Record) -> None:
        try:
            merged = self.windows.add(record.offset, record.key, record.value)
        except RecordError as error:
            self._unusable.append((record, str(error)))
        else:
            metrics.AGGREGATOR_PARTIALS.labels("merged" if merged else "passed over").inc()

    @property
    def full(self) -> bool:
        """Whether memory asks for a commit, whatever the clock says."""
        return len(self._unusable) >= _MOST_UNUSABLE

    async def write(self, newest: Horizon | None) -> None:
        """Writes all windows that are final, some per transaction; does nothing if nothing has changed."""
        reached = self._follower.reached(self._owned.position, newest)
        while True:
            time_ms = self.windows.next_stop(reached.time, self._settings.flush_results)
            await self._write_until(Progress(time_ms, reached.epoch))
            if time_ms == reached.time:
                return

    async def _write_until(self, progress: Progress) -> None:
        outbox = self._owned.outbox()
        await self._close(progress.time, outbox)
        position = (self.windows.restart_offset(self._owned.position), progress)
        if position == self._written and not self._unusable:
            return
        self._bury(outbox)
        self._written = position
        await self._owned.submit(outbox, *position)

    async def _close(self, time_ms: int, outbox: Outbox) -> None:
        now_ms = int(time.time() * 1000)
        count = 0
        for count, result in enumerate(self.windows.close(time_ms), 1):
            partition = partition_of(result.key, self._partitions)
            outbox.append(self._settings.results_topic, partition, now_ms, result.record_key, result.encode())
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        metrics.AGGREGATOR_RESULTS.inc(count)

    def _bury(self, outbox: Outbox) -> None:
        for record, detail in self._unusable:
            headers = origin_headers(record, "invalid-partial", detail)
            outbox.append(self._settings.dead_letters_topic, 0, record.timestamp, record.key, record.value, headers)
        metrics.AGGREGATOR_DEAD.inc(len(self._unusable))
        self._unusable.clear()


class AggregatorStage:
    """Works on the partitions of `partials` of one process; `work` is what a `PartitionRunner` runs."""

    def __init__(self, settings: AggregatorSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._running: dict[int, OpenWindows] = {}
        self._horizon = SharedHorizon(self._read_horizon, settings.flush_interval, clock)

    async def _read_horizon(self, upstream: Upstream) -> Horizon:
        settings = self._settings
        return await upstream.of_aggregator(settings.group("worker"), settings.routed_topic, settings.partials_topic)

    async def work(self, owned: OwnedPartition) -> None:
        """One incarnation on one partition of `partials`."""
        partitions = len(await partitions_of(owned.admin, self._settings.results_topic))
        if not partitions:
            raise UnknownTopicOrPartitionError(f"create the topic {self._settings.results_topic!r}")
        closer = Closer(self._settings, owned, partitions)
        due = self._clock()
        with self._observed(owned, closer.windows):
            while not owned.stopping:
                records = await owned.poll(self._settings.batch_records, max(0.0, due - self._clock()))
                if records:
                    await closer.take(records)
                    due = min(due, self._clock() + self._settings.flush_interval)
                if closer.full or self._clock() >= due:
                    await closer.write(await self._horizon.latest(owned.upstream))
                    self._observe()
                    due = self._clock() + self._horizon.pause
            await closer.write(self._horizon.newest)

    @contextlib.contextmanager
    def _observed(self, owned: OwnedPartition, windows: OpenWindows) -> Iterator[None]:
        self._running[owned.partition] = windows
        try:
            yield
        finally:
            del self._running[owned.partition]
            self._observe()

    def _observe(self) -> None:
        metrics.AGGREGATOR_WINDOWS.set(sum(len(windows) for windows in self._running.values()))
        metrics.AGGREGATOR_GROUPS.set(sum(windows.groups for windows in self._running.values()))
