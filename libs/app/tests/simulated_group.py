"""Members that share hot keys, without Kafka and in virtual time: their lanes, plans and windows are the app's own.

Events are written to slots at least once. A commit takes effect a moment after it has begun, slots and inputs are
lists, and reports are heard a moment later.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.giving import keep_giving
from keygrouping_app.kafka.overflow import SlotPartition
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.scheduler import Failure
from keygrouping_app.virtual_time import VirtualTime

from . import boards
from .boards import MemoryBoard

KeyOf = Callable[[random.Random, float], tuple[int, bytes]]
"""The partition and the key of the next event, at a second of the run."""
COMMIT_SECONDS = 0.05
READ_SECONDS = 0.02
HELD = 2000
"""Events of a partition that a member holds at most."""


class PureTime(VirtualTime):
    """Work takes no time at all, however busy the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def now(self) -> float:
        return self._began + self._skipped


class Wire(boards.Wire):
    """What all members tell and write."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.inputs: list[list[Record]] = [[] for _ in range(partitions)]
        self.slots: list[list[Record]] = [[] for _ in range(partitions)]
        self.silent: set[int] = set()
        """Slots without a leader."""
        self.deaf = False
        """Whether nothing can be told."""


class WireBoard(MemoryBoard):
    """One that takes its time, and answers where slots end."""

    _wire: Wire

    async def tell(self, member: str, value: bytes) -> None:
        await asyncio.sleep(0.005)
        if self._wire.deaf:
            raise KafkaTimeoutError
        await super().tell(member, value)

    async def ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self._wire.silent & {tp.partition for tp in tps}:
            await asyncio.sleep(40)
            raise KafkaTimeoutError
        await asyncio.sleep(0.002)
        return {tp: len(self._wire.slots[tp.partition]) for tp in tps}


class WireWriter:
    """As much of a writer as members need to give surplus; a slot without leader fails after a while."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def try_to_write(self, outgoing: Sequence[Outgoing]) -> dict[int, BaseException]:
        silent = self._wire.silent
        failed = {place: KafkaTimeoutError() for place, out in enumerate(outgoing) if out.partition in silent}
        await asyncio.sleep(4 if failed else 0.005)
        for place, out in enumerate(outgoing):
            if place not in failed:
                assert out.partition is not None
                log = self._wire.slots[out.partition]
                log.append(Record(out.topic, out.partition, len(log), out.time, out.key, out.value, out.headers))
        return {**failed}


class SimulatedMember:
    """One member with an input and a slot of the same number."""

    def __init__(self, wire: Wire, number: int, app: App) -> None:
        (handler,) = app.handlers
        self.wire, self.number = wire, number
        self.lanes = LoopLanes(handler, handler.function, self._on_end)
        start = OffsetAndMetadata(0, "")
        self.input = Partition(TopicPartition("in", number), handler.topic, start, asyncio.Event())
        self.slot = SlotPartition(TopicPartition("g.overflow", number), handler.topic, start, asyncio.Event(), {})
        self.partitions = {each.tp: each for each in (self.input, self.slot)}
        self.sharing = Sharing(Settings("g", "unused:1", "dead"), self.lanes, self.partitions)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins, unless it has."""
        if self._tasks:
            return
        board = WireBoard(self.wire)
        writer: Any = WireWriter(self.wire)
        self._tasks = [
            asyncio.create_task(self.sharing.keep(board)),
            asyncio.create_task(keep_giving(self.sharing, self.partitions, writer, COMMIT_SECONDS)),
            *(asyncio.create_task(each()) for each in (self._read, self._commit)),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        self.lanes.close()

    def _on_end(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        assert failure is None, failure
        source = ended[0].source
        assert isinstance(source, Partition)
        source.end(ended, outputs)

    async def _read(self) -> None:
        while True:
            for partition, log in (
                (self.input, self.wire.inputs[self.number]),
                (self.slot, self.wire.slots[self.number]),
            ):
                partition.log_end = len(log)
                room = min(HELD - partition.events - partition.unwritten, 500)
                first = partition.gaps.position
                if room > 0 and first < len(log):
                    records = log[first : first + room]
                    self.sharing.offered(partition, self.lanes.offer(partition.take(records, first + len(records))))
            await asyncio.sleep(READ_SECONDS)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            for partition in (self.input, self.slot):
                if (due := partition.due()) is not None:
                    await asyncio.sleep(0.005)
                    partition.committed(due)


class SimulatedGroup:
    """`members` of them, each with so many lanes and calls of so many seconds, by member, or by key if that is slow."""

    def __init__(self, lanes: Sequence[int], call: Callable[[int], float], slow: Mapping[bytes, float] = {}) -> None:
        self.wire = Wire(len(lanes))
        self.members: list[SimulatedMember] = []
        self.runs: Counter[str] = Counter()
        self.done: Counter[int] = Counter()
        self.waits: list[float] = []
        self.quick: list[float] = []
        """Waits of keys that are not slow."""
        self.seconds = 0.0
        """From the begin of the last events to the end."""
        self._began = 0.0
        self._slow = slow
        self._chance = random.Random(3)
        for number, count in enumerate(lanes):
            app = App("g")
            app.on("in", split=True, concurrency=count)(self._handler(number, call))
            self.members.append(SimulatedMember(self.wire, number, app))

    def _handler(self, number: int, call: Callable[[int], float]) -> Callable[[Event], object]:
        async def work(event: Event) -> None:
            await asyncio.sleep(self._slow.get(event.raw.key or b"", call(number)))
            self.runs[event.identity] += 1
            self.done[number] += 1
            self.waits.append(asyncio.get_running_loop().time() - event.time / 1000)
            if event.raw.key not in self._slow:
                self.quick.append(self.waits[-1])

        return work

    async def play(
        self, rate: float, seconds: float, key_of: Callable[[random.Random, float], tuple[int, bytes]]
    ) -> None:
        """Writes events for so long, by partition and key, while the members work."""
        loop = asyncio.get_running_loop()
        for member in self.members:
            member.start()
        self._began, number = loop.time(), 0
        while (passed := loop.time() - self._began) < seconds:
            now = int(1000 * loop.time())
            for _ in range(int(passed * rate) - number):
                partition, key = key_of(self._chance, passed)
                log = self.wire.inputs[partition]
                log.append(Record("in", partition, len(log), now, key, b"1"))
                number += 1
            await asyncio.sleep(READ_SECONDS)

    async def end(self) -> None:
        """All members stop where they are."""
        self.seconds = asyncio.get_running_loop().time() - self._began
        for member in self.members:
            await member.stop()

    async def finish(self, seconds: float) -> None:
        """Until all that was written is handled, but no longer."""
        for _ in range(int(seconds / COMMIT_SECONDS)):
            if len(self.runs) == self.events:
                break
            await asyncio.sleep(COMMIT_SECONDS)
        await asyncio.sleep(2 * COMMIT_SECONDS)

    @property
    def events(self) -> int:
        """That were written to inputs."""
        return sum(map(len, self.wire.inputs))

    @property
    def shared(self) -> int:
        """That were written to slots."""
        return sum(map(len, self.wire.slots))

    @property
    def needed(self) -> float:
        """That inputs have above their mean."""
        return sum(max(0.0, len(log) - self.events / len(self.members)) for log in self.wire.inputs)
