"""The aggregator stage: partials in, each window's final results out once it is complete."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from keygrouping.job import AGGREGATE_FAILED
from keygrouping_service.kafka.flushing import FlushingStage
from keygrouping_service.kafka.leftovers import Leftovers
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress, Upstream, UpstreamWatermark
from keygrouping_service.kafka.upstream_watermarks import PartitionWatermark
from keygrouping_service.observability.final_results import FinalResults
from keygrouping_service.observability.metrics import INVALID_PARTIAL
from keygrouping_service.records.batches import NewRecord, add_by_key, origin_headers
from keygrouping_service.records.protocols import RecordBatch, Sink
from keygrouping_service.records.record import Record

from keygrouping_aggregator import metrics
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.windows import OpenWindows

SLICE = 500
"""Partials that are taken at one stretch: one millisecond, some ten where states are large, and half a second when a
table of millions grows."""
_MOST_UNUSABLE = 1000


class Closer:
    """What one session on one partition of `partials` holds, and how final windows are written.

    A commit is one transaction: the results of the windows that are final, the event time up to which windows are
    final, and the offset of the first partial of those still open. A restart reads the open ones again from there,
    and passes over the partials of final ones by the committed time.
    """

    def __init__(
        self, settings: AggregatorSettings, owned: OwnedPartition, partitions: int, finals: FinalResults
    ) -> None:
        self.windows = OpenWindows(settings.job, owned.progress.time)
        self._settings = settings
        self._owned = owned
        self._finals = finals
        self._partitions = partitions
        self._unusable: list[tuple[Record, str]] = []
        self._watermark = PartitionWatermark(owned.partition, owned.progress)
        self._written = (owned.committed.offset, owned.progress)

    async def take(self, records: RecordBatch) -> None:
        """Merges partials, letting heartbeats through in between."""
        for start in range(0, len(records), SLICE):
            some = records.cut(start, start + SLICE)
            added = self.windows.add_all(some)
            self._unusable += [(some.record(row), why) for row, why in added.refused]
            metrics.DEAD.labels(INVALID_PARTIAL).inc(len(added.refused))
            metrics.PARTIALS.labels("merged").inc(added.merged)
            metrics.PARTIALS.labels("passed over").inc(added.passed_over)
            await asyncio.sleep(0)

    @property
    def full(self) -> bool:
        """Whether memory asks for a commit, whatever the clock says."""
        return len(self._unusable) >= _MOST_UNUSABLE

    async def write(self, newest: UpstreamWatermark | None) -> None:
        """Writes all windows that are final, some per transaction; does nothing if nothing has changed."""
        reached = self._watermark.advance(self._owned.position, newest)
        while True:
            time_ms = self.windows.next_stop(reached.time, self._settings.flush_results)
            await self._write_until(Progress(time_ms, reached.epoch))
            if time_ms == reached.time:
                return

    async def _write_until(self, progress: Progress) -> None:
        outbox = self._owned.outbox()
        closed = await self._close(progress.time, outbox)
        failures = self._tell_failures(outbox)
        position = (self.windows.restart_offset(self._owned.position), progress)
        dead_lettered = self._dead_letter(outbox, position[0])
        if position == self._written and not dead_lettered:
            return
        self._written = position
        await self._owned.submit(outbox, *position, partial(self._committed, closed, failures))

    async def _close(self, time_ms: int, outbox: Sink) -> Counter[int]:
        """Puts the results of final windows into the outbox; gives how many there are by the windows' ends."""
        closed: Counter[int] = Counter()

        def records() -> Iterator[NewRecord]:
            for result in self.windows.close(time_ms):
                closed[result.end] += 1
                yield result.key, result.record_key, result.encode()

        await add_by_key(outbox, self._settings.results_topic, self._partitions, records())
        return closed

    def _tell_failures(self, outbox: Sink) -> int:
        """Puts the results of which an aggregate failed into the outbox as dead letters; gives their number."""
        failures = self.windows.take_failures()
        now_ms = int(time.time() * 1000)
        for result, offset, detail in failures:
            place = (self._settings.partials_topic, self._owned.partition, offset)
            record = Record(*place, now_ms, result.record_key, result.encode())
            headers = origin_headers(record, AGGREGATE_FAILED, detail)
            outbox.append(self._settings.dead_letters_topic, 0, now_ms, record.key, record.value, headers)
        return len(failures)

    def _committed(self, closed: Mapping[int, int], failures: int) -> None:
        metrics.DEAD.labels(AGGREGATE_FAILED).inc(failures)
        if closed:
            metrics.RESULTS.inc(sum(closed.values()))
            self._finals.written(closed)

    def _dead_letter(self, outbox: Sink, offset: int) -> int:
        """Puts the refused records before an offset into the outbox, all of them if they are too many to be kept.

        Those behind the offset are read again after a restart: they would stand in `dead-letters` twice.
        """
        due = self._unusable if self.full else [each for each in self._unusable if each[0].offset < offset]
        for record, detail in due:
            headers = origin_headers(record, INVALID_PARTIAL, detail)
            outbox.append(self._settings.dead_letters_topic, 0, record.timestamp, record.key, record.value, headers)
        self._unusable = [] if self.full else [each for each in self._unusable if each[0].offset >= offset]
        return len(due)


class AggregatorStage(FlushingStage[Closer]):
    """Works on the partitions of `partials` of one process."""

    def __init__(self, settings: AggregatorSettings) -> None:
        super().__init__(settings.results_topic, settings.flush_interval, settings.batch_records)
        self._settings = settings
        self._finals = FinalResults(settings.group("aggregator"), settings.job.lateness_ms)
        self._leftovers = Leftovers(settings)

    async def _read_upstream_watermark(self, upstream: Upstream) -> UpstreamWatermark:
        settings = self._settings
        if settings.stages == "combine":
            return await upstream.of_combined(settings, settings.job.lateness_ms, self._leftovers.count)
        return await upstream.of_aggregator(settings.group("worker"), settings.routed_topic, settings.partials_topic)

    def _begin(self, owned: OwnedPartition, output_partitions: int) -> Closer:
        return Closer(self._settings, owned, output_partitions, self._finals)

    def _observe(self, running: Collection[Closer]) -> None:
        metrics.WINDOWS.set(sum(len(closer.windows) for closer in running))
        metrics.GROUPS.set(sum(closer.windows.groups for closer in running))
