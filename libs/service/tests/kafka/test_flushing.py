"""What a stage shows of what it gathers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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

    partition = 0
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
