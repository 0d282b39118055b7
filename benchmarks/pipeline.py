"""End-to-end speed and latency of both runners, beside a plain Spark aggregation straight from `events`.

    python benchmarks/pipeline.py [--events 500000] [--rate 2000] [--seconds 30] [--warm-up 60] [--runners native ...]
    python benchmarks/pipeline.py --micros 50 --hot 0.8 --rate 0 --runners native spark

Throughput: a backlog, from when a router says that it is ready, before it has joined its group, until all results are
final (plain Spark: all batches are written), without the start of processes; that a JVM compiles what it runs for the
first time is in it. Latency: a steady rate, after a warm-up; from an event's sending to the partial that holds it, and
to the final result of its window (the first and the last event of each). All contestants share one broker, in turn;
`combine` is the native runner without a router. Below the latencies stands where the time of a result goes: what each
window has passed after its end, and the phases of Spark's micro-batches with the steps of `addBatch` (see
docs/metrics.md).
`--events 0` measures latencies only, `--rate 0` rates only.

`--micros` adds an aggregate of a user's own with so much Python per event, plain Spark a Python UDF with the same
loop; `--hot` gives one key this share, and deals events to the topic's partitions by key, and routing is by level-fill.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer
from breakdown import Windows, batch_lines, spent_by, watermark_of
from costly import STEPS, steps_of
from keygrouping.partial import Partial, Result
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Event, Shape
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_service.records.batches import partition_of
from keygrouping_spark.settings import SparkSettings

NATIVE = ["worker-0", "worker-1", "aggregator-0"]
JAVA = {"spark-0": {"java_options": SparkSettings.model_fields["java_options"].default}}
"""The job's own; a deployment of tests has options with which Spark starts soon and computes slowly."""
STAGES = {"native": NATIVE, "combine": NATIVE, "spark": ["spark-0"]}
PARTITIONS = 4
_LISTENING = re.compile(r"listening on (http://\S+)")
JOB = {
    "window": "5s",
    "lateness": "0s",
    "aggregates": [
        {"name": "events", "op": "count"},
        {"name": "first", "op": "min", "field": "sent"},
        {"name": "last", "op": "max", "field": "sent"},
    ],
}


