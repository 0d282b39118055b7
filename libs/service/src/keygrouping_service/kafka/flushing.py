"""The loop of every stage that gathers what it reads and writes it out now and then."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Generic, Protocol, TypeVar

from aiokafka.errors import UnknownTopicOrPartitionError

from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Upstream, UpstreamWatermark, partitions_of
from keygrouping_service.kafka.upstream_watermarks import SharedUpstreamWatermark
from keygrouping_service.records.protocols import RecordBatch


class Gathered(Protocol):
    """What a stage holds of one owned partition between two flushes."""

    @property
    def full(self) -> bool:
        """Whether memory asks for a flush, whatever the clock says."""

    async def take(self, records: RecordBatch) -> None:
        """Gathers records, letting heartbeats through in between."""

    async def write(self, newest: UpstreamWatermark | None) -> None:
        """Writes what is held and advances the watermark to `newest` where it may; nothing if nothing has changed."""


_STEP_SECONDS = 0.01
"""Longest wait for records once a flush is due."""

_REACH_SECONDS = 0.1
"""How long a flush waits for what is before the upstream watermark: a transaction may be yet to end."""

GatheredType = TypeVar("GatheredType", bound=Gathered)


class FlushingStage(ABC, Generic[GatheredType]):
    """Works on the partitions of one process; `work` is what a `PartitionRunner` runs.

    It flushes `flush_interval` seconds after the first record since the last flush, or a moment later, when it has read
    all that the upstream watermark speaks of; when memory asks for it, whenever that watermark may have advanced, and
    at the end.
    """

    def __init__(self, output_topic: str, flush_interval: float, batch_records: int) -> None:
        self._output_topic = output_topic
        self._flush_interval = flush_interval
        self._batch_records = batch_records
        self._running: dict[int, GatheredType] = {}
        self._shared_watermark = SharedUpstreamWatermark(self._read_upstream_watermark, flush_interval, time.monotonic)

    @abstractmethod
    async def _read_upstream_watermark(self, upstream: Upstream) -> UpstreamWatermark:
        """The upstream stage's watermark now."""

    @abstractmethod
    def _begin(self, owned: OwnedPartition, output_partitions: int) -> GatheredType:
        """What holds the records of one session on one partition."""

    @abstractmethod
    def _observe(self, running: Collection[GatheredType]) -> None:
        """Sets the gauges of what is held."""

    async def work(self, owned: OwnedPartition) -> None:
        """One session on one partition."""
        partitions = len(await partitions_of(owned.admin, self._output_topic))
        if not partitions:
            raise UnknownTopicOrPartitionError(f"create the topic {self._output_topic!r}")
        with self._observed(owned.partition, self._begin(owned, partitions)) as gathered:
            due = time.monotonic()
            while not owned.stopping:
                left = due - time.monotonic()
                records = await owned.poll(self._batch_records, left if left > 0 else _STEP_SECONDS)
                if records:
                    await gathered.take(records)
                    self._observe(self._running.values())
                    due = min(due, time.monotonic() + self._flush_interval)
                if gathered.full or owned.careful or await self._is_time(owned, due):
                    await gathered.write(await self._shared_watermark.latest(owned.upstream))
                    self._observe(self._running.values())
                    due = time.monotonic() + self._shared_watermark.pause
            await gathered.write(self._shared_watermark.newest)

    async def _is_time(self, owned: OwnedPartition, due: float) -> bool:
        """Whether to flush: when it is due, or a moment later, if the newest upstream watermark is reached by then.

        A flush that comes before that advances to the watermark before, and the newest one waits for the next flush.
        """
        now = time.monotonic()
        if now < due:
            return False
        newest = await self._shared_watermark.latest(owned.upstream)
        return newest is None or newest.covered(owned.partition, owned.position) or now >= due + _REACH_SECONDS

    @contextlib.contextmanager
    def _observed(self, partition: int, gathered: GatheredType) -> Iterator[GatheredType]:
        self._running[partition] = gathered
        try:
            yield gathered
        finally:
            del self._running[partition]
            self._observe(self._running.values())
