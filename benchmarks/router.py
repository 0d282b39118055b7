"""What the router costs per record, and how fast it is, beside two other ways on the same broker, in one run.

    python benchmarks/router.py [--records 5000000] [--partitions 4 8] [--rounds 3] [--grouping level-fill]

The router runs twice, with a job that counts and with one that takes two fields of each JSON value. Beside it:

- `relay`, what a program with aiokafka would do at least: getmany, one record batch per partition, send_batch, commit;
  no routing, no transactions.
- `confluent`, the same loop over librdkafka, exactly once: consume, produce each record by its key, one transaction for
  every 20,000 of them.

One key has 80 % of the events. All read the same preloaded topic, each in a process of its own, and are measured from
outside, between the commits of a tenth and of nine tenths of the records: start-up does not count, and as much is under
way at the end as at the beginning. `sink` is the router's work without Kafka on one core, from the bytes of fetches to
those of written batches, receipts included.
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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, Producer
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_router.data.accounting import Traffic, warm_up
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.data.usable import Usable
from keygrouping_router.settings import RouterSettings
from keygrouping_router.times import Times
from keygrouping_service.events.extract import Extractor, sort_out_late
from keygrouping_service.events.lateness import PartitionClock
from keygrouping_service.events.receipts import Ledger
from keygrouping_service.kafka.clients import retry
from keygrouping_service.kafka.progress import Progress, read_progress
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.fetched import Fetched
from keygrouping_service.records.v2.writing import Sender, pack, sealed

WORKERS = 10
HOT_SHARE = 0.8
BATCH_RECORDS = 4000
RELAYED = 10_000
CONFLUENT_RECORDS = 20_000
BATCH_BYTES = 1 << 20
STRETCH = 5000
TOPIC_ID = "A" * 22
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


# what else would do it


async def relay(servers: str, group: str) -> None:
    """Passes records on to the partition of the same number, at least once."""
    consumer = AIOKafkaConsumer(
        "events", bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=BATCH_BYTES)
    async with consumer, producer:
        while True:
            fetched = await consumer.getmany(timeout_ms=500, max_records=RELAYED)
            sent = []
            for tp, records in fetched.items():
                batch = producer.create_batch()
                for record in records:
                    if batch.append(timestamp=record.timestamp, key=record.key, value=record.value) is None:
                        sent.append(await producer.send_batch(batch, "relayed", partition=tp.partition))
                        batch = producer.create_batch()
                        batch.append(timestamp=record.timestamp, key=record.key, value=record.value)
                sent.append(await producer.send_batch(batch, "relayed", partition=tp.partition))
            await asyncio.gather(*sent)
            if fetched:
                await consumer.commit()


def confluent(servers: str, group: str) -> None:
    """Passes records on by their keys, exactly once."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["events"])
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": group,
            "batch.size": BATCH_BYTES,
            "linger.ms": 5,
            "queue.buffering.max.messages": 10 * CONFLUENT_RECORDS,
        }
    )
    producer.init_transactions()
    while True:
        records = consumer.consume(CONFLUENT_RECORDS, 0.1)
        if records:
            producer.begin_transaction()
            for record in records:
                time_ms = record.timestamp()[1]
                producer.produce("confluent", value=record.value(), key=record.key(), timestamp=time_ms)
            positions = consumer.position(consumer.assignment())
            moved = [position for position in positions if position.offset >= 0]
            producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata())
            producer.commit_transaction()


# the events


def keys_and_values(value_bytes: int) -> tuple[list[bytes], list[bytes]]:
    """Keys, of which one has most events, and JSON of random values; the same in each run."""
    random.seed(1)
    keys = [b"hot" if random.random() < HOT_SHARE else b"key-%d" % random.randrange(1000) for _ in range(10_000)]
    return keys, [json_of(value_bytes) for _ in range(100)]


def json_of(size: int) -> bytes:
    """An object with two numbers, and text up to so many bytes."""
    head = f'{{"price":{random.random() * 1000:.2f},"quantity":{random.randrange(1, 9)},"note":"'
    return f'{head}{random.randbytes(size).hex()[: max(0, size - len(head) - 2)]}"}}'.encode()


