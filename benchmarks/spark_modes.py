"""What newer ways of Spark's streams bring: real-time mode, asynchronous progress tracking, changelogs of the state.

    python benchmarks/spark_modes.py modes [--rate 2000] [--seconds 12] [--warm-up 8] [--rounds 2]
    python benchmarks/spark_modes.py changelogs [--groups 100000]

`modes`: queries from Kafka to Kafka, each in every mode: the time from an event's sending until it comes out, or what
Spark says. `checked` real-time queries are those that Spark allows, `unchecked` ones run at one's own risk.
`changelogs`: the job's aggregator, with so many open groups and then 2,000 events per second for them, with changelogs
of its state and without.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import open_groups
import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Event, Shape
from keygrouping_local.jars import default_jars_dir
from keygrouping_spark import cli, session
from keygrouping_spark.listener import Listener
from pipeline import JAVA, PARTITIONS, ready
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.query import StreamingQuery

MODES = ("micro-batches", "async", "real-time checked", "real-time unchecked")
QUERIES = ("rows", "rows through Python", "deduplication", "windows", "foreachBatch")
ONLY_IN_MODES = {"foreachBatch": ("async", "real-time checked", "real-time unchecked")}
CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PROGRESS = "SPARK_MODES_PROGRESS"
"""Names the file to which a driver of the job that this script starts writes what Spark reports."""
_TICK, _STEPS, _STEADY_SECONDS, _LIMIT_SECONDS = 0.02, 4, 30.0, 1200.0


def passed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What goes through Python."""
    yield from batches


def start(spark: SparkSession, servers: str, query: str, mode: str, place: Path) -> StreamingQuery:
    """Starts a query from topic `in-NAME` to `out-NAME`, with the name of the checkpoint's folder."""
    spark.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", str(mode != "real-time unchecked").lower())
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    events = source.option("subscribe", f"in-{place.name}").option("startingOffsets", "earliest").load()
    timed, rows = events.withWatermark("timestamp", "0 seconds"), events.select("key", "value")
    if query == "rows through Python":
        rows = rows.mapInArrow(passed, "key binary, value binary")
    elif query == "deduplication":
        rows = timed.dropDuplicatesWithinWatermark(["key", "partition", "offset"]).select("key", "value")
    elif query == "windows":
        rows = timed.groupBy(F.window("timestamp", "5 seconds"), "key").agg(F.max("value").alias("value"))
    writer = rows.writeStream.outputMode("append" if query == "windows" else "update")
    if query == "foreachBatch":
        writer = writer.foreachBatch(_write)
    else:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", f"out-{place.name}")
    writer = writer.option("asyncProgressTrackingEnabled", str(mode == "async").lower())
    trigger = {"realTime": "5 seconds"} if mode.startswith("real-time") else {"processingTime": "0 seconds"}
    return writer.option("checkpointLocation", str(place)).trigger(**trigger).start()


def _write(_: DataFrame, __: int) -> None:
    """Nothing: what counts is whether Spark calls it."""


