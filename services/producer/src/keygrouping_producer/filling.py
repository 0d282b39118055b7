"""From blocks of a source to the record batches of one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from keygrouping_service.records.batches import Outbox, partition_of

from keygrouping_producer.position import Place, Run
from keygrouping_producer.sources.base import Block, Fault, Rounds

_BLOCK = 2_000
_CHUNK_BYTES = 16 << 20
_KEYS_REMEMBERED = 200_000
_RAW_BYTES_KEPT = 65_536
DEAD_LETTERS_PARTITION = 0


class Partitions(dict[bytes, int]):
    """Partition of each key by Kafka's default partitioner, remembered for the keys met lately."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, key: bytes) -> int:
        if len(self) >= _KEYS_REMEMBERED:
            self.clear()
        partition = self[key] = partition_of(key, self._count)
        return partition


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one transaction writes, and where the partitions stand after it.

    items: how many positions of the source it covers, those of other slots' partitions included.
    """

    outbox: Outbox
    places: Mapping[int, Place]
    items: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where events go: the topics, the producer, and the most bytes an event may have."""

    producer: AIOKafkaProducer
    events: str
    dead_letters: str
    max_event_bytes: int


class Filler:
    """Reads a source on and packs the events of the given partitions; the first error makes it useless.

    Keyless events go round robin over all partitions, in the source's order, so every process deals them out alike.
    places: where this slot's partitions stand. wall_clock: seconds since the epoch, for events without a time.
    """

    def __init__(
        self,
        target: Target,
        rounds: Rounds,
        run: Run,
        places: Mapping[int, Place],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._rounds = rounds
        self._partitions = Partitions(run.partitions)
        self._count = run.partitions
        first = min(places.values(), key=lambda place: place.position)
        self.position = first.position
        self._unkeyed = first.counters.unkeyed
        self._begin = {partition: place.position for partition, place in places.items()}
        self._counters = {partition: place.counters.model_copy() for partition, place in places.items()}
        self._wall_clock = wall_clock

    def fill(self, most: int, run: Run) -> Chunk:
        """The next events, up to `most` positions of the source; no items at its end. Blocking (files, CPU)."""
        outbox = Outbox(self._target.producer)
        taken = size = 0
        while taken < most and size < _CHUNK_BYTES:
            block = self._rounds.read(self.position, min(_BLOCK, most - taken), run.plan.pace.loop)
            if not len(block):
                break
            size += self._add(block, outbox)
            self.position += len(block)
            taken += len(block)
        return Chunk(outbox, self._places(run), taken)

    def _places(self, run: Run) -> dict[int, Place]:
        return {
            partition: Place(
                run,
                max(self.position, self._begin[partition]),
                counters.model_copy(update={"unkeyed": self._unkeyed}),
            )
            for partition, counters in self._counters.items()
        }

    def _add(self, block: Block, outbox: Outbox) -> int:
        topic, append, value_of = self._target.events, outbox.append, block.value
        counters, limit, size = self._counters, self._target.max_event_bytes, 0
        now = int(self._wall_clock() * 1000)
        for i, (key, event_time) in enumerate(zip(block.keys, block.times, strict=True)):
            if key is None:
                partition = self._unkeyed % self._count
                self._unkeyed += 1
            else:
                partition = self._partitions[key]
            if partition not in counters or self.position + i < self._begin[partition]:
                continue
            if i in block.faults:
                self._dead_letter(outbox, partition, block.faults[i], now)
                continue
            value = value_of(i)
            length = len(value) + (len(key) if key else 0)
            if length > limit:
                self._dead_letter(outbox, partition, self._too_large(self.position + i, length, value), now)
                continue
            append(topic, partition, now if event_time is None else event_time, key, value)
            counters[partition].sent += 1
            size += length
        return size

    def _too_large(self, position: int, length: int, value: bytes) -> Fault:
        detail = f"the event has {length} bytes, at most {self._target.max_event_bytes} are allowed"
        return Fault("too-large", detail, f"position {position}", value)

    def _dead_letter(self, outbox: Outbox, partition: int, fault: Fault, now: int) -> None:
        """A dead letter: what stood there (a long line cut), why it is no event, and where it stands."""
        headers = [
            ("keygrouping-reason", fault.reason.encode()),
            ("keygrouping-detail", f"{fault.place}: {fault.detail}".encode(errors="replace")),
            ("keygrouping-source", fault.place.encode(errors="replace")),
        ]
        raw = fault.raw[:_RAW_BYTES_KEPT]
        outbox.append(self._target.dead_letters, DEAD_LETTERS_PARTITION, now, None, raw, headers)
        self._counters[partition].bad += 1
