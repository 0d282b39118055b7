"""Level-fill live on a topic that a Kafka client has partitioned by key: λ and pairs per key in each interval.

    python benchmarks/live_by_key.py [--rate 15000] [--routers 3] [--workload country-skew-40 ...]

An embedded broker, a Redis server, several routers that share it, and a producer with Kafka's own partitioner
(murmur2). What each worker got is read from the topic `routed`, by the events' times.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from keygrouping.hashing import hash_keys
from keygrouping.workload import workload
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Shape
from keygrouping_local.redis_server import RedisServer
from numpy.typing import NDArray

JOB = '{"window": "10s", "aggregates": [{"name": "events", "op": "count"}]}'
WORKLOADS = ("country-skew-40", "country-skew-80")
_STEP = 0.02
_QUIET = 5.0
"""Seconds without a record after which all is read."""


def keys_of(name: str, events: int) -> Iterator[bytes]:
    """The keys of a workload in their order."""
    stream = workload(name, events, 1)
    for chunk in stream.chunks():
        yield from (stream.table.name(number) for number in chunk.keys.tolist())


async def send(deployment: Deployment, keys: Iterator[bytes], rate: float, seconds: float) -> None:
    """Sends so many events per second."""
    begin, sent, topic = time.monotonic(), 0, deployment.settings.events_topic
    async with AIOKafkaProducer(bootstrap_servers=deployment.settings.bootstrap_servers, linger_ms=20) as producer:
        while (passed := time.monotonic() - begin) < seconds:
            for _ in range(int(passed * rate) - sent):
                await producer.send(topic, b"x", next(keys))
                sent += 1
            await asyncio.sleep(_STEP)
    print(f"  {sent / seconds:,.0f} events/s were sent")


async def routed(deployment: Deployment, workers: int) -> NDArray[np.int64]:
    """A row for each event: its time in ms, key and worker."""
    settings, parts = deployment.settings, []
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(settings.routed_topic, worker) for worker in range(workers)])
        while batches := await consumer.getmany(timeout_ms=int(1000 * _QUIET)):
            for place, records in batches.items():
                hashes = hash_keys([record.key for record in records])[:, 0]
                times = np.array([record.timestamp for record in records], np.int64)
                parts.append(np.stack([times, hashes, np.full(len(records), place.partition)], axis=1))
    return np.concatenate(parts)


def tell(rows: NDArray[np.int64], interval: int, workers: int) -> None:
    """Prints λ, least over average load and pairs per key of each whole interval."""
    numbers = rows[:, 0] // (1000 * interval)
    for number in np.unique(numbers)[1:-1].tolist():
        inside = rows[numbers == number]
        loads = np.bincount(inside[:, 2], minlength=workers)
        pairs = len(np.unique(inside[:, 1:], axis=0)) / len(np.unique(inside[:, 1]))
        least, most = loads.min() / loads.mean(), loads.max() / loads.mean()
        print(f"  {len(inside):7,} events: λ {most:.3f}, least {least:.3f}, {pairs:.3f} workers per key")


async def measure(servers: str, store: str, name: str, options: argparse.Namespace, folder: Path) -> None:
    """One workload, with an application of its own."""
    application = f"by-key-{uuid.uuid4().hex[:8]}"
    shape = Shape(options.partitions, options.workers)
    async with Deployment(servers, application, folder / application, JOB, shape=shape) as deployment:
        for number in range(options.routers):
            deployment.start(
                f"router-{number}",
                {"KEYGROUPING_STORE_URL": store},
                workers=options.workers,
                interval=options.interval,
                replica=f"r{number}",
            )
        print(name, flush=True)
        keys = keys_of(name, int(options.rate * (options.seconds + 1)))
        await send(deployment, keys, options.rate, options.seconds)
        await deployment.until(deployment.is_routed)
        tell(await routed(deployment, options.workers), options.interval, options.workers)


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        with EmbeddedBroker(folder / "broker") as broker, RedisServer(folder / "redis") as redis:
            for name in options.workload or WORKLOADS:
                await measure(broker.bootstrap_servers, f"redis://{redis.address}", name, options, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=15_000.0, help="events per second")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--interval", type=int, default=10, help="of plans, in seconds")
    parser.add_argument("--routers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--workload", action="append", help=f"default: {', '.join(WORKLOADS)}")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