async def create_topics(servers: str, partitions: int) -> None:
    """All topics of the contestants."""
    counts = {
        "events": partitions,
        "relayed": partitions,
        "confluent": WORKERS,
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


async def preload(servers: str, partitions: int, options: argparse.Namespace) -> None:
    """Fills `events`."""
    keys, values = keys_and_values(options.value_bytes)
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=BATCH_BYTES)
    async with producer:
        sent = 0
        while sent < options.records:
            partition = (sent // BATCH_RECORDS) % partitions
            batch = producer.create_batch()
            now = int(time.time() * 1000)
            while sent < options.records and batch.record_count() < BATCH_RECORDS:
                if not batch.append(timestamp=now, key=keys[sent % 10_000], value=values[sent % 100]):
                    break
                sent += 1
            await producer.send_batch(batch, "events", partition=partition)
        await producer.flush()


# with Kafka


@dataclass(frozen=True)
class Rate:
    """Records per second, µs of CPU time per record of the process and of the broker, and memory (MiB)."""

    per_second: float
    process: float
    broker: float
    memory: float


@dataclass(frozen=True)
class Field:
    """Where the contestants meet; `broker` is the broker's process, None if it is none of ours."""

    servers: str
    partitions: int
    records: int
    broker: int | None


async def measure(field: Field, group: str, command: list[str], env: Mapping[str, str]) -> Rate:
    """The rate of one contestant, from a tenth of the records to nine tenths."""
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env})
    admin = AIOKafkaAdminClient(bootstrap_servers=field.servers)
    await admin.start()
    try:
        first: tuple[float, int, float, float] | None = None
        while True:
            committed = await retry(lambda: read_progress(admin, group, "events", range(field.partitions)), "progress")
            done, now = sum(entry.offset or 0 for entry in committed.values()), time.perf_counter()
            if first is None and 10 * done >= field.records:
                first = (now, done, cpu_seconds(process.pid), cpu_seconds(field.broker))
            if first and 10 * done >= 9 * field.records:
                records = done - first[1]
                own, others = cpu_seconds(process.pid) - first[2], cpu_seconds(field.broker) - first[3]
                memory = psutil.Process(process.pid).memory_info().rss / (1 << 20)
                return Rate(records / (now - first[0]), 1e6 * own / records, 1e6 * others / records, memory)
            if process.returncode is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            await asyncio.sleep(0.03)
    finally:
        await admin.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def cpu_seconds(pid: int | None) -> float:
    """CPU time that a process has used so far; 0 if it is unknown."""
    if pid is None:
        return 0.0
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def contest(servers: str, broker: int | None, partitions: int, options: argparse.Namespace) -> None:
    """Runs all in turns and prints the table."""
    await create_topics(servers, partitions)
    await preload(servers, partitions, options)
    field = Field(servers, partitions, options.records, broker)
    rates: dict[str, list[Rate]] = {name: [] for name in ("relay", "confluent", *ROUTERS)}
    for number in range(options.rounds):
        for name in ("relay", "confluent"):
            command = [sys.executable, __file__, "--contestant", name, servers, f"{name}{number}"]
            rates[name].append(await measure(field, f"{name}{number}", command, {}))
        for name, job in ROUTERS.items():
            env = router_environment(servers, f"{name}{number}", job, options)
            command = [sys.executable, "-m", "keygrouping_router"]
            rates[name].append(await measure(field, f"{name}{number}-router", command, env))
    print_table(rates, partitions, options)


def router_environment(servers: str, application: str, job: object, options: argparse.Namespace) -> dict[str, str]:
    """Settings of the router under test."""
    given = {} if options.max_batch is None else {"KEYGROUPING_ROUTER_MAX_BATCH": str(options.max_batch)}
    return given | {
        "KEYGROUPING_BOOTSTRAP_SERVERS": servers,
        "KEYGROUPING_APPLICATION": application,
        "KEYGROUPING_JOB": json.dumps(job),
        "KEYGROUPING_COMPRESSION": options.compression,
        "KEYGROUPING_LOG_LEVEL": "ERROR",
        "KEYGROUPING_ROUTER_WORKERS": str(WORKERS),
        "KEYGROUPING_ROUTER_GROUPING": options.grouping,
        "KEYGROUPING_ROUTER_DELIVERY": options.delivery,
    }


def print_table(rates: Mapping[str, list[Rate]], partitions: int, options: argparse.Namespace) -> None:
    """The medians of all rounds, and their ratios."""
    print(f"{options.records:,} records of {options.value_bytes} bytes, {partitions} partitions, {WORKERS} workers,")
    print(f"{options.grouping}, {options.delivery}, {options.compression}, load average {os.getloadavg()[0]:.0f}")
    found = {}
    for name, measured in rates.items():
        columns = zip(*((one.per_second, one.process, one.broker, one.memory) for one in measured), strict=True)
        found[name] = one = Rate(*map(statistics.median, columns))
        cpu = f"{one.process:5.2f} + {one.broker:5.2f} µs of CPU per record, process + broker"
        print(f"{name:<10} {one.per_second:>9,.0f} records/s  {cpu}  {one.memory:4.0f} MiB")
    print(f"fields/router  {found['fields'].process / found['router'].process:.2f} (CPU of the process)")
    print(f"fields/confluent  {found['fields'].per_second / found['confluent'].per_second:.2f} (records/s)", flush=True)


# without Kafka


