"""What each grouping makes of the same workers: throughput, latency and cost of partials, live through Kafka.

    python benchmarks/live_balance.py [--service-ms 0.1 ...] [--grouping level-fill ...] [--output FOLDER]

A producer offers 95 % of what W workers can do; the router spreads the events; a native worker process holds all W
partitions and takes a service time for each event, in which it is asleep, as in the papers' experiments. As there,
sources wait while any worker has more than a thousand events to do, so throughput is that of the fullest worker.

The papers' service time is 0.1 ms, which makes 100,000 events/s for ten workers. Broker, producer, router and workers
share one machine here, which may be less than that takes, so a second pass has a longer one.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import math
import os
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from keygrouping.hashing import hash_keys
from keygrouping.workload import Workload, workload
from keygrouping_experiments.chart import draw
from keygrouping_experiments.model import Line, Panel
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Shape
from keygrouping_local.topics import environment_of
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.run import run
from keygrouping_service.settings import load
from keygrouping_worker.settings import WorkerSettings
from keygrouping_worker.work import Flusher, WorkerStage
from numpy.typing import NDArray

PARTITIONS = 4
LOAD = 0.95
SERVICE_MS = (0.1, 0.5)
QUEUE = 1000
"""Events of one worker from which on the source waits, as in the simulator."""
GROUPINGS = ("shuffle", "key", "pkg", "dkg", "w-choices", "level-fill")
MOVING = "moving-hot-key"
TABLE_3 = "country-skew-68"
WORKLOADS = ("country-skew-0", "country-skew-40", "country-skew-80", MOVING, TABLE_3)
PUBLISHED = {"shuffle": (1.0, 2.449), "key": (0.14, 1.0), "pkg": (0.29, 1.165), "dkg": (0.48, 1.241)}
"""Throughput over shuffle's 9,511 records/s and DIST_COST at 68 % skew, W = 10: Dynamic Key Grouping, table 3."""
GOAL, GOAL_COST = 0.98, 1.06
_STEP = 0.01
_WAY_SECONDS = 0.25
"""Events of this time may be on their way to the workers."""
_REPORT_SECONDS = 0.02
_AT_ONCE = 0.005
"""Records that follow within this time were waiting: the worker is not late because it slept a bit too long."""
_PAUSE_SECONDS = 3.0
_TIMEOUT_SECONDS = 60.0
_LEAST_SENT = 0.9
_MUCH = 0.1


@dataclass(frozen=True)
class Row:
    """What was measured of one grouping on one workload."""

    service_ms: float
    workload: str
    grouping: str
    events_per_second: float
    efficiency: float
    p50_ms: float
    p99_ms: float
    dist_cost: float
    waited: float
    """Part of the time in which the source had to wait."""


# the workers


class Asleep(Flusher):
    """A worker that takes its time for each event, and notes when it was done."""

    def __init__(self, settings: WorkerSettings, owned: OwnedPartition, partitions: int, notes: Notes) -> None:
        super().__init__(settings, owned, partitions)
        self._partition = owned.partition
        self._notes = notes
        self._free = 0.0
        self._idle_since = 0.0

    async def take(self, records: RecordBatch) -> None:
        """Aggregates them, and sleeps for as long as a worker would be busy with them."""
        waited = time.time() - self._idle_since > _AT_ONCE
        await super().take(records)
        begin = max(self._free, time.time()) if waited else self._free
        self._free = begin + self._notes.service * len(records)
        done: NDArray[np.float64] = begin + self._notes.service * np.arange(1.0, len(records) + 1)
        self._notes.add(self._partition, records, done)
        await asyncio.sleep(max(0.0, self._free - time.time()))
        self._idle_since = time.time()


