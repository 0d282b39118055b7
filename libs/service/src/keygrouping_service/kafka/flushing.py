"""The loop of every stage that gathers what it reads and writes it out now and then."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Generic, Protocol, TypeVar

from aiokafka.errors import UnknownTopicOrPartitionError

from keygrouping_service.kafka.owned import OwnedPartition, Record
from keygrouping_service.kafka.progress import Horizon, Upstream, partitions_of
from keygrouping_service.kafka.upstream_watermarks import SharedHorizon


class Gathered(Protocol):
    """What a stage holds of one owned partition between two flushes."""

    @property
    def full(self) -> bool:
        """Whether memory asks for a flush, whatever the clock says."""

    async def take(self, records: list[Record]) -> None:
        """Gathers records, letting heartbeats through in between."""

    async def write(self, newest: Horizon | None) -> None:
        """Writes what is to be written under this horizon; does nothing if nothing has changed since the last time."""


GatheredType = TypeVar("GatheredType", bound=Gathered)


class FlushingStage(ABC, Generic[GatheredType]):
    """Works on the partitions of one process; `work` is what a `PartitionRunner` runs.

    It flushes `flush_interval` seconds after the first record since the last flush, when memory asks for it, as often
    as the horizon may move, and at the end.
    """

    def __init__(self, output_topic: str, flush_interval: float, batch_records: int) -> None:
        self._output_topic = output_topic
        self._flush_interval = flush_interval
        self._batch_records = batch_records
        self._running: dict[int, GatheredType] = {}
        self._horizon = SharedHorizon(self._read_horizon, flush_interval, time.monotonic)

    @abstractmethod
    async def _read_horizon(self, upstream: Upstream) -> Horizon:
        """What the stage before promises now."""

    @abstractmethod
    def _begin(self, owned: OwnedPartition, output_partitions: int) -> GatheredType:
        """What holds the records of one incarnation on one partition."""

    @abstractmethod
    def _observe(self, running: Collection[GatheredType]) -> None:
        """Sets the gauges of what is held."""

    async def work(self, owned: OwnedPartition) -> None:
        """One incarnation on one partition."""
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
                    await gathered.write(await self._horizon.latest(owned.upstream))
                    self._observe(self._running.values())
                    due = time.monotonic() + self._horizon.pause
            await gathered.write(self._horizon.newest)

    @contextlib.contextmanager
    def _observed(self, partition: int, gathered: GatheredType) -> Iterator[GatheredType]:
        self._running[partition] = gathered
        try:
            yield gathered
        finally:
            del self._running[partition]
            self._observe(self._running.values())
