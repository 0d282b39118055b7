"""The worker stage: routed events in, partials out, and how far they are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from keygrouping.accumulator import Accumulator
from keygrouping.job import Rejection
from keygrouping_service.kafka.flushing import FlushingStage
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Upstream, UpstreamWatermark
from keygrouping_service.kafka.upstream_watermarks import PartitionWatermark
from keygrouping_service.records.batches import add_by_key, origin_headers
from keygrouping_service.records.protocols import RecordBatch, Sink
from keygrouping_service.records.record import Record

from keygrouping_worker import metrics
from keygrouping_worker.settings import WorkerSettings

_MOST_UNUSABLE = 1000


@dataclass(frozen=True, slots=True)
class Flushed:
    """What one flush has done. It counts once it is committed: what another worker does again is not done twice."""

    events: int
    partials: int
    dead_letters: Counter[str]

    def count(self) -> None:
        """Adds it to the metrics."""
        metrics.EVENTS.inc(self.events)
        metrics.PARTIALS.inc(self.partials)
        metrics.FLUSHES.inc()
        for reason, events in self.dead_letters.items():
            metrics.DEAD.labels(reason).inc(events)


async def add_partials(outbox: Sink, accumulator: Accumulator, epoch: int, topic: str, partitions: int) -> None:
    """Adds the partials of all groups to the outbox, letting heartbeats through in between."""
    records = ((key, key, partial.encode()) for key, partial in accumulator.partials(epoch))
    await add_by_key(outbox, topic, partitions, records)


class Flusher:
    """What one session on one routed partition holds between two flushes, and how it is written.

    A flush is one transaction: the partials, the offset behind the last event in them, and the event time up to
    which this partition's partials are complete: its watermark. A flush writes everything up to its offset, so all that
    the upstream watermark covers up to there is in `partials` when it commits.
    """

    def __init__(self, settings: WorkerSettings, owned: OwnedPartition, partitions: int) -> None:
        self.accumulator = Accumulator(settings.job, owned.partition, owned.topic_id)
        self._settings = settings
        self._owned = owned
        self._partitions = partitions
        self._unusable: list[tuple[Record, Rejection]] = []
        self._events = 0
        self._watermark = PartitionWatermark(owned.partition, owned.progress)
        self._written = (owned.committed.offset, owned.progress)

    async def take(self, records: RecordBatch) -> None:
        """Aggregates records in memory."""
        self._unusable += [(records.record(row), why) for row, why in self.accumulator.add(records)]
        self._events += len(records)

    @property
    def full(self) -> bool:
        """Whether memory asks for a flush, whatever the clock says."""
        return (
            len(self.accumulator) >= self._settings.flush_groups
            or self.accumulator.key_bytes >= self._settings.flush_key_bytes
            or len(self._unusable) >= _MOST_UNUSABLE
        )

    async def write(self, newest: UpstreamWatermark | None) -> None:
        """Writes what is held and commits; does nothing if nothing has changed since the last flush."""
        owned = self._owned
        progress = self._watermark.advance(owned.position, newest)
        if (owned.position, progress) == self._written:
            return
        outbox = owned.outbox()
        await add_partials(outbox, self.accumulator, progress.epoch, self._settings.partials_topic, self._partitions)
        for record, why in self._unusable:
            headers = origin_headers(record, why.reason, why.detail)
            outbox.append(self._settings.dead_letters_topic, 0, record.timestamp, record.key, record.value, headers)
        done = Flushed(self._events, len(self.accumulator), Counter(why.reason for _, why in self._unusable))
        self._written = (owned.position, progress)
        self._events = 0
        self.accumulator.clear()
        self._unusable.clear()
        await owned.submit(outbox, *self._written, done.count)


class WorkerStage(FlushingStage[Flusher]):
    """Works on the routed partitions of one process."""

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings.partials_topic, settings.flush_interval, settings.batch_records)
        self._settings = settings

    async def _read_upstream_watermark(self, upstream: Upstream) -> UpstreamWatermark:
        settings = self._settings
        return await upstream.of_worker(
            settings.group("router"), settings.events_topic, settings.routed_topic, settings.job.lateness_ms
        )

    def _begin(self, owned: OwnedPartition, output_partitions: int) -> Flusher:
        return Flusher(self._settings, owned, output_partitions)

    def _observe(self, running: Collection[Flusher]) -> None:
        metrics.GROUPS.set(sum(len(flusher.accumulator) for flusher in running))
