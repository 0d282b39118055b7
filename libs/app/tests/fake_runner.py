"""As much of a runner as the server of an app tells of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event, Topic
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka.changelog import Restoring
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.scheduler import Failure


@dataclass
class FakeRunner:
    """As much of a runner as is told of: lanes of one handler on one partition."""

    lanes: list[LoopLanes]
    partitions: dict[TopicPartition, Partition]
    joined: bool = True
    name: str = "billing"
    until: str = ""
    seen: float = 1.7e9
    restoring: dict[TopicPartition, Restoring] = field(default_factory=dict)
    standbys: Any = field(default_factory=lambda: SimpleNamespace(left_of=lambda _: []))
    sharing: Any = None
    moving: Any = field(default_factory=lambda: SimpleNamespace(done={}, groupings={}, balances={}))

    @property
    def held(self) -> list[Partition]:
        return list(self.partitions.values())


@contextmanager
def running(app: App, keys: str = "", age: float = 0) -> Iterator[Any]:
    """A runner that has read events of these keys, so many seconds old."""
    (handler,) = app.handlers
    tp = TopicPartition("orders", 3)
    partition = Partition(tp, Topic("orders"), OffsetAndMetadata(0, ""), asyncio.Event())

    def on_end(ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        assert outputs == [] or failure is None
        partition.end(ended, [])

    lanes = LoopLanes(handler, handler.function, on_end)
    written = int((time.time() - age) * 1000)
    records = [Record("orders", 3, offset, written, key.encode(), b"1") for offset, key in enumerate(keys)]
    lanes.offer(partition.take(records, len(keys)))
    try:
        yield FakeRunner([lanes], {tp: partition})
    finally:
        lanes.close()
