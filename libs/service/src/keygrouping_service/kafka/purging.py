"""Deletes of a topic between two stages what all its readers have committed, as it would grow without end otherwise.

The reading stage does it, each process for its own partitions. Only offsets that are committed count, read back from
the brokers, of every group that is known to read the topic; so whoever goes on at its committed offset finds all that
it needs, whatever is killed and whenever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import read_offsets
from keygrouping_service.observability import metrics
from keygrouping_service.settings import PREFIX, PurgeSettings

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 30.0
_LEAST_PAUSE_SECONDS = 0.5
_REFUSED_SECONDS = 600.0
_SILENT_SECONDS = 3600.0
_MOST_SAMPLES = 500


@dataclass(frozen=True, slots=True)
class Readers:
    """The consumer groups that read a topic.

    Each of `groups` must have committed a partition before anything of it goes. `guests` may be there or not: each
    counts from its first commit in the topic on.
    """

    groups: tuple[str, ...]
    guests: tuple[str, ...] = ()


def readers_of(stage: str, named: str, guests: Iterable[str] = ()) -> Readers:
    """The readers of a topic: the group of the stage that purges, those that a setting names, and possible guests."""
    return Readers((stage, *(group for group in named.split(",") if group)), tuple(guests))


@dataclass(frozen=True, slots=True)
class Sample:
    """What all readers had committed, by partition, at a moment of a clock that never goes back (seconds).

    `wall_ms` is the same moment in ms since 1970.
    """

    at: float
    offsets: Mapping[int, int]
    wall_ms: int = 0


def committed_by_all(found: Mapping[str, Mapping[int, int]], readers: Readers) -> dict[int, int]:
    """Up to where every reader has committed, by partition; nothing may go of a partition that is missing.

    `found` holds the committed offsets of each group by partition, -1 where there is none.
    """
    guests = (guest for guest in readers.guests if any(offset >= 0 for offset in found[guest].values()))
    counting = [found[group] for group in (*readers.groups, *guests)]
    least = {partition: min(offsets[partition] for offsets in counting) for partition in counting[0]}
    return {partition: offset for partition, offset in least.items() if offset > 0}


@dataclass
class Ripening:
    """Remembers what was committed when, until it may go: after `keep` seconds, and once `is_ripe` agrees."""

    keep: float
    is_ripe: Callable[[Sample], bool] = lambda _: True
    samples: list[Sample] = field(default_factory=list)

    def purgeable(self, now: Sample) -> dict[int, int]:
        """Takes in what is committed now; gives up to where each partition may be purged.

        That is never above what is committed now, should somebody have set a group back meanwhile.
        """
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        self.samples.append(now)
        ripe: Sample | None = None
        while self.samples and now.at - self.samples[0].at >= self.keep and self.is_ripe(self.samples[0]):
            ripe = self.samples.pop(0)
        if ripe is None:
            return {}
        return {p: min(offset, now.offsets[p]) for p, offset in ripe.offsets.items() if p in now.offsets}


class Purger:
    """Purges those partitions of `topic` that `owned` names, whenever `step` is called."""

    def __init__(
        self,
        topic: str,
        readers: Readers,
        ripening: Ripening,
        owned: Callable[[], Iterable[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self._readers = readers
        self._ripening = ripening
        self._owned = owned
        self._clock = clock
        metrics.PURGED.labels(topic)
        self._starts: dict[TopicPartition, int] = {}
        """Where partitions begin since they were purged last."""
        self._moved: dict[str, tuple[float, Mapping[int, int]]] = {}
        """When the offsets of a guest were seen to move last, and where they are."""

    async def step(self, admin: AIOKafkaAdminClient) -> None:
        """Looks what is committed, and deletes what may go. Raises Kafka errors."""
        partitions = [TopicPartition(self.topic, partition) for partition in sorted(self._owned())]
        if not partitions:
            return
        found = await self._offsets(admin, partitions)
        now = Sample(self._clock(), committed_by_all(found, self._readers), int(time.time() * 1000))
        self._name_who_is_silent(found, now)
        purgeable = self._ripening.purgeable(now)
        wanted = {tp: purgeable[tp.partition] for tp in partitions if tp.partition in purgeable}
        await self._learn_starts(admin, wanted)
        ahead = {tp: RecordsToDelete(offset) for tp, offset in wanted.items() if offset > self._starts[tp]}
        if ahead:
            for tp, start in (await admin.delete_records(ahead)).items():
                metrics.PURGED.labels(tp.topic).inc(max(0, start - self._starts[tp]))
                self._starts[tp] = start

    async def _offsets(self, admin: AIOKafkaAdminClient, partitions: list[TopicPartition]) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for group in (*self._readers.groups, *self._readers.guests):
            offsets = await read_offsets(admin, group, partitions)
            found[group] = {tp.partition: stored.offset for tp, stored in offsets.items()}
        return found

    async def _learn_starts(self, admin: AIOKafkaAdminClient, wanted: Iterable[TopicPartition]) -> None:
        # To delete before offset 0 deletes nothing, and is answered with where the partition begins.
        unknown = {tp: RecordsToDelete(0) for tp in wanted if tp not in self._starts}
        if unknown:
            self._starts |= await admin.delete_records(unknown)

    def _name_who_is_silent(self, found: Mapping[str, Mapping[int, int]], now: Sample) -> None:
        stage = found[self._readers.groups[0]]
        for group in (*self._readers.groups[1:], *self._readers.guests):
            offsets = found[group]
            since, before = self._moved.get(group, (now.at, offsets))
            behind = any(-1 < offset < stage[partition] for partition, offset in offsets.items())
            if offsets != before or not behind:
                since = now.at
            elif now.at - since >= _SILENT_SECONDS:
                since = now.at
                log.warning(
                    "%s: group %s has read nothing for an hour, and all that it has not read is kept: start it again, "
                    "or delete it by kafka-consumer-groups.sh --delete --group %s",
                    *(self.topic, group, group),
                )
            self._moved[group] = (since, offsets)


@contextlib.asynccontextmanager
async def purging(settings: PurgeSettings, *purgers: Purger) -> AsyncIterator[None]:
    """Meanwhile the purgers work every 30 seconds, or sooner where little is kept; a failure never stops the stage."""
    pause = min(_PAUSE_SECONDS, max(_LEAST_PAUSE_SECONDS, settings.purge_after / 10))
    tasks = [asyncio.create_task(_keep_purging(settings, purger, pause)) for purger in purgers if settings.purge]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_purging(settings: PurgeSettings, purger: Purger, pause: float) -> None:
    while True:
        try:
            with given_up_calls():
                async with clients.started(clients.admin(settings)) as admin:
                    while True:
                        await asyncio.sleep(pause)
                        await purger.step(admin)
        except Exception as error:
            wait = pause
            if can_be_retried(error):
                log.warning("cannot purge %s now: %r", purger.topic, error)
            else:
                wait = max(pause, _REFUSED_SECONDS)
                log.error(
                    "%s grows without bound, as it cannot be purged (%r): allow the user to Delete its records, or set "
                    "%sPURGE=false and delete them yourself",
                    *(purger.topic, error, PREFIX),
                )
            await asyncio.sleep(wait)