class Notes:
    """Who did which event when."""

    def __init__(self, service: float) -> None:
        self.service = service
        self.finished = 0
        self._last: dict[int, tuple[int, float]] = {}
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, worker: int, records: RecordBatch, done: NDArray[np.float64]) -> None:
        """Notes the events of one worker, done at these times."""
        hashes = hash_keys([key or b"" for key in records.keys])[:, 0]
        self.finished += len(records)
        self._last[worker] = int(records.offsets[-1]) + 1, float(done[-1])
        self._parts.append((np.full(len(records), worker, np.int32), hashes, records.timestamps / 1000, done))

    def done(self) -> dict[int, int]:
        """Offset up to which each worker is done by now."""
        now = time.time()
        return {
            worker: end - math.ceil(max(0.0, free - now) / self.service) for worker, (end, free) in self._last.items()
        }

    def save(self, path: Path) -> None:
        """Writes all of it."""
        worker, key, sent, done = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        np.savez(path, worker=worker, key=key, sent=sent, done=done)


class AsleepStage(WorkerStage):
    """The native worker stage with such workers."""

    def __init__(self, settings: WorkerSettings, notes: Notes) -> None:
        super().__init__(settings)
        self._notes = notes

    def _begin(self, owned: OwnedPartition, output_partitions: int) -> Flusher:
        return Asleep(self._settings, owned, output_partitions, self._notes)


async def work(settings: WorkerSettings, notes: Notes, path: Path, stop: asyncio.Event) -> None:
    """The worker process: tells on standard output how far each worker is, and writes all notes at the end."""
    runner = PartitionRunner(settings, "worker", settings.routed_topic, AsleepStage(settings, notes).work)

    async def report() -> None:
        while True:
            print(json.dumps({"ready": runner.ready, "done": notes.done(), "finished": notes.finished}), flush=True)
            await asyncio.sleep(_REPORT_SECONDS)

    reporting = asyncio.create_task(report())
    await runner.run(stop)
    reporting.cancel()
    notes.save(path)


# the source


