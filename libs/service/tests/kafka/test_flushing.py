"""What a stage shows of what it gathers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest
from keygrouping_service.kafka import flushing
from keygrouping_service.kafka.flushing import FlushingStage
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Upstream, UpstreamWatermark
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import Record


class Gathering:
    """Holds what it is given until it is written."""

    full = False

    def __init__(self) -> None:
        self.held: list[Record] = []

    async def take(self, records: RecordBatch) -> None:
        self.held += records

    async def write(self, _: UpstreamWatermark | None) -> None:
        self.held.clear()


class Stage(FlushingStage[Gathering]):
    """Notes each value that its gauge would have."""

    def __init__(self) -> None:
        super().__init__("out", flush_interval=60.0, batch_records=10)
        self.shown: list[int] = []

    async def _read_upstream_watermark(self, _: Upstream) -> UpstreamWatermark:
        return UpstreamWatermark(0, 0, {})

    def _begin(self, owned: OwnedPartition, output_partitions: int) -> Gathering:
        del owned, output_partitions
        return Gathering()

    def _observe(self, running: Collection[Gathering]) -> None:
        self.shown.append(sum(len(gathering.held) for gathering in running))


class Owned:
    """A partition with two polls' worth of records."""

    partition = position = 0
    careful = False
    upstream: Any = None

    def __init__(self) -> None:
        self.admin = self
        self.polls: list[list[Any]] = [[1, 2], [3]]

    @property
    def stopping(self) -> bool:
        return not self.polls

    async def describe_topics(self, _: list[str]) -> list[Any]:
        return [{"partitions": [{"partition": 0}]}]

    async def poll(self, *_: object) -> list[Any]:
        return self.polls.pop(0)


async def test_what_is_held_between_two_flushes_is_shown() -> None:
    stage = Stage()
    owned: Any = Owned()
    await stage.work(owned)
    assert stage.shown == [2, 0, 1, 0]


class Behind(Stage):
    """Its upstream watermark lies three records ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, int | None]] = []
        self._flush_interval = 0.0

    async def _read_upstream_watermark(self, _: Upstream) -> UpstreamWatermark:
        return UpstreamWatermark(7000, 0, {0: 3})

    def _begin(self, owned: OwnedPartition, output_partitions: int) -> Gathering:
        del output_partitions
        return Noting(owned, self.written)


class Noting(Gathering):
    """Notes where it is when it is written, and the time of the upstream watermark."""

    def __init__(self, owned: OwnedPartition, written: list[tuple[int, int | None]]) -> None:
        super().__init__()
        self._owned, self._written = owned, written

    async def write(self, newest: UpstreamWatermark | None) -> None:
        self._written.append((self._owned.position, None if newest is None else newest.time))


class Slow(Owned):
    """One record with each poll."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.position = 0
        self.polls = [[number] for number in range(records)]

    async def poll(self, *_: object) -> list[Any]:
        self.position += 1
        return await super().poll()


async def test_a_flush_that_is_due_waits_for_what_the_upstream_watermark_speaks_of() -> None:
    stage = Behind()
    await stage.work(cast(Any, Slow(4)))
    assert stage.written[0] == (3, 7000), "neither before the third record nor an interval after it"


async def test_it_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_REACH_SECONDS", 0.0)
    stage = Behind()
    await stage.work(cast(Any, Slow(2)))
    assert stage.written[0] == (1, 7000)
