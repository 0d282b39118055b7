"""One session on one partition of the input: its event time, its receipts, and what is done while nothing comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from keygrouping_service.events.lateness import PartitionClock
from keygrouping_service.events.receipts import Ledger
from keygrouping_service.events.settings import InputSettings
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress, floor_of_resuming, partitions_of
from keygrouping_service.kafka.topic_ids import read_topic_id, read_topic_id_if_any

log = logging.getLogger(__name__)

STAGE = "router"
"""The stage whose group reads the input, whoever does it: so it can be another service at any time."""

QUIET_SECONDS = 0.5
"""Longest wait for records, so that idleness and shutdown are noticed in time."""


class InputPartition:
    """What a session on an input partition keeps between two transactions.

    `epoch` gives the number of the plan that is in force.
    """

    def __init__(
        self,
        settings: InputSettings,
        owned: OwnedPartition,
        clock: PartitionClock,
        ledger: Ledger,
        epoch: Callable[[], int],
    ) -> None:
        self.owned = owned
        self.clock = clock
        self.ledger = ledger
        self._settings = settings
        self._epoch = epoch

    @classmethod
    async def open(cls, settings: InputSettings, owned: OwnedPartition, epoch: Callable[[], int]) -> InputPartition:
        """Begins where the session before has ended."""
        job = settings.job
        timing = (job.lateness_ms, job.confirmations, settings.idle_timeout, time.monotonic())
        read_id = read_topic_id_if_any if settings.stages == "combine" else read_topic_id
        routed = (settings.routed_topic, await read_id(owned.admin, settings.routed_topic))
        ledger = Ledger(owned.topic_id, owned.partition, routed, job, owned.offset)
        opened = cls(settings, owned, PartitionClock(owned.progress, *timing), ledger, epoch)
        if owned.progress.resuming:
            await opened._resume()
        return opened

    @property
    def progress(self) -> Progress:
        """What to commit with the records judged so far."""
        return self.clock.progress(self._epoch())

    async def wake(self) -> None:
        """Records came: ends an idle time, before any of them is judged."""
        self.clock.saw_records(time.monotonic())
        if self.clock.must_resume:
            await self._resume()

    async def rest(self) -> None:
        """Nothing comes and nothing is held: commits the end of the range, idleness when it is due, and a position
        that moved over markers.
        """
        owned = self.owned
        await owned.flush()
        if owned.at_end and not owned.committed.progress.ended:
            self.clock.finish()
            log.info("%s[%d] is read up to the end of the range", owned.tp.topic, owned.partition)
        elif self.clock.is_due(time.monotonic()) and owned.position >= await owned.end():
            self.clock.go_idle(int(time.time() * 1000))
            log.info("%s[%d] is idle", owned.tp.topic, owned.partition)
        elif owned.position == owned.committed.offset:
            return
        outbox = owned.outbox()
        if owned.position != owned.committed.offset:
            entry = self.ledger.entry(owned.skipped_to)
            entry.leave_out(owned.left_out(owned.position))
            self.ledger.close(entry, owned.position)
            outbox.end_with(self._settings.receipts_topic, entry.records)
        await owned.commit(outbox, owned.position, self.progress)

    async def _resume(self) -> None:
        """Comes back from an idle time; see `PartitionClock` for the order of the steps."""
        owned, clock = self.owned, self.clock
        await owned.flush()
        await owned.commit(None, owned.committed.offset or 0, clock.resuming(self._epoch()))
        partitions = await partitions_of(owned.admin, self._settings.events_topic)
        progress = await owned.group_progress(partitions)
        clock.resume(floor_of_resuming(progress, owned.partition, self._settings.job.lateness_ms))
        log.info("%s[%d] has events again", owned.tp.topic, owned.partition)