class Source:
    """Sends a workload at a steady rate, and waits while a worker has too much to do."""

    def __init__(self, deployment: Deployment, producer: AIOKafkaProducer, stream: Workload, rate: float) -> None:
        self._deployment = deployment
        self._producer = producer
        self._keys = _keys(stream)
        self._rate = rate
        self._full = False
        self.done: dict[str, int] = {}
        """Offset up to which each worker is done, by its number."""
        self.finished = 0
        """Events that workers have done."""
        self.sent = 0
        self.waited = 0.0

    @property
    def left(self) -> int:
        """Events that are on their way, or wait for their workers."""
        return self.sent - self.finished

    async def rest(self) -> None:
        """Returns when all that was sent is done, so that what came at the start isn't in the figures."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if self.left <= 0:
                return
            await asyncio.sleep(_REPORT_SECONDS)

    async def send(self, seconds: float) -> None:
        """Sends for so many seconds, waits among them."""
        end, due = time.monotonic() + seconds, time.monotonic()
        watching = asyncio.create_task(self._watch())
        while (now := time.monotonic()) < end:
            if self._full:
                await asyncio.sleep(_STEP)
                self.waited += time.monotonic() - now
                due = time.monotonic()
                continue
            count = max(0, min(int((now - due) * self._rate), int(self._rate / 10)))
            due = max(due + count / self._rate, now - 0.1)
            await self._write([next(self._keys) for _ in range(count)])
            await asyncio.sleep(_STEP)
            if watching.done():
                watching.result()
        watching.cancel()

    async def _watch(self) -> None:
        """Looks how much each worker has to do."""
        topic, admin = self._deployment.settings.routed_topic, self._deployment.admin
        partitions = [TopicPartition(topic, number) for number in await partitions_of(admin, topic)]
        async with AIOKafkaConsumer(bootstrap_servers=self._deployment.settings.bootstrap_servers) as probe:
            while True:
                ends = await probe.end_offsets(partitions)
                fullest = max(end - self.done.get(str(tp.partition), 0) for tp, end in ends.items())
                self._full = fullest > QUEUE or self.left > QUEUE * len(partitions) + self._rate * _WAY_SECONDS
                await asyncio.sleep(_REPORT_SECONDS / 2)

    async def _write(self, keys: list[bytes]) -> None:
        now, topic = int(time.time() * 1000), self._deployment.settings.events_topic
        for partition in range(PARTITIONS):
            batch = self._producer.create_batch()
            for key in keys[partition::PARTITIONS]:
                batch.append(timestamp=now, key=key, value=b"x")
            if batch.record_count():
                await self._producer.send_batch(batch, topic, partition=partition)
        self.sent += len(keys)


def _keys(stream: Workload) -> Iterator[bytes]:
    for chunk in stream.chunks():
        yield from (stream.table.name(number) for number in chunk.keys.tolist())


# a run


async def measure(broker: EmbeddedBroker, name: str, grouping: str, options: argparse.Namespace, folder: Path) -> Row:
    """One grouping on one workload, with an application of its own."""
    rate = LOAD * options.workers / options.service
    length = options.warm_up + options.seconds
    settings = {"interval": max(1, int(rate * options.interval)), "keys": 10_000} if name == MOVING else None
    stream = workload(name, int(rate * (length + 5)), 1, settings)
    application = f"balance-{uuid.uuid4().hex[:8]}"
    job = json.dumps({"window": f"{options.interval}s", "aggregates": [{"name": "events", "op": "count"}]})
    shape = Shape(PARTITIONS, options.workers)
    async with Deployment(broker.bootstrap_servers, application, folder / application, job, shape=shape) as deployment:
        deployment.start(
            "router-0",
            workers=options.workers,
            grouping=grouping,
            interval=options.interval,
            linger=0.02,
            max_batch=5000,
        )
        path = folder / f"{application}.npz"
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            source = Source(deployment, producer, stream, rate)
            async with workers(deployment, job, source, options, path):
                await is_up(deployment)
                await source.send(options.warm_up)
                await source.rest()
                await source.send(_PAUSE_SECONDS)
                begin, sent, waited = time.time(), source.sent, source.waited
                await source.send(options.seconds)
                end, sent, waited = time.time(), source.sent - sent, source.waited - waited
    offered = rate * (end - begin - waited)
    if sent < _LEAST_SENT * offered and waited < _MUCH * (end - begin):
        print(f"{name}, {grouping}: only {sent / offered:.0%} of the load could be offered; use a longer --service-ms")
    return row_of(name, grouping, np.load(path), (begin, end), waited, options)


@asynccontextmanager
async def workers(
    deployment: Deployment, job: str, source: Source, options: argparse.Namespace, path: Path
) -> AsyncIterator[None]:
    """The worker process, once it has all partitions; at the end its notes are written."""
    environment = {
        **os.environ,
        **environment_of(deployment.settings),
        "KEYGROUPING_JOB": job,
        "KEYGROUPING_WORKER_BATCH_RECORDS": "200",
    }
    command = [sys.executable, __file__, "--worker", str(path), "--service-ms", str(1000 * options.service)]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    ready = asyncio.Event()

    async def listen() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b'{"ready"'):
                said = json.loads(line)
                source.done, source.finished = said["done"], said["finished"]
                if said["ready"]:
                    ready.set()

    listening = asyncio.create_task(listen())
    try:
        await asyncio.wait_for(ready.wait(), 60)
        yield
    finally:
        process.terminate()
        await process.wait()
        await listening


async def is_up(deployment: Deployment) -> None:
    """Returns when the router has its partitions."""
    async with httpx.AsyncClient() as client:

        async def answers() -> bool:
            lines = deployment.log("router-0").read_text().splitlines()
            urls = [line.partition("listening on ")[2].split()[0] for line in lines if "listening on " in line]
            return bool(urls) and (await client.get(f"{urls[0].rstrip('/')}/readyz")).is_success

        await deployment.until(answers)


def row_of(
    name: str,
    grouping: str,
    notes: Mapping[str, Any],
    span: tuple[float, float],
    waited: float,
    options: argparse.Namespace,
) -> Row:
    """The figures of the events that were done in this span of time."""
    begin, end = span
    worker, key, sent, done = (notes[column] for column in ("worker", "key", "sent", "done"))
    inside = (done >= begin) & (done < end)
    latency = 1000 * (done - sent)[inside]
    rate = np.count_nonzero(inside) / (end - begin)
    return Row(
        1000 * options.service,
        name,
        grouping,
        float(rate),
        float(rate * options.service / options.workers),
        float(np.percentile(latency, 50)),
        float(np.percentile(latency, 99)),
        window_cost(worker, key, sent, span, options.interval),
        waited / (end - begin),
    )


def window_cost(
    worker: NDArray[np.int32],
    key: NDArray[np.int64],
    sent: NDArray[np.float64],
    span: tuple[float, float],
    seconds: float,
) -> float:
    """DIST_COST of the windows that lie in the span: distinct pairs of key and worker over distinct keys."""
    window = np.floor(sent / seconds).astype(np.int64)
    inside = (window * seconds >= span[0]) & ((window + 1) * seconds <= span[1])
    if not inside.any():
        return float("nan")
    rows = np.stack([window[inside], key[inside], worker[inside]], axis=1)
    pairs = np.unique(rows, axis=0)
    return len(pairs) / len(np.unique(pairs[:, :2], axis=0))


# what is written


def text_of(rows: Sequence[Row], options: argparse.Namespace) -> str:
    """The page: all rows, and the published figures beside those measured."""
    lines = [
        "# Live balance",
        "",
        f"`python benchmarks/live_balance.py`: W = {options.workers} native workers on an embedded broker, asleep for "
        f"the service time of each event. {LOAD:.0%} of what they can do is offered; sources wait while a worker has "
        f"more than {QUEUE:,} events to do. {options.seconds:g} s after {options.warm_up:g} s of warm-up, intervals "
        f"and windows of {options.interval:g} s, all on {os.cpu_count()} cores. Efficiency is throughput over what all "
        "workers can do, latency from sending to the end of the work.",
        "",
    ]
    for service_ms in options.service_ms:
        lines += section([row for row in rows if row.service_ms == service_ms], service_ms, options.workers)
    return "\n".join([*lines, "All figures: [CSV](live-balance.csv).", ""])


def section(rows: Sequence[Row], service_ms: float, workers: int) -> list[str]:
    """All rows of one service time."""
    ratios = ratios_of(rows)
    return [
        f"## {service_ms:g} ms per event: {1000 * workers / service_ms:,.0f} events/s",
        "",
        f"A worker's queue alone is worth {QUEUE * service_ms:,.0f} ms.",
        "",
        "| workload | grouping | events/s | efficiency | over shuffle | p50 ms | p99 ms | DIST_COST | goal |",
        "|---|---|---|---|---|---|---|---|---|",
        *(line_of(row, ratios.get((row.workload, row.grouping))) for row in rows),
        "",
        *published([row for row in rows if row.workload == TABLE_3 and row.grouping in PUBLISHED], ratios),
        f"![Efficiency and latency]({picture(service_ms)})",
        "",
    ]


def line_of(row: Row, ratio: float | None) -> str:
    """One row of the table."""
    return (
        f"| {row.workload} | {row.grouping} | {row.events_per_second:,.0f} | {row.efficiency:.3f} | "
        f"{number(ratio)} | {row.p50_ms:.0f} | {row.p99_ms:.0f} | {row.dist_cost:.3f} | {goal_of(row, ratio)} |"
    )


def published(rows: Sequence[Row], ratios: Mapping[tuple[str, str], float]) -> list[str]:
    """What was published of a workload, beside what was measured."""
    if not rows:
        return []
    lines = [
        "68 % skew, W = 10, beside Dynamic Key Grouping's table 3 (throughput over shuffle's, DIST_COST):",
        "",
        "| grouping | published | here | published DIST_COST | here |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        throughput, cost = PUBLISHED[row.grouping]
        here = number(ratios.get((row.workload, row.grouping)))
        lines.append(f"| {row.grouping} | {throughput:.2f} | {here} | {cost:.3f} | {row.dist_cost:.3f} |")
    return [*lines, ""]


def picture(service_ms: float) -> str:
    """The name of a section's picture."""
    return f"live-balance-{service_ms:g}ms.png"