@dataclass
class Usage:
    """CPU seconds and the most memory (MiB, resident) of a process with its children, between two looks."""

    processes: list[psutil.Process]
    before: float = 0.0
    peak: float = 0.0
    cpu: float = 0.0

    def begin(self) -> None:
        """Starts counting."""
        self.before = self._cpu()

    def look(self) -> None:
        """Takes the present figures; those of the look before stay when a process ends meanwhile."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.cpu = self._cpu() - self.before
            self.peak = max(self.peak, sum(process.memory_info().rss for process in self._all()) / 2**20)

    def _all(self) -> Iterator[psutil.Process]:
        for process in self.processes:
            yield process
            yield from process.children(recursive=True)

    def _cpu(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._all())


@dataclass
class Figures:
    """What was measured of one contestant."""

    name: str
    events_per_second: float | None = None
    to_partial: list[float] = field(default_factory=list)
    to_result: list[float] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    breakdown: list[str] = field(default_factory=list)

    def print(self) -> None:
        """One line, and one per process."""
        latency = [_percentiles(values) for values in (self.to_partial, self.to_result)]
        rate = "-" if self.events_per_second is None else f"{self.events_per_second:,.0f}"
        print(f"{self.name:<14}{rate:>12}{latency[0]:>22}{latency[1]:>22}")
        for name, usage in self.usage.items():
            print(f"    {name:<24}{usage.cpu:>8.1f} s CPU{usage.peak:>8.0f} MiB")
        for line in self.breakdown:
            print(f"    {line}")


def _percentiles(values: list[float]) -> str:
    if not values:
        return "-"
    p50, p99 = np.percentile(values, [50, 99])
    return f"{p50:.0f} / {p99:.0f}"


def events(count: int, hot: float | None = None) -> Iterator[Event]:
    """Skewed keys; the value tells when it was sent. `hot`: one key has this share, and the topic has each key in one
    partition."""
    chance = random.Random(1)
    for n in range(count):
        now = int(time.time() * 1000)
        if hot is None:
            key, partition = b"key-%d" % min(int(chance.paretovariate(0.8)), 1000), n % PARTITIONS
        else:
            key = b"key-%d" % (0 if chance.random() < hot else chance.randrange(1, 1001))
            partition = partition_of(key, PARTITIONS)
        yield Event(partition, key, b'{"sent":%d,"pad":"%s"}' % (now, b"x" * 60), now)


async def start(deployment: Deployment, runner: str, workers: int, grouping: str = "pkg") -> None:
    """Starts the stages, and when they are ready the router."""
    for name in STAGES[runner]:
        deployment.start(name, **JAVA.get(name, {}), **({"stages": "combine"} if runner == "combine" else {}))
    await ready(deployment, STAGES[runner])
    if runner != "combine":
        deployment.start("router-0", workers=workers, grouping=grouping, idle_timeout=3600)
        await ready(deployment, ["router-0"])


def urls_of(deployment: Deployment, names: list[str]) -> list[str]:
    """Addresses of those of these processes that have one by now."""
    logs = [deployment.log(name).read_text() for name in names]
    return [found[1] for found in map(_LISTENING.search, logs) if found]


async def ready(deployment: Deployment, names: list[str]) -> None:
    """Returns when all these processes say that they are ready."""
    async with httpx.AsyncClient() as client:

        async def are_ready() -> bool:
            answers = [await client.get(f"{url}/readyz") for url in urls_of(deployment, names)]
            return len(answers) == len(names) and all(answer.is_success for answer in answers)

        await deployment.until(are_ready)


def usage_of(deployment: Deployment) -> dict[str, Usage]:
    """Counters for every process of a deployment, started now."""
    counters = {name: Usage([psutil.Process(deployment.pid(name))]) for name in deployment.names}
    for counter in counters.values():
        counter.begin()
    return counters


async def throughput(deployment: Deployment, figures: Figures, runner: str, options: argparse.Namespace) -> None:
    """Events per second from the first routed event to the last final result."""
    count = options.events
    await deployment.write(events(count, options.hot))
    await start(deployment, runner, options.workers, "pkg" if options.hot is None else "level-fill")
    figures.usage = usage_of(deployment)

    began, done = time.monotonic(), 0
    if runner == "combine":
        # It has begun before it says that it is ready; what it has done by the first look at its commits doesn't count.
        await deployment.until(lambda: has_begun(deployment))
        began, done = time.monotonic(), await committed(deployment)
    await _watched(figures, deployment.is_routed)
    await deployment.finish()
    await _watched(figures, deployment.is_final)
    if done < count:
        figures.events_per_second = (count - done) / (time.monotonic() - began)
    else:
        print(f"{runner}: all events were read before the first look; give it more with --events", file=sys.stderr)


async def committed(deployment: Deployment) -> int:
    """How many events have been read by who reads them first."""
    return sum(entry.offset or 0 for entry in (await deployment.committed("router")).values())


async def has_begun(deployment: Deployment) -> bool:
    """Whether there are any."""
    return await committed(deployment) > 0


async def _watched(figures: Figures, condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        for usage in figures.usage.values():
            usage.look()
        await asyncio.sleep(0.1)


async def send(deployment: Deployment, rate: int, seconds: int) -> None:
    """Sends at a steady rate."""
    pause, stream = 0.02, events(rate * seconds)
    for _ in range(int(seconds / pause)):
        chunk = itertools.islice(stream, int(rate * pause))
        await asyncio.gather(deployment.write(chunk), asyncio.sleep(pause))


async def latency(deployment: Deployment, figures: Figures, rate: int, seconds: int) -> None:
    """Watches when partials and final results of a steady rate come."""
    settings, windows = deployment.settings, Windows(time.time() * 1000)
    consumer = AIOKafkaConsumer(
        settings.partials_topic,
        settings.results_topic,
        f"{settings.application}.progress",
        bootstrap_servers=settings.bootstrap_servers,
        isolation_level="read_committed",
        fetch_max_wait_ms=20,
    )
    drivers = urls_of(deployment, [name for name in deployment.names if name.startswith("spark-")])
    before = [await spent_by(url) for url in drivers]
    async with consumer:
        watching = [
            asyncio.create_task(_watch(consumer, deployment, figures, windows)),
            asyncio.create_task(windows.follow(deployment)),
        ]
        await send(deployment, rate, seconds)
        await asyncio.sleep(5)
        for task in watching:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    spent = [batch_lines(*pair) for pair in zip(before, [await spent_by(url) for url in drivers], strict=True)]
    figures.breakdown = [*windows.lines(), *itertools.chain(*spent)]


async def _watch(consumer: AIOKafkaConsumer, deployment: Deployment, figures: Figures, windows: Windows) -> None:
    """Takes the latencies of what was sent since `windows` began; those that the warm-up has begun do not count."""
    settings, since = deployment.settings, windows.since
    async for record in consumer:
        now = time.time() * 1000
        if record.topic == settings.partials_topic:
            partial = Partial.decode(record.value)
            sent = [partial.aggregates[name]["whole"] for name in ("first", "last")]
            figures.to_partial += [now - one for one in sent if one >= since]
            if partial.start >= since:
                windows.see("last partial", partial.end)
        elif record.topic == settings.results_topic:
            result = Result.decode(record.value)
            if result.start >= since:
                figures.to_result += [now - result.aggregates[name] for name in ("first", "last")]
                windows.reach("first result", result.end)
                windows.see("last result", result.end)
        else:
            windows.reach("published", watermark_of(record.value))


def job_of(options: argparse.Namespace) -> dict[str, Any]:
    """The job, with the aggregate that costs time if it is asked for."""
    costly = {"name": "costly", "op": "costly:CostlySum", "field": "sent"}
    return {**JOB, "aggregates": [*JOB["aggregates"], *([costly] if options.micros else [])]}


async def measure(broker: EmbeddedBroker, runner: str, options: argparse.Namespace) -> Figures:
    """Both measurements of one runner, each with an application of its own."""
    figures = Figures(runner)
    with tempfile.TemporaryDirectory() as folder:
        for part in [name for name, wanted in (("throughput", options.events), ("latency", options.rate)) if wanted]:
            application = f"{runner}-{part}-{uuid.uuid4().hex[:6]}"
            place = Path(folder) / part
            shape = Shape(PARTITIONS, options.workers)
            job = json.dumps(job_of(options))
            async with Deployment(broker.bootstrap_servers, application, place, job, shape=shape) as deployment:
                if part == "throughput":
                    await throughput(deployment, figures, runner, options)
                else:
                    await start(deployment, runner, options.workers)
                    await send(deployment, options.rate, options.warm_up)
                    await latency(deployment, figures, options.rate, options.seconds)
    return figures


PLAIN = """
import sys
from pyspark.sql import SparkSession, functions as F
servers, source, target, checkpoint, jars, steps = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "4").config("spark.driver.memory", "1g").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
events = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", source)
          .option("startingOffsets", "earliest").load())
