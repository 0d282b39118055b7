"""What an app's handlers get done: beside what order allows, a loop written by hand, and Java's Parallel Consumer.

    python benchmarks/handlers.py [--seconds 5] [--only import,sleep,burn,processes,empty,hang,memory] [--java]
    python benchmarks/handlers.py --only steady --seconds 3600
    python benchmarks/handlers.py --only shared --seconds 60 [--members 12] [--lanes 16] [--call 0.005] [--ways split]

One run with an embedded broker, 8 partitions, Zipf 1 over 10,000 keys, 64 lanes. Each row is a process of its own on
the same records, one after another, so that only ratios matter. Order allows what the hottest key's own calls take
one after another, or all calls on 64 lanes, whichever is longer; calls are taken as long as they were measured. Calls
that burn are bounded by their core: told is their part of the process's CPU time, and with `processes` what the member
itself takes for each. So a busy machine spoils neither
that nor what an empty handler or the import costs; the rest needs an idle one. `--java` fetches Java's
`io.confluent.parallelconsumer:parallel-consumer-core` and needs a JDK. `steady` tells how a member's memory goes while
it handles all it can, one event in ten of a key of its own: at least once, and exactly once with an output for each.
`shared` is told of by `shared_keys.py`; its way `share`, a share group of Kafka's, needs a JDK, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import shared_keys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupCoordinatorNotAvailableError
from keygrouping_app import App, Event, Output
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.jars import CENTRAL, default_jars_dir, require_jars

PARTITIONS = 8
KEYS = 10_000
LANES = 64
CORES = os.cpu_count() or 1
HOT = "k0"
AHEAD = 50_000
"""Events that wait in each topic of a run that is steady."""
START_SECONDS = 1.0
"""From the first call on: by then what was written before it is handled."""
JAVA = Path(__file__).with_name("ParallelConsumer.java")
JARS = (
    "io/confluent/parallelconsumer/parallel-consumer-core/0.5.3.3/parallel-consumer-core-0.5.3.3.jar",
    "io/micrometer/micrometer-core/1.12.2/micrometer-core-1.12.2.jar",
    "io/micrometer/micrometer-commons/1.12.2/micrometer-commons-1.12.2.jar",
    "io/micrometer/micrometer-observation/1.12.2/micrometer-observation-1.12.2.jar",
    "org/xerial/snappy/snappy-java/1.1.10.5/snappy-java-1.1.10.5.jar",
    "com/github/luben/zstd-jni/1.5.5-4/zstd-jni-1.5.5-4.jar",
    # Without these no call's end is taken note of, and no error told of.
    *(
        f"pl/tlinkowski/unij/pl.tlinkowski.unij.{part}/0.1.3/pl.tlinkowski.unij.{part}-0.1.3.jar"
        for part in ("api", "service.api", "service.collect.jdk8", "service.misc.jdk8")
    ),
)


@dataclass(frozen=True)
class Run:
    """What one process is to do: `kind` is the handler's, `way` who calls it, see `WAYS`."""

    servers: str
    topic: str
    events: int
    kind: str
    seconds: float = 0.0
    way: str = "app"
    batch: bool = False
    ordered: bool = True
    hang: bool = False
    max_bytes: int = 64 << 20

    @property
    def topics(self) -> tuple[str, str, str]:
        """Of a run that is steady: read at least once, read exactly once, written."""
        return self.topic, f"{self.topic}-once", f"{self.topic}-out"


