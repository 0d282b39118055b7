"""The input of all contestants, and what is right for it."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer

KEYS = [b"c%03d" % number for number in range(204)]
PARTITIONS = 8
SPAN_MS = 100_000
WINDOW_MS = 10_000
CLOSING_MS = 1_000_000
CLOSING = PARTITIONS * len(KEYS)
"""Records behind all others, which close the windows."""
_BATCH = 4000

Sums = tuple[int, int, int]
"""Number of events, sum of `a`, sum of `b`."""


@dataclass
class Truth:
    """What every program must come to: computed from what is sent, not from what a broker has."""

    records: int
    sums: dict[tuple[bytes, int], Sums] = field(default_factory=dict)


def records(count: int, skew: float, start_ms: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value (100 bytes of JSON with two integers) and time in ms; the first key has the share `skew`."""
    chance = random.Random(7)
    fillers = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=100)) for _ in range(4096)]
    for number in range(count):
        key = KEYS[0] if chance.random() < skew else KEYS[1 + chance.randrange(len(KEYS) - 1)]
        head = f'{{"key":"{key.decode()}","a":{chance.randrange(1000)},"b":{chance.randrange(-50, 50)},"pad":"'
        value = head + fillers[chance.randrange(4096)][: 98 - len(head)] + '"}'
        yield key, value.encode(), start_ms + number * SPAN_MS // count


async def fill(servers: str, topic: str, count: int, skew: float) -> Truth:
    """Deals the records in turn to all partitions of the topic, so that each key is in every partition.

    A last record of each key in each partition, much later, closes all windows for those that wait for that; its own
    window is in no truth.
    """
    start_ms = (int(time.time() * 1000) - 900_000) // WINDOW_MS * WINDOW_MS
    sums: dict[tuple[bytes, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    stream = records(count, skew, start_ms)
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 20) as producer:
        for turn in itertools.count():
            batch = list(itertools.islice(stream, _BATCH))
            if not batch:
                await _close(producer, topic, start_ms + CLOSING_MS)
                return Truth(count, {place: (n, a, b) for place, (n, a, b) in sums.items()})
            builder = producer.create_batch()
            for key, value, time_ms in batch:
                builder.append(key=key, value=value, timestamp=time_ms)
                numbers = value.split(b',"')
                total = sums[key, time_ms // WINDOW_MS * WINDOW_MS]
                total[0] += 1
                total[1] += int(numbers[1][3:])
                total[2] += int(numbers[2][3:])
            await producer.send_batch(builder, topic, partition=turn % PARTITIONS)
    raise AssertionError("the count of turns has no end")


async def _close(producer: AIOKafkaProducer, topic: str, time_ms: int) -> None:
    for partition in range(PARTITIONS):
        builder = producer.create_batch()
        for key in KEYS:
            builder.append(key=key, value=b'{"key":"%b","a":0,"b":0}' % key, timestamp=time_ms)
        await producer.send_batch(builder, topic, partition=partition)
