"""Records per second of the router against a plain aiokafka relay on the same broker, in one run.

    python benchmarks/router.py [--records 1000000] [--rounds 3] [--grouping pkg] [--compression none]

The relay is what a Python program would do at least: getmany, one record batch per partition, send_batch, commit; no
routing, no transactions. The router runs twice, with a job that counts and with one that takes two fields of each JSON
value. All read the same preloaded topic, each in a process of its own, and are measured from outside by their committed
offsets, so start-up does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka.clients import retry
from keygrouping_service.kafka.progress import read_progress

PARTITIONS = 4
WORKERS = 8
MAX_BATCH = 10_000
COUNT = {"aggregates": [{"name": "events", "op": "count"}], "window": "1m"}
FIELDS = {
    "aggregates": [
        {"name": "total", "op": "sum", "field": "price"},
        {"name": "mean", "op": "mean", "field": "quantity"},
    ],
    "window": "1m",
}
ROUTERS = {"router": COUNT, "fields": FIELDS}
"""The router's contestants and their jobs."""


async def relay(servers: str, source: str, target: str, group: str) -> None:
    """The yardstick: passes records on to the partition of the same number, at least once."""
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 20)
    async with consumer, producer:
        while True:
            fetched = await consumer.getmany(timeout_ms=500, max_records=MAX_BATCH)
            sent = []
            for tp, records in fetched.items():
                batch = producer.create_batch()
                for record in records:
                    if batch.append(timestamp=record.timestamp, key=record.key, value=record.value) is None:
                        sent.append(await producer.send_batch(batch, target, partition=tp.partition))
                        batch = producer.create_batch()
                        batch.append(timestamp=record.timestamp, key=record.key, value=record.value)
                sent.append(await producer.send_batch(batch, target, partition=tp.partition))
            await asyncio.gather(*sent)
            if fetched:
                await consumer.commit()


async def create_topics(servers: str) -> None:
    """All topics of the contestants."""
    counts = {
        "events": PARTITIONS,
        "relayed": PARTITIONS,
        "routed": WORKERS,
        "late": 1,
        "dead-letters": 1,
        "receipts": 1,
    }
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    positions = NewTopic("positions", 1, 1, topic_configs={"cleanup.policy": "compact"})
    await admin.create_topics([*(NewTopic(name, count, 1) for name, count in counts.items()), positions])
    await admin.close()


async def preload(servers: str, records: int, value_bytes: int) -> None:
    """Fills `events` with skewed keys and JSON of random values."""
    random.seed(1)
    keys = [f"key-{int(random.paretovariate(0.8)) % 1000}".encode() for _ in range(10_000)]
    values = [json_of(value_bytes) for _ in range(100)]
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 19)
    async with producer:
        sent = 0
        while sent < records:
            partition = (sent // 4000) % PARTITIONS
            batch = producer.create_batch()
            now = int(time.time() * 1000)
            while sent < records and batch.record_count() < 4000:
                if not batch.append(timestamp=now, key=keys[sent % 10_000], value=values[sent % 100]):
                    break
                sent += 1
            await producer.send_batch(batch, "events", partition=partition)
        await producer.flush()


def json_of(size: int) -> bytes:
    """An object with two numbers, and text up to so many bytes."""
    head = f'{{"price":{random.random() * 1000:.2f},"quantity":{random.randrange(1, 9)},"note":"'
    return f'{head}{random.randbytes(size).hex()[: max(0, size - len(head) - 2)]}"}}'.encode()


@dataclass(frozen=True)
class Rate:
    """Records per second, and what the process itself spent per record."""

    per_second: float
    cpu_microseconds: float


async def measure(servers: str, group: str, records: int, command: list[str], env: Mapping[str, str]) -> Rate:
    """The rate of one contestant, from its first commit to its last."""
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env})
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        first: tuple[float, int, float] | None = None
        while True:
            committed = await retry(lambda: read_progress(admin, group, "events", range(PARTITIONS)), "progress")
            done, now = sum(entry.offset or 0 for entry in committed.values()), time.perf_counter()
            if done and first is None:
                first = (now, done, cpu_seconds(process.pid))
            if first and done >= records:
                cpu = cpu_seconds(process.pid) - first[2]
                return Rate((done - first[1]) / (now - first[0]), 1e6 * cpu / (done - first[1]))
            if process.returncode is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            await asyncio.sleep(0.02)
    finally:
        await admin.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def contest(servers: str, options: argparse.Namespace) -> None:
    """Runs all in turns and prints the table."""
    await create_topics(servers)
    await preload(servers, options.records, options.value_bytes)
    rates: dict[str, list[Rate]] = {name: [] for name in ("relay", *ROUTERS)}
    for number in range(options.rounds):
        group = f"relay{number}"
        command = [sys.executable, __file__, "--relay", servers, "events", "relayed", group]
        rates["relay"].append(await measure(servers, group, options.records, command, {}))
        for name, job in ROUTERS.items():
            env = router_environment(servers, f"{name}{number}", job, options)
            command = [sys.executable, "-m", "keygrouping_router"]
            rates[name].append(await measure(servers, f"{name}{number}-router", options.records, command, env))
    print_table(rates, options)


def router_environment(servers: str, application: str, job: object, options: argparse.Namespace) -> dict[str, str]:
    """Settings of the router under test."""
    return {
        "KEYGROUPING_BOOTSTRAP_SERVERS": servers,
        "KEYGROUPING_APPLICATION": application,
        "KEYGROUPING_JOB": json.dumps(job),
        "KEYGROUPING_COMPRESSION": options.compression,
        "KEYGROUPING_LOG_LEVEL": "WARNING",
        "KEYGROUPING_ROUTER_WORKERS": str(WORKERS),
        "KEYGROUPING_ROUTER_GROUPING": options.grouping,
        "KEYGROUPING_ROUTER_DELIVERY": options.delivery,
        "KEYGROUPING_ROUTER_MAX_BATCH": str(options.max_batch),
    }


def print_table(rates: Mapping[str, list[Rate]], options: argparse.Namespace) -> None:
    """Rates of all rounds, the medians, and their ratio."""
    print(f"{options.records:,} records of {options.value_bytes} bytes, {PARTITIONS} partitions, {WORKERS} workers")
    medians = {name: statistics.median(rate.per_second for rate in rounds) for name, rounds in rates.items()}
    for name, measured in rates.items():
        rounds = "  ".join(f"{rate.per_second:>9,.0f}" for rate in measured)
        cpu = statistics.median(rate.cpu_microseconds for rate in measured)
        print(f"{name:<7} {medians[name]:>9,.0f} records/s  {cpu:5.2f} µs of CPU per record   rounds: {rounds}")
    ratio = medians["router"] / medians["relay"]
    print(f"ratio   {ratio:.2f}  (router: {options.grouping}, {options.delivery}, {options.compression})")


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grouping", default="pkg")
    parser.add_argument("--delivery", default="exactly_once")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--max-batch", type=int, default=MAX_BATCH)
    parser.add_argument("--bootstrap-servers", help="an existing, empty Kafka instead of an embedded broker")
    parser.add_argument("--relay", nargs=4, metavar=("SERVERS", "SOURCE", "TARGET", "GROUP"), help="run the relay")
    options = parser.parse_args()
    if options.relay:
        asyncio.run(relay(*options.relay))
    elif options.bootstrap_servers:
        asyncio.run(contest(options.bootstrap_servers, options))
    else:
        with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
            asyncio.run(contest(broker.bootstrap_servers, options))


if __name__ == "__main__":
    main()