class Meter:
    """What a run's handlers took, from the first call on."""

    def __init__(self, events: int, done: Callable[[], None]) -> None:
        self._events = events
        self._done = done
        self._lock = threading.Lock()
        self._began = self._cpu = 0.0
        self._half = 0
        self.count = 0
        self.busy = 0.0
        self.hottest = 0.0
        self._steady = 0.0
        self._waits: list[float] = []

    def take(self, count: int) -> None:
        """That many events were handled."""
        with self._lock:
            self._take(count)

    def wait(self, at: float) -> None:
        """An event of that time (s since 1970) was handled; those that came while the member started say nothing."""
        now = time.time()
        self._steady = self._steady or now + START_SECONDS
        if at >= self._steady:
            self._waits.append(now - at)

    def _take(self, count: int) -> None:
        if not self.count:
            self._began, self._cpu = time.perf_counter(), time.process_time()
        self.count += count
        if not self._half and self.count * 2 >= self._events:
            self._half = _peak_kb()
        if self.count >= self._events:
            self._tell()

    def _tell(self) -> None:
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        waits = sorted(self._waits)
        told = {
            "rate": self._events / seconds,
            "cpu": 1e6 * cpu / self._events,
            "allowed": self._events / max(self.hottest, self.busy / LANES, 1e-9),
            "p99": 1e3 * waits[len(waits) * 99 // 100] if waits else 0.0,
            "half_mb": self._half / 1024,
            "peak_mb": _peak_kb() / 1024,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        self.count = -(1 << 60)
        self._done()


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def handler_of(run: Run, meter: Meter) -> Callable[[str, int], Awaitable[None]]:
    """What is done for an event, given its key and its time (ms)."""

    async def work(key: str, at: int) -> None:
        if run.hang and key == HOT:
            await asyncio.sleep(3600)
        began = time.perf_counter()
        if run.kind == "sleep":
            await asyncio.sleep(run.seconds)
        else:
            end = time.thread_time() + run.seconds
            while time.thread_time() < end:
                pass
        took = time.perf_counter() - began
        meter.busy += took
        if key == HOT:
            meter.hottest += took
        elif run.kind == "sleep":
            meter.wait(at / 1000)
        meter.take(1)

    return work


def dead(topic: str) -> str:
    """Where the dead letters of a topic's app go; there are none."""
    return f"{topic}-dead"


def run_app(run: Run) -> None:
    """An app, until all events are handled."""
    # What hangs would be waited for.
    meter = Meter(run.events, lambda: os._exit(0) if run.hang else signal.raise_signal(signal.SIGTERM))
    app = App(
        f"{run.topic}-app-{time.time_ns()}", brokers=run.servers, dead_letters=dead(run.topic), max_bytes=run.max_bytes
    )
    work = handler_of(run, meter)
    if run.kind == "empty" and run.batch:

        @app.on(run.topic, batch=True, order="key" if run.ordered else None)
        def take(events: list[Event]) -> None:
            meter.take(len(events))

    elif run.kind == "empty":

        @app.on(run.topic, concurrency=LANES)
        async def count(_: Event) -> None:
            meter.take(1)

    else:

        @app.on(run.topic, concurrency=LANES, timeout=7200)
        async def handle(event: Event) -> None:
            await work(event.key, event.time)

    app.run()


def run_steady(run: Run) -> None:
    """An app that handles what comes until it is stopped."""
    plain, once, out = run.topics
    app = App(run.topic, brokers=run.servers, dead_letters=out, max_bytes=run.max_bytes)

    @app.on(plain, concurrency=LANES)
    async def take(_: Event) -> None:
        pass

    @app.on(once, concurrency=LANES, exactly_once=True)
    async def give(event: Event) -> Output:
        return Output(out, 1, key=event.key)

    app.run()


async def keep_ahead(run: Run) -> None:
    """Writes so that there is always something to handle, and never much."""
    chance, number = random.Random(1), 0
    weights = list(accumulate(1 / (rank + 1) for rank in range(KEYS)))
    admin, producer = (
        AIOKafkaAdminClient(bootstrap_servers=run.servers),
        AIOKafkaProducer(bootstrap_servers=run.servers),
    )
    await admin.start()
    await producer.start()
    written = dict.fromkeys(run.topics[:2], 0)
    while True:
        done = Counter[str]()
        with suppress(GroupCoordinatorNotAvailableError):  # at first there is none
            for tp, offset in (await admin.list_consumer_group_offsets(run.topic)).items():
                done[tp.topic] += offset.offset
        for topic in written:
            while written[topic] < done[topic] + AHEAD:
                batch, size = producer.create_batch(), 0
                while batch.append(timestamp=None, key=_mixed_key(chance, weights, number), value=b"x" * 100):
                    number, size = number + 1, size + 1
                await producer.send_batch(batch, topic, partition=number % PARTITIONS)
                written[topic] += size
        await asyncio.sleep(0.1)


def _mixed_key(chance: random.Random, weights: Sequence[float], number: int) -> bytes:
    """One in ten stands for itself alone; the others are by Zipf's law."""
    return b"n%d" % number if number % 10 == 0 else b"k%d" % bisect_left(weights, chance.random() * weights[-1])


async def marks() -> AsyncIterator[list[float]]:
    """When the first call in this process began and the last one ended; told to the file in the environment."""
    found: list[float] = []
    yield found
    if found:
        _tell_marks(found)


def _tell_marks(found: list[float]) -> None:
    with open(os.environ["MARKS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


def burn(_: Event, marks: list[float]) -> None:
    """Takes a core for the time in the environment."""
    began, end = time.perf_counter(), time.thread_time() + float(os.environ["BURN"])
    while time.thread_time() < end:
        pass
    marks[:] = [marks[0] if marks else began, time.perf_counter()]


def run_processes(run: Run) -> None:
    """An app of which the handler runs in as many processes as there are cores."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "marks"
        os.environ.update(MARKS=str(path), BURN=str(run.seconds))
        name = f"{run.topic}-processes-{time.time_ns()}"
        app = App(name, brokers=run.servers, dead_letters=dead(run.topic), until="latest")
        app.lifespan(marks)
        app.on(run.topic, processes=CORES)(burn)
        cpu = time.process_time()
        app.run()
        cpu = time.process_time() - cpu
        found = [json.loads(line) for line in path.read_text().splitlines()]
    seconds = max(last for _, last in found) - min(first for first, _ in found)
    print(json.dumps({"rate": run.events / seconds, "cpu": 1e6 * cpu / run.events}), flush=True)


async def run_loop(run: Run) -> None:
    """What people write by hand: a lane by the key's hash. It commits nothing, so it is faster than they could be."""
    done = asyncio.Event()
    work = handler_of(run, Meter(run.events, done.set))
    lanes: list[asyncio.Queue[Any]] = [asyncio.Queue(1000) for _ in range(LANES)]

    async def lane(queue: asyncio.Queue[Any]) -> None:
        while True:
            record = await queue.get()
            await work(record.key.decode(), record.timestamp)
            queue.task_done()

    consumer = AIOKafkaConsumer(
        run.topic,
        bootstrap_servers=run.servers,
        group_id=f"{run.topic}-loop-{time.time_ns()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    tasks = [asyncio.create_task(lane(queue)) for queue in lanes]
    reading = asyncio.create_task(_read_into(consumer, lanes))
    await done.wait()
    for task in (reading, *tasks):
        task.cancel()
    await consumer.stop()


async def _read_into(consumer: AIOKafkaConsumer, lanes: Sequence[asyncio.Queue[Any]]) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=100, max_records=2000)).values():
            for record in records:
                await lanes[zlib.crc32(record.key) % LANES].put(record)


def measure(run: Run) -> dict[str, float]:
    """Runs it in a process of its own."""
    command = [sys.executable, __file__, "--run", json.dumps(asdict(run))]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=600, check=True)
    told: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return told


def measure_java(run: Run, jars: Path) -> float:
    """Events per second of Java's Parallel Consumer."""
    spark = [jar for jar in require_jars("spark", default_jars_dir()) if "kafka-clients" in jar.name]
    others = [jar for jar in require_jars("broker", default_jars_dir()) if "kafka-clients" not in jar.name]
    path = ":".join(map(str, [*sorted(jars.glob("*.jar")), *spark, *others]))
    given = (run.servers, run.topic, str(run.events), run.kind, str(run.seconds), str(LANES))
    command = ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, str(JAVA), *given]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=600, check=True, text=True)
    return float(found.stdout.split()[-1])