async def latencies(query: StreamingQuery, servers: str, name: str, given: argparse.Namespace) -> list[float]:
    """Milliseconds of what is sent after the warm-up; ends early with the query."""
    found: list[float] = []
    since = time.time() + given.warm_up

    async def watch(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            sent = int(record.value) / 1000
            if sent > since:
                found.append((time.time() - sent) * 1000)

    producer = AIOKafkaProducer(bootstrap_servers=servers, linger_ms=2)
    consumer = AIOKafkaConsumer(f"out-{name}", bootstrap_servers=servers, fetch_max_wait_ms=20)
    async with producer, consumer:
        watching = asyncio.create_task(watch(consumer))
        while time.time() < since + given.seconds and query.isActive:
            for number in range(int(given.rate * _TICK)):
                value = str(int(time.time() * 1000)).encode()
                await producer.send(f"in-{name}", value, b"%d" % random.randrange(1000), number % PARTITIONS)
            await asyncio.sleep(_TICK)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return found


async def create(servers: str, name: str) -> None:
    """The topics of a query."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(f"{end}-{name}", PARTITIONS, 1) for end in ("in", "out")])
    await admin.close()


def outcome(spark: SparkSession, servers: str, query: str, mode: str, given: argparse.Namespace) -> str:
    """Latencies of a query in a mode, or what Spark says."""
    with tempfile.TemporaryDirectory() as folder:
        name = uuid.uuid4().hex[:6]
        asyncio.run(create(servers, name))
        try:
            running = start(spark, servers, query, mode, Path(folder) / name)
        except PySparkException as error:
            return str(error).splitlines()[0]
        found = asyncio.run(latencies(running, servers, name, given))
        if failed := running.exception():
            return str(failed).splitlines()[0]
        batches = len([one for one in running.recentProgress if "addBatch" in one["durationMs"]])
        running.stop()
    told = "p50 {:,.0f}, p99 {:,.0f} ms".format(*np.percentile(found, [50, 99])) if found else "nothing came out"
    return f"{told}, {batches} batches"


def modes(given: argparse.Namespace) -> None:
    """Every query in every mode, in turn, as often as asked for."""
    jars = os.pathsep.join(str(jar.absolute()) for jar in sorted((default_jars_dir() / "spark").glob("*.jar")))
    # A real-time query needs a core for each task of all of its stages at once.
    builder = SparkSession.builder.master("local[12]").config("spark.driver.extraClassPath", jars)
    state = "spark.sql.streaming.stateStore.providerClass"
    own = {state: session._FIXED[state], **session._local_checkpoint()}
    for setting, value in {**own, "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(setting, value)
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        spark = builder.config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        outcome(
            spark, broker.bootstrap_servers, given.queries[0], MODES[0], given
        )  # of a JVM that has done nothing yet
        for query in given.queries:
            for mode in ONLY_IN_MODES.get(query, MODES) * given.rounds:
                told = outcome(spark, broker.bootstrap_servers, query, mode, given)
                print(f"{query}, {mode}: {told}, load {os.getloadavg()[0]:.0f}", flush=True)
        spark.stop()


async def changelogs(given: argparse.Namespace) -> None:
    """The job with and without them."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        for wanted in ("true", "false"):
            place = Path(folder) / wanted
            application = f"changelogs-{uuid.uuid4().hex[:6]}"
            job, shape = json.dumps(open_groups.JOB), Shape(PARTITIONS, PARTITIONS)
            async with Deployment(broker.bootstrap_servers, application, place, job, shape=shape) as deployment:
                await _with_changelogs(deployment, place, wanted, given.groups)


async def _with_changelogs(deployment: Deployment, place: Path, wanted: str, groups: int) -> None:
    reports, state = place / "reports", place / "checkpoint" / "aggregator" / "state"
    deployment.start("spark-0", {PROGRESS: str(reports)}, (__file__, "driver", wanted), **JAVA["spark-0"])
    await ready(deployment, ["spark-0"])
    deployment.start("router-0", workers=PARTITIONS, grouping="pkg", idle_timeout=3600)
    await ready(deployment, ["router-0"])
    now, step = int(time.time() * 1000), groups // _STEPS

    async def merged(count: int) -> bool:
        return sum(entry.offset or 0 for entry in (await deployment.committed("aggregator")).values()) >= count

    for part in range(_STEPS):
        await deployment.write(open_groups.events(part * step, (part + 1) * step, now))
        await deployment.until(lambda part=part: merged((part + 1) * step), _LIMIT_SECONDS)  # type: ignore[misc]
    print(f"changelogs {wanted}, {groups:,} groups come: {_told(_batches(reports))}", flush=True)
    before, held, end = len(_batches(reports)), _bytes(state), time.monotonic() + _STEADY_SECONDS
    while time.monotonic() < end:
        keys = [random.randrange(groups) for _ in range(int(2000 * _TICK))]
        events = (Event(key % PARTITIONS, b"key-%08d" % key, b'{"a":1,"b":1}', now) for key in keys)
        await asyncio.gather(deployment.write(events), asyncio.sleep(_TICK))
    rest = _batches(reports)[before:]
    written = (_bytes(state) - held) / max(1, len(rest)) / 1e6
    load = os.getloadavg()[0]
    print(f"changelogs {wanted}, later: {_told(rest)}, {written:.2f} MB of state each, load {load:.0f}", flush=True)


def _batches(reports: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in reports.read_text().splitlines()]
    return [one for one in found if one["name"] == "aggregator" and "addBatch" in one["durationMs"]]


def _told(batches: list[dict[str, Any]]) -> str:
    whole = [one["durationMs"]["triggerExecution"] for one in batches]
    commits = [sum(operator["commitTimeMs"] for operator in one["stateOperators"]) for one in batches]
    middle, committing = (float(np.median(values)) for values in (whole, commits))
    return f"{len(batches)} batches of {middle:,.0f} ms, tasks' commits of the state in one {committing:,.0f} ms"


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def driver(wanted: str) -> None:
    """The job, with changelogs or without; writes Spark's reports to a file."""
    session._FIXED[CHANGELOGS] = wanted
    taken = Listener.onQueryProgress

    def onQueryProgress(self: Listener, event: QueryProgressEvent) -> None:
        with Path(os.environ[PROGRESS]).open("a") as file:
            file.write(json.dumps(json.loads(event.progress.json)) + "\n")
        taken(self, event)

    Listener.onQueryProgress = onQueryProgress  # type: ignore[method-assign]
    del sys.argv[1:]
    cli.main()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if sys.argv[1:2] == ["driver"]:
        driver(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["modes", "changelogs"], default="modes")
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--warm-up", type=float, default=8)
    parser.add_argument("--queries", nargs="+", default=QUERIES, choices=QUERIES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--groups", type=int, default=100_000)
    options = parser.parse_args()
    modes(options) if options.what == "modes" else asyncio.run(changelogs(options))
