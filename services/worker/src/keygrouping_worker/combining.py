"""Combining at the source: events of the input in, partials out, without a router in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from keygrouping.accumulator import Accumulator
from keygrouping_service.events.input_partition import QUIET_SECONDS, InputPartition
from keygrouping_service.events.receipts import Entry
from keygrouping_service.events.sorting import Counters, Sorter
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.records.protocols import RecordBatch, Sink

from keygrouping_worker import metrics
from keygrouping_worker.settings import WorkerSettings
from keygrouping_worker.work import Flushed, add_partials

_MOST_LEFT_OUT = 16 << 20
"""Bytes of batches with late or unusable records after which these are written."""


class Combiner:
    """What one session on one partition of the input holds between two flushes, and how it is written.

    A flush is one transaction: the partials, late and unusable events, the receipt for all of them, the offset behind
    the last one, and the partition's progress in event time. So partials are named by places in the input, and what a
    router would commit is committed here.
    """

    def __init__(self, settings: WorkerSettings, here: InputPartition, sorter: Sorter, partitions: int) -> None:
        owned = here.owned
        self.accumulator = Accumulator(settings.job, owned.partition, owned.topic_id)
        self._settings = settings
        self._here = here
        self._sorter = sorter
        self._partitions = partitions
        self._open: tuple[Entry, Sink] | None = None
        self._events = 0
        self._after = 0
        """The offset behind the last record that was taken, and markers behind it."""
        self._left_out = 0

    @property
    def holds_nothing(self) -> bool:
        """Whether all that was taken is written."""
        return self._open is None

    @property
    def full(self) -> bool:
        """Whether memory asks for a flush, whatever the clock says."""
        settings, accumulator = self._settings, self.accumulator
        return (
            len(accumulator) >= settings.flush_groups
            or accumulator.key_bytes >= settings.flush_key_bytes
            or self._left_out >= _MOST_LEFT_OUT
        )

    async def take(self, records: RecordBatch) -> None:
        """Aggregates records in memory; what lies before those that retention has deleted unread is written first."""
        owned = self._here.owned
        if owned.skipped_to > self._after:
            await self.write()
        if self._open is None:
            self._open = self._here.ledger.entry(owned.skipped_to), owned.outbox()
        entry, outbox = self._open
        before = outbox.records
        found = await self._sorter.sort(records, self._here.clock, entry, outbox)
        if outbox.records > before:
            self._left_out += int(records.sizes().sum())
        if len(found.times):
            self.accumulator.add_extracted(found)
            entry.combine(found.events.offsets, found.times)
        self._events += len(found.times)
        self._after = owned.position

    def pass_over(self) -> None:
        """A poll has brought no record to aggregate: what it has left out belongs to what is held.

        Unless retention has deleted something unread before it: that begins another transaction.
        """
        if self._here.owned.skipped_to <= self._after:
            self._after = self._here.owned.position

    async def write(self) -> None:
        """Writes what is held and commits."""
        if self._open is None:
            return
        (entry, outbox), self._open = self._open, None
        owned, progress = self._here.owned, self._here.progress
        after = self._after if owned.skipped_to > self._after else owned.position
        await add_partials(outbox, self.accumulator, progress.epoch, self._settings.partials_topic, self._partitions)
        entry.leave_out(owned.left_out(after))
        self._here.ledger.close(entry, after)
        outbox.end_with(self._settings.receipts_topic, entry.records)
        done = Flushed(self._events, len(self.accumulator), Counter())
        self._events = self._left_out = 0
        self.accumulator.clear()
        await owned.submit(outbox, after, progress, done.count)


class CombiningStage:
    """Works on the partitions of the input that one process owns; `work` is what a `PartitionRunner` runs.

    `partitions` are those of the topics that it writes to, `largest` the bytes of the largest record that they take.
    """

    def __init__(self, settings: WorkerSettings, partitions: Mapping[str, int], largest: Mapping[str, int]) -> None:
        self._settings = settings
        self._partitions = partitions[settings.partials_topic]
        counters = Counters(metrics.LATE, metrics.DEAD, metrics.SKIPPED_FIELDS)
        self._sorter = Sorter(settings, partitions, counters, largest)
        self._running: dict[int, Combiner] = {}

    async def work(self, owned: OwnedPartition) -> None:
        """One session on one partition."""
        settings = self._settings
        here = await InputPartition.open(settings, owned, lambda: owned.progress.epoch)
        held = self._running[owned.partition] = Combiner(settings, here, self._sorter, self._partitions)
        due = float("inf")
        try:
            while not owned.stopping:
                left = max(0.0, due - time.monotonic())
                records = await owned.poll(settings.batch_records, min(QUIET_SECONDS, left))
                if records:
                    await here.wake()
                    await held.take(records)
                    due = min(due, time.monotonic() + settings.flush_interval)
                elif held.holds_nothing:
                    await here.rest()
                else:
                    held.pass_over()
                if held.full or owned.careful or time.monotonic() >= due:
                    await held.write()
                    due = float("inf")
                self._observe()
            await held.write()
            await owned.flush()
        finally:
            del self._running[owned.partition]
            self._observe()

    def _observe(self) -> None:
        metrics.GROUPS.set(sum(len(held.accumulator) for held in self._running.values()))