def fetch_jars(folder: Path) -> None:
    """Brings Java's Parallel Consumer and what it needs beyond the jars that are there."""
    for jar in JARS:
        urllib.request.urlretrieve(CENTRAL + jar, folder / Path(jar).name)


def keys_of(count: int) -> list[bytes]:
    """By Zipf's law with exponent 1."""
    weights, chance = list(accumulate(1 / (rank + 1) for rank in range(KEYS))), random.Random(1)
    return [b"k%d" % bisect_left(weights, chance.random() * weights[-1]) for _ in range(count)]


async def preload(servers: str, topic: str, keys: Sequence[bytes], value: bytes) -> None:
    """Writes a topic, each key to its partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(dead(topic), 1, 1)])
    await admin.close()
    rows: defaultdict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        rows[zlib.crc32(key) % PARTITIONS].append(key)
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 19)
    await producer.start()
    now = int(time.time() * 1000)
    for partition, mine in rows.items():
        batch = producer.create_batch()
        for key in mine:
            if batch.append(timestamp=now, key=key, value=value) is None:
                await producer.send_batch(batch, topic, partition=partition)
                batch = producer.create_batch()
                batch.append(timestamp=now, key=key, value=value)
        await producer.send_batch(batch, topic, partition=partition)
    await producer.stop()


async def write_live(servers: str, topic: str, events: int, rate: float) -> None:
    """Writes at a rate, so that what handlers wait for can be told."""
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    began = time.perf_counter()
    for number, key in enumerate(keys_of(events)):
        if (pause := began + number / rate - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        await producer.send(topic, b"1", key=key, partition=zlib.crc32(key) % PARTITIONS)
    await producer.stop()


def importing() -> str:
    """What it takes in a fresh interpreter, whose own start does not count; the files have been read before."""
    code = "import time; began = time.process_time(); import keygrouping.app; print(time.process_time() - began)"
    found = [float(subprocess.check_output([sys.executable, "-c", code], timeout=600)) for _ in range(6)]
    return f"import keygrouping.app: {statistics.median(found[1:]):.2f} s of CPU"


def throughput(servers: str, kind: str, seconds: float, options: argparse.Namespace, jars: Path | None) -> str:
    """One row: against what order allows, and beside the others."""
    share = 1 / sum(1 / (rank + 1) for rank in range(KEYS))
    most = min(LANES / seconds, 1 / (seconds * share)) if kind == "sleep" else 1 / seconds
    keys = keys_of(max(500, int(options.seconds * most)))
    run = Run(servers, f"{kind}-{seconds * 1000:g}", len(keys), kind, seconds)
    asyncio.run(preload(servers, run.topic, keys, b'{"n":1}'))
    app, loop = measure(run), measure(replace(run, way="loop"))
    # Calls that burn share one core, and have what is left of it.
    part = app["rate"] / app["allowed"] if kind == "sleep" else 1e6 * seconds / app["cpu"]
    line = (
        f"{kind} {seconds * 1000:g} ms: {app['rate']:8,.0f}/s, {part:.2f} of what order and the core allow, "
        f"{app['rate'] / loop['rate']:.2f} x the loop by hand"
    )
    if kind == "burn":
        line += f" ({loop['cpu'] / app['cpu']:.2f} x by CPU time)"
    return line if jars is None else f"{line}, {app['rate'] / measure_java(run, jars):.2f} x Java's Parallel Consumer"


def in_processes(servers: str, seconds: float, options: argparse.Namespace) -> str:
    """One row: calls that burn, in processes."""
    keys = keys_of(max(2000, int(options.seconds / seconds)))
    run = Run(servers, f"processes-{seconds * 1000:g}", len(keys), "burn", seconds, way="processes")
    asyncio.run(preload(servers, run.topic, keys, b'{"n":1}'))
    told = measure(run)
    return (
        f"burn {seconds * 1000:g} ms in {CORES} processes: {told['rate']:8,.0f}/s, "
        f"{told['rate'] * seconds / CORES:.2f} of what {CORES} idle cores allow, {told['cpu']:.1f} µs of the member's "
        "CPU per event"
    )


def overhead(servers: str, options: argparse.Namespace) -> list[str]:
    """What an empty handler costs."""
    events = int(options.seconds * 60_000)
    asyncio.run(preload(servers, "empty", keys_of(events), b"x" * 100))
    asyncio.run(preload(servers, "few", [b"k%d" % (n % 64) for n in range(events)], b"x" * 100))
    alone = [key for key in keys_of(PARTITIONS * events) if zlib.crc32(key) % PARTITIONS == 0][:events]
    asyncio.run(preload(servers, "one", alone, b"x" * 100))
    run = Run(servers, "empty", events, "empty")
    rows = {
        "async": run,
        "plain with batch, 10,000 keys": replace(run, batch=True),
        "plain with batch, 64 equal keys": replace(run, batch=True, topic="few"),
        "plain with batch, no order": replace(run, batch=True, ordered=False),
        "plain with batch, all in one partition": replace(run, batch=True, topic="one", events=len(alone)),
    }
    found = {name: measure(each) for name, each in rows.items()}
    return [
        f"empty handler, {name}: {told['cpu']:.1f} µs of CPU per event, {told['rate']:,.0f}/s"
        for name, told in found.items()
    ]


def hanging(servers: str, options: argparse.Namespace) -> str:
    """What the others wait while the hottest key hangs."""
    p99 = {}
    for hang in (False, True):
        topic, rate = f"hang-{hang}", 400.0
        count = int(max(20.0, options.seconds) * rate)
        keys = keys_of(count)
        asyncio.run(preload(servers, topic, [], b""))
        cold = sum(key != HOT.encode() for key in keys) if hang else count
        command = [sys.executable, __file__, "--live", json.dumps([servers, topic, count, rate])]
        with subprocess.Popen(command) as writer:
            p99[hang] = measure(Run(servers, topic, cold, "sleep", 0.005, hang=hang))["p99"]
            writer.wait()
    return f"a key hangs: p99 of the others {p99[True]:.1f} ms, {p99[True] / p99[False]:.2f} x that without"


def memory(servers: str, options: argparse.Namespace) -> str:
    """What a member holds at its highest."""
    events = int(options.seconds * 20_000)
    asyncio.run(preload(servers, "memory", keys_of(events), b"x" * 1000))
    told = measure(Run(servers, "memory", events, "empty", max_bytes=8 << 20))
    size = events * 1000 >> 20
    return f"memory: {told['peak_mb']:.0f} MB at most, {told['half_mb']:.0f} MB halfway through {size} MB of events"


async def steady(servers: str, options: argparse.Namespace) -> str:
    """How the memory of a member goes that handles all it can."""
    run = Run(servers, "steady", 0, "empty", way="steady", max_bytes=8 << 20)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    kept = {"segment.bytes": str(16 << 20), "retention.bytes": str(64 << 20)}
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs=kept) for topic in run.topics])
    command = [sys.executable, __file__, "--run"]
    both = [
        await asyncio.create_subprocess_exec(*command, json.dumps(asdict(each)))
        for each in (run, replace(run, way="ahead"))
    ]
    began, sizes = time.monotonic(), []
    try:
        while (now := time.monotonic() - began) < options.seconds:
            await asyncio.sleep(min(10.0, options.seconds / 20))
            sizes.append((now / 3600, psutil.Process(both[0].pid).memory_info().rss / 1e6))
        done = sum(each.offset for each in (await admin.list_consumer_group_offsets(run.topic)).values())
    finally:
        for process in both:
            process.kill()
            await process.wait()
    await admin.close()
    late = sizes[len(sizes) // 6 :]
    slope, _ = statistics.linear_regression(*zip(*late, strict=True))
    return (
        f"memory over {options.seconds / 60:.0f} min: {late[0][1]:.1f} MB after a sixth of it, {late[-1][1]:.1f} MB at "
        f"its end, {max(size for _, size in sizes):.1f} MB at most, {slope:+.1f} MB an hour, {done:,} events"
    )


def main() -> None:
    """Prints one row after another."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long each row takes")
    parser.add_argument("--only", default="import,sleep,burn,processes,empty,hang,memory")
    parser.add_argument("--java", action="store_true", help="beside Java's Parallel Consumer")
    parser.add_argument("--members", type=int, default=12, help="of `shared`")
    parser.add_argument("--call", type=float, default=0.005, help="seconds of a call, of `shared`")
    parser.add_argument("--lanes", type=int, default=16, help="of each member, of `shared`")
    parser.add_argument("--ways", default="split,lanes,serial", help="of `shared`; also merged, state, share")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--live", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run = Run(**json.loads(options.run))
        WAYS[run.way](run)
    elif options.live:
        asyncio.run(write_live(*json.loads(options.live)))
    else:
        _all(options)