class Sink:
    """The router's work on one input partition; what it would write goes nowhere."""

    def __init__(self, settings: RouterSettings) -> None:
        job = settings.job
        self._active = ActiveGrouping(settings.control())
        self._traffic = Traffic(self._active, settings.tracked_keys, Times())
        self._extractor = Extractor(job)
        self._clock = PartitionClock(Progress(), job.lateness_ms, job.confirmations, 3600, time.monotonic())
        self._ledger = Ledger(TOPIC_ID, 0, ("routed", TOPIC_ID), job, 0)
        self._most = settings.max_batch
        self._written: Counter[int] = Counter()

    async def run(self, fetches: list[tuple[int, bytes]]) -> int:
        """Routes all of it; how many records that were."""
        gathered: list[RecordBatch] = []
        records = 0
        for offset, data in fetches:
            for batch in self._read(offset, data):
                gathered.append(batch)
                records += len(batch)
                if sum(map(len, gathered)) >= self._most:
                    await self._route(gathered[0].followed_by(gathered[1:]))
                    gathered = []
        if gathered:
            await self._route(gathered[0].followed_by(gathered[1:]))
        return records

    def _read(self, offset: int, data: bytes) -> Iterator[BufferBatch]:
        fetched = Fetched(Unpacking(), "events", 0, offset, data, ())
        while not fetched.exhausted:
            if len(batch := fetched.take(STRETCH)):
                yield batch

    async def _route(self, batch: RecordBatch) -> None:
        entry = self._ledger.entry(0)
        entry.consume(batch.offsets)
        judged = await self._extractor.extract(batch, int(time.time() * 1000))
        usable = Usable.of(sort_out_late(judged, self._clock).usable)
        workers = np.empty(len(usable.keys), np.int32)
        for start in range(0, len(workers), STRETCH):
            part, now = usable.cut(start, start + STRETCH), time.monotonic()
            routed = self._active.route(part, now)
            self._traffic.record(part, routed, now)
            workers[start : start + STRETCH] = routed.workers
        written: dict[tuple[str, int], list[tuple[int, int]]] = {}
        taken: Any = usable.batch
        for packed in pack(taken, workers.astype(np.int64), BATCH_BYTES):
            sealed(packed, Sender(1, 0, 0, True))
            written.setdefault(("routed", packed.target), []).append((self._written[packed.target], packed.records))
            self._written[packed.target] += packed.records
        entry.route(usable.batch.offsets, usable.times, workers)
        self._ledger.close(entry, int(batch.offsets[-1]) + 1)
        list(entry.records(written))


def fetches_of(options: argparse.Namespace) -> list[tuple[int, bytes]]:
    """What a broker would answer: the offset asked for, and batches of about a MiB together."""
    keys, values = keys_and_values(options.value_bytes)
    now = int(time.time() * 1000)
    answers: list[tuple[int, bytearray]] = []
    for start in range(0, min(options.records, 400_000), BATCH_RECORDS):
        rows = [(i, now, keys[i % 10_000], values[i % 100], ()) for i in range(start, start + BATCH_RECORDS)]
        (packed,) = pack(BufferBatch.of("events", 0, rows), np.zeros(len(rows), np.int64), 1 << 30)
        whole = sealed(packed, Sender())
        whole[:8] = start.to_bytes(8, "big")
        if not answers or len(answers[-1][1]) >= BATCH_BYTES:
            answers.append((start, bytearray()))
        answers[-1][1].extend(whole)
    return [(offset, bytes(data)) for offset, data in answers]


def sink(options: argparse.Namespace) -> None:
    """Prints what the router takes without Kafka: the least of some rounds, of all threads."""
    fetches = fetches_of(options)
    warm_up()
    for name, job in ROUTERS.items():
        os.environ.update(router_environment("none:1", name, job, options))
        found = []
        for _ in range(2 + options.rounds):
            began = time.process_time()
            records = asyncio.run(Sink(RouterSettings()).run(fetches))
            found.append(1e6 * (time.process_time() - began) / records)
        print(f"sink {name:<7} {min(found):.2f} µs of CPU per record without Kafka", flush=True)


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grouping", default="level-fill")
    parser.add_argument("--delivery", default="exactly_once")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--max-batch", type=int, help="another one than the router's own")
    parser.add_argument("--bootstrap-servers", help="an existing, empty Kafka instead of an embedded broker")
    parser.add_argument("--contestant", nargs=3, metavar=("NAME", "SERVERS", "GROUP"), help="run this one")
    options = parser.parse_args()
    if options.contestant:
        name, servers, group = options.contestant
        return asyncio.run(relay(servers, group)) if name == "relay" else confluent(servers, group)
    sink(options)
    if options.bootstrap_servers:
        return asyncio.run(contest(options.bootstrap_servers, None, options.partitions[0], options))
    for partitions in options.partitions:
        with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
            asyncio.run(contest(broker.bootstrap_servers, broker.pid, partitions, options))
    return None


if __name__ == "__main__":
    main()