sent = F.get_json_object(F.col("value").cast("string"), "$.sent").cast("double")
wanted = [F.count("*").alias("events"), F.min(sent).alias("first"), F.max(sent).alias("last")]
if int(steps):
    from costly import worked
    costly = F.udf(lambda value, steps=int(steps): round(worked(value, steps)), "long", useArrow=True)
    wanted.append(F.sum(costly(sent)).alias("costly"))
counted = (events.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "5 seconds"), "key")
           .agg(*wanted))
rows = counted.select("key", F.to_json(F.struct(*(name for name in counted.columns if name != "key"))).alias("value"))
query = (rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
         .option("checkpointLocation", checkpoint).outputMode("update").trigger(availableNow=True).start())
query.awaitTermination()
seconds = sum(p["durationMs"]["triggerExecution"] for p in query.recentProgress) / 1000
print("PLAIN", sum(p["numInputRows"] for p in query.recentProgress), seconds, flush=True)
"""


async def plain_spark(broker: EmbeddedBroker, options: argparse.Namespace) -> Figures:
    """The yardstick: Spark's own `groupBy(window, key)` over the same backlog; its start-up does not count."""
    figures = Figures("plain Spark")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        application = f"plain-{uuid.uuid4().hex[:6]}"
        async with Deployment(broker.bootstrap_servers, application, place, json.dumps(JOB)) as deployment:
            await deployment.write(events(options.events, options.hot))
            script, log = place / "plain.py", place / "plain.log"
            script.write_text(PLAIN)
            jars = ",".join(jar.as_uri() for jar in sorted((default_jars_dir() / "spark").absolute().glob("*.jar")))
            names = deployment.settings
            arguments = [
                broker.bootstrap_servers,
                names.events_topic,
                names.results_topic,
                str(place / "checkpoint"),
                jars,
                os.environ.get(STEPS, "0"),
            ]
            process = spawn([sys.executable, str(script), *arguments], log)
            usage = figures.usage["spark-0 (with start-up)"] = Usage([psutil.Process(process.pid)])
            while process.poll() is None:
                usage.look()
                await asyncio.sleep(0.2)
            terminate(process, 1)
            told = [line for line in log.read_text().splitlines() if line.startswith("PLAIN")]
            line = told[0] if told else sys.exit("\n".join(["plain Spark failed:", *last_lines(log, 30)]))
            _, rows, seconds = line.split()
            figures.events_per_second = int(rows) / float(seconds)
    return figures


async def main(options: argparse.Namespace) -> None:
    """Measures and prints all contestants."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        print(
            f"{options.events:,} events, {options.workers} workers; latency at {options.rate:,} events/s, 5 s windows"
        )
        print(f"{'':<14}{'events/s':>12}{'to partial p50/p99 ms':>24}{'to result p50/p99 ms':>22}")
        for runner in options.runners:
            (await measure(broker, runner, options)).print()
        if options.events:
            (await plain_spark(broker, options)).print()
        assert broker.pid is not None
        usage = Usage([psutil.Process(broker.pid)])
        usage.look()
        print(f"broker over all: {usage.cpu:.1f} s CPU, {usage.peak:.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=60, help="seconds at the same rate; a JVM compiles meanwhile")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--micros", type=float, default=0, help="Python per event, of an aggregate of a user's own")
    parser.add_argument("--hot", type=float, help="share of one key; each key is in one partition then")
    parser.add_argument("--runners", nargs="+", default=list(STAGES), choices=list(STAGES))
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if given.micros:
        os.environ[STEPS] = str(steps_of(given.micros))
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    asyncio.run(main(given))