def ratios_of(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Each throughput over that of shuffle on the same workload, where that was measured."""
    shuffled = {row.workload: row.events_per_second for row in rows if row.grouping == "shuffle"}
    known = [row for row in rows if row.workload in shuffled]
    return {(row.workload, row.grouping): row.events_per_second / shuffled[row.workload] for row in known}


def goal_of(row: Row, ratio: float | None) -> str:
    """Whether level-fill is where it should be."""
    if row.grouping != "level-fill" or ratio is None:
        return ""
    return "reached" if ratio >= GOAL and row.dist_cost <= GOAL_COST else "**missed**"


def number(value: float | None) -> str:
    """With two digits, or a dash."""
    return "–" if value is None else f"{value:.2f}"


def write(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """The page, the picture and the figures."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "live-balance.md").write_text(text_of(rows, options), "utf-8")
    with (options.output / "live-balance.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, vars(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(vars(row) for row in rows)
    names = tuple(dict.fromkeys(row.workload for row in rows))
    for service_ms in options.service_ms:
        part = [row for row in rows if row.service_ms == service_ms]
        panels = [panel(part, names, "efficiency", "efficiency"), panel(part, names, "p99_ms", "p99 latency, ms")]
        draw(panels, options.output / picture(service_ms))


def panel(rows: Sequence[Row], names: tuple[str, ...], column: str, label: str) -> Panel:
    """Bars of all groupings for each workload."""
    lines = []
    for grouping in dict.fromkeys(row.grouping for row in rows):
        own = [row for row in rows if row.grouping == grouping]
        places = tuple(float(names.index(row.workload)) for row in own)
        lines.append(Line(grouping, places, tuple(float(getattr(row, column)) for row in own)))
    short = tuple(name.removeprefix("country-").replace("moving-hot-key", "moving") for name in names)
    return Panel(label, "workload", label, tuple(lines), categories=short)


async def contest(options: argparse.Namespace) -> list[Row]:
    """All groupings on all workloads with all service times, in turn."""
    cells = list(itertools.product(options.service_ms, options.workload or WORKLOADS, options.grouping or GROUPINGS))
    rows = []
    with tempfile.TemporaryDirectory() as place, EmbeddedBroker(Path(place) / "broker") as broker:
        for service_ms, name, grouping in [cells[0], *cells]:  # the first one also for a broker that is warm
            one = argparse.Namespace(**vars(options), service=service_ms / 1000)
            rows.append(await measure(broker, name, grouping, one, Path(place)))
            print(progress(rows[-1]), flush=True)
    return rows[1:]


def progress(row: Row) -> str:
    """A line to look at while the others are measured."""
    return (
        f"{row.service_ms:g} ms {row.workload:<16} {row.grouping:<11} efficiency {row.efficiency:.3f}  "
        f"p50 {row.p50_ms:5.0f} ms  p99 {row.p99_ms:5.0f} ms  DIST_COST {row.dist_cost:.3f}  waited {row.waited:.0%}"
    )


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--service-ms", type=float, action="append", help=f"default: {', '.join(map(str, SERVICE_MS))}")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--interval", type=int, default=5, help="of plans and windows, in seconds")
    parser.add_argument("--grouping", action="append", help=f"default: {', '.join(GROUPINGS)}")
    parser.add_argument("--workload", action="append", help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--worker", type=Path, help="run the worker process")
    options = parser.parse_args()
    options.service_ms = options.service_ms or SERVICE_MS
    if options.worker:
        settings, notes = load(WorkerSettings), Notes(options.service_ms[0] / 1000)
        return run(lambda stop: work(settings, notes, options.worker, stop), settings)
    rows = asyncio.run(contest(options))
    write(rows, options)
    print(text_of(rows, options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
