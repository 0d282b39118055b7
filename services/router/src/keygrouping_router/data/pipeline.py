"""The data path of an input partition: reads events, routes them, and commits the decision with the offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from keygrouping_service.events.extract import parts
from keygrouping_service.events.input_partition import QUIET_SECONDS, InputPartition
from keygrouping_service.events.lateness import PartitionClock
from keygrouping_service.events.receipts import Entry
from keygrouping_service.events.sorting import Counters, Sorter
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.records.batches import QUARANTINED, origin_headers
from keygrouping_service.records.protocols import RecordBatch, Sink

from keygrouping_router import metrics
from keygrouping_router.data.accounting import Traffic
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.data.scheduling import Scheduler
from keygrouping_router.data.usable import Usable
from keygrouping_router.settings import RouterSettings

_BUSY_SECONDS = 0.02
"""How often it is looked whether the transaction before has ended."""

_MOST_BYTES = 16 << 20
"""Most bytes of one transaction, so that memory stays bounded where records are large."""

_STRETCH = 5000
"""Most records that are taken from what was fetched, or routed, at one stretch."""


def _left(deadline: float, owned: OwnedPartition) -> float:
    """Seconds for which records may still be gathered."""
    return max(deadline - time.monotonic(), _BUSY_SECONDS if owned.busy else 0.0)


class Pipeline:
    """Routes the input partitions that this replica owns; all share one active grouping, so that it sees all loads.

    `partitions` are those of the topics that it writes to.
    """

    def __init__(
        self,
        settings: RouterSettings,
        partitions: Mapping[str, int],
        active: ActiveGrouping,
        traffic: Traffic,
        not_below: Callable[[int], None],
    ) -> None:
        self._settings = settings
        counters = Counters(metrics.LATE, metrics.DEAD, metrics.SKIPPED_FIELDS)
        self._sorter = Sorter(settings, partitions, counters)
        self._scheduler = Scheduler()
        self._active = active
        self._traffic = traffic
        self._not_below = not_below

    async def work(self, owned: OwnedPartition) -> None:
        """Routes one input partition until the service stops."""
        self._not_below(owned.progress.epoch)
        here = await InputPartition.open(self._settings, owned, lambda: self._active.epoch)
        while not owned.stopping:
            await self._take_turn(here)
        await owned.flush()

    async def _take_turn(self, here: InputPartition) -> None:
        """One batch; nothing holds it any longer while the next one is gathered."""
        owned = here.owned
        records = await self._next_batch(owned)
        if not records:
            await here.rest()
            return
        await here.wake()
        for part in parts(records, _MOST_BYTES):
            last = int(part.offsets[-1])
            behind_gap = last >= owned.skipped_to
            after = owned.position if last == records.offsets[-1] and behind_gap else last + 1
            outbox, entry = owned.outbox(), here.ledger.entry(owned.skipped_to if behind_gap else 0)
            entry.leave_out(owned.left_out(after))
            await self._route(part, outbox, here.clock, entry)
            here.ledger.close(entry, after)
            outbox.end_with(self._settings.receipts_topic, entry.records)
            await owned.submit(outbox, after, here.progress)

    async def _next_batch(self, owned: OwnedPartition) -> RecordBatch:
        """Records for one transaction: what is there, and what comes within `linger` after the first of them, or for as
        long as the transaction before is under way, as they would wait for that anyway.

        They are all before what retention has deleted unread, or all behind it: a receipt has one range.
        """
        most, alone = self._settings.max_batch, owned.careful
        records = await owned.poll(min(most, _STRETCH), QUIET_SECONDS)
        if not records or alone or owned.careful:
            return records
        deadline = time.monotonic() + self._settings.linger
        later: list[RecordBatch] = []
        count, size, last = len(records), int(records.sizes().sum()), records.offsets[-1]
        while count < most and size < _MOST_BYTES and not owned.stopping and (left := _left(deadline, owned)) > 0:
            if polled := await owned.poll(min(most - count, _STRETCH), left):
                later.append(polled)
                count, size, last = count + len(polled), size + int(polled.sizes().sum()), polled.offsets[-1]
            if last < owned.skipped_to:
                break
        return records.followed_by(later)

    async def _route(self, records: RecordBatch, outbox: Sink, clock: PartitionClock, entry: Entry) -> None:
        usable = Usable.of(await self._sorter.sort(records, clock, entry, outbox))
        now = time.monotonic()
        usable = self._quarantine(usable, outbox, entry)
        if not len(usable.keys):
            return
        await self._scheduler.run(self._stretches(usable, outbox, now, entry))
        metrics.BATCH_SECONDS.observe(time.monotonic() - now)

    def _stretches(self, usable: Usable, outbox: Sink, now: float, entry: Entry) -> Iterator[None]:
        """Routes and packs the events of a batch, stretch by stretch."""
        workers = np.empty(len(usable.keys), np.int32)
        for start in range(0, len(workers), _STRETCH):
            part = usable.cut(start, start + _STRETCH)
            routed = self._active.route(part, now)
            self._traffic.record(part, routed, now)
            workers[start : start + _STRETCH] = routed.workers
            yield
        outbox.pass_on(self._settings.routed_topic, workers, usable.batch)
        yield
        entry.route(usable.batch.offsets, usable.times, workers)
        for worker, events in enumerate(np.bincount(workers).tolist()):
            if events:
                metrics.ROUTED.labels(str(worker)).inc(events)

    def _quarantine(self, usable: Usable, outbox: Sink, entry: Entry) -> Usable:
        """Events of quarantined keys go to their topic; the rest is to be routed."""
        chosen = self._active.quarantined(usable.keys)
        if chosen is None:
            return usable
        aside = usable.where(chosen)
        entry.dead_letter(aside.batch.offsets)
        topic = self._settings.quarantine_topic or self._settings.dead_letters_topic
        for record in aside.batch:
            headers = origin_headers(record, QUARANTINED, "its key is quarantined: GET /overrides says until when")
            self._sorter.send_on(outbox, record, topic, headers)
        metrics.QUARANTINED.inc(len(aside.batch))
        return usable.where(~chosen)
