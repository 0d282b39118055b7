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


GatheredType = TypeVar("GatheredType", bound=Gathered)


class FlushingStage(ABC, Generic[GatheredType]):
    """Works on the partitions of one process; `work` is what a `PartitionRunner` runs.

    It flushes `flush_interval` seconds after the first record since the last flush, when memory asks for it, whenever
    the upstream watermark may have advanced, and at the end.
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
                records = await owned.poll(self._batch_records, max(0.0, due - time.monotonic()))
                if records:
                    await gathered.take(records)
                    self._observe(self._running.values())
                    due = min(due, time.monotonic() + self._flush_interval)
                if gathered.full or owned.careful or time.monotonic() >= due:
                    await gathered.write(await self._shared_watermark.latest(owned.upstream))
                    self._observe(self._running.values())
                    due = time.monotonic() + self._shared_watermark.pause
            await gathered.write(self._shared_watermark.newest)

    @contextlib.contextmanager
    def _observed(self, partition: int, gathered: GatheredType) -> Iterator[GatheredType]:
        self._running[partition] = gathered
        try:
            yield gathered
        finally:
            del self._running[partition]
            self._observe(self._running.values())
