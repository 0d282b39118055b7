"""Reads what a contestant has written, as a consumer of committed records, and compares it with the truth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from peers.workload import CLOSING, KEYS, PARTITIONS, Sums, Truth

TARGETS = 10


@dataclass(frozen=True)
class Verdict:
    """What came out: `right` events of all, events or counts too many, and the fullest partition's share of records."""

    records: int
    right: int
    extra: int
    largest_share: float


async def ends(servers: str, topic: str) -> int:
    """Offsets up to which a consumer of committed records may read, added up."""
    async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        await consumer.topics()
        tps = [TopicPartition(topic, partition) for partition in range(TARGETS)]
        found: dict[TopicPartition, int] = await consumer.end_offsets(tps)
        return sum(found.values())


async def verify(servers: str, topic: str, work: str, truth: Truth) -> Verdict:
    """Reads the whole topic.

    Records that were routed are right if each is there once; counts, if the last one of each key and window is.
    """
    per_partition: Counter[int] = Counter()
    last: dict[tuple[bytes, int], Sums] = {}
    routed: Counter[bytes] = Counter()
    async for batch in _batches(servers, topic):
        for record in batch:
            per_partition[record.partition] += 1
            if work == "route":
                routed[bytes(record.key)] += 1
            else:
                place, sums = _row(record)
                last[place] = max(sums, last.get(place, (0, 0, 0)), key=lambda sums: sums[0])
    total = sum(per_partition.values())
    largest = max(per_partition.values(), default=0) / max(1, total)
    if work == "route":
        wanted: Counter[bytes] = Counter()
        for (key, _), (count, _, _) in truth.sums.items():
            wanted[key] += count
        wanted.update(dict.fromkeys(KEYS, PARTITIONS))
        right = sum((wanted & routed).values()) - CLOSING
        return Verdict(total, right, total - CLOSING - right, largest)
    right = sum(sums[0] for place, sums in truth.sums.items() if last.get(place) == sums)
    extra = sum(max(0, last.get(place, (0, 0, 0))[0] - sums[0]) for place, sums in truth.sums.items())
    return Verdict(total, right, extra, largest)


def _row(record: Any) -> tuple[tuple[bytes, int], Sums]:
    row = json.loads(record.value)
    if isinstance(row, dict):  # keygrouping's own results
        sums = row["aggregates"]
        return (row["key"].encode(), row["start"]), (row["events"], sums["a"], sums["b"])
    start, count, a, b = map(int, row)
    return (bytes(record.key), start), (count, a, b)


async def _batches(servers: str, topic: str) -> AsyncIterator[Iterable[Any]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with consumer:
        await consumer.topics()
        tps = [TopicPartition(topic, partition) for partition in range(TARGETS)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        end = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < end[tp] for tp in tps]):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                yield batch