def _all(options: argparse.Namespace) -> None:
    wanted = options.only.split(",")
    properties = {
        "log.retention.check.interval.ms": "10000",  # of what is written for `steady`
        "group.share.max.size": "1000",  # of `share`: consumers, of which a member has many
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker", properties=properties) as broker,
    ):
        jars = Path(folder) / "jars" if options.java else None
        if jars is not None:
            jars.mkdir()
            fetch_jars(jars)
        servers = broker.bootstrap_servers
        if "import" in wanted:
            print(importing(), flush=True)
        for kind, times in (("sleep", (0.001, 0.005, 0.05)), ("burn", (0.0001, 0.001))):
            for seconds in times if kind in wanted else ():
                print(throughput(servers, kind, seconds, options, jars), flush=True)
        for seconds in (0.0001, 0.001) if "processes" in wanted else ():
            print(in_processes(servers, seconds, options), flush=True)
        if "empty" in wanted:
            print(*overhead(servers, options), sep="\n", flush=True)
        if "hang" in wanted:
            print(hanging(servers, options), flush=True)
        if "memory" in wanted:
            print(memory(servers, options), flush=True)
        _long(servers, options)


def _long(servers: str, options: argparse.Namespace) -> None:
    wanted = options.only.split(",")
    if "steady" in wanted:
        print(asyncio.run(steady(servers, options)), flush=True)
    for row in shared_keys.table(servers, options) if "shared" in wanted else ():
        print(row, flush=True)


WAYS: dict[str, Callable[[Run], None]] = {
    "app": run_app,
    "processes": run_processes,
    "loop": lambda run: asyncio.run(run_loop(run)),
    "steady": run_steady,
    "ahead": lambda run: asyncio.run(keep_ahead(run)),
}

if __name__ == "__main__":
    main()
