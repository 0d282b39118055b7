"""The whole Spark job as a process on a real broker: exact results, whatever is killed."""

import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import keygrouping_spark
import orjson
import psutil
import pyspark
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from keygrouping.partial import Partial, Result
from keygrouping_local import archives
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.monitoring import metrics_address
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_local.small_spark import java_options
from keygrouping_service.kafka.clients import started
from keygrouping_service.kafka.end_of_input import finish_input
from keygrouping_service.kafka.progress import (
    END,
    Committed,
    Progress,
    commit_progress,
    read_offsets,
    stage_watermark,
)
from keygrouping_service.records.batches import partition_of
from keygrouping_service.records.record import Record
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import Cluster, until
from keygrouping_spark.checkpoint import REPARTITIONS_SINCE

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

WINDOW = 60_000
WORKERS = 6
START_SECONDS = 300
KINDS = ("events", "routed", "partials", "results", "dead_letters", "positions")
JOB = {
    "window": WINDOW,
    "lateness": 0,
    "aggregates": [
        {"name": "n", "op": "count"},
        {"name": "total", "op": "sum", "field": "x"},
        {"name": "average", "op": "mean", "field": "x"},
        {"name": "spread", "op": "variance", "field": "x"},
        {"name": "kinds", "op": "distinct", "field": "who"},
    ],
}

LISTENING = "listening on"
"""Of the log: from then on SIGTERM ends a driver in order."""

POISONED = b"poisoned"
"""Key of the records of `routed` and `partials` that are none."""

REPARTITIONS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= REPARTITIONS_SINCE

Event = tuple[int, bytes, int, int | None, str]
"""Worker, key, event time in ms, x, who."""


class Pipeline:
    """The stage before (routers), the driver under test, and what comes out."""

    def __init__(self, cluster: Cluster, application: str, folder: Path) -> None:
        self.cluster = cluster
        self.application = application
        self.folder = folder
        self.sent: list[Event] = []
        self.spoiled = 0
        self.driver: subprocess.Popen[bytes] | None = None
        self.children: list[psutil.Process] = []

    def topic(self, kind: str) -> str:
        return f"{self.application}.{kind}"

    async def create_topics(self) -> None:
        counts = {"events": 1, "routed": WORKERS, "partials": 3, "results": 2, "dead_letters": 1}
        for kind, count in counts.items():
            await self.cluster.create(**{self.topic(kind): count})
        await self.cluster.create_compacted(self.topic("positions"))

    async def send(self, events: list[Event]) -> None:
        """Routes events in their order."""
        for worker, key, time, x, who in events:
            value = orjson.dumps({"x": x, "who": who})
            await self.cluster.write(self.topic("routed"), [(key, value)], worker, time)
        self.sent += events

    async def spoil(self, worker: int) -> None:
        """Writes something to `routed` that is of no use."""
        spoiled: list[tuple[bytes | None, bytes]] = [(POISONED, b"{"), (POISONED, b"[]")]
        await self.cluster.write(self.topic("routed"), spoiled, worker)
        self.spoiled += len(spoiled)

    async def promise(self, time: int) -> None:
        """The router says that it sends nothing before `time` any more."""
        group = f"{self.application}-router"
        options = {"bootstrap_servers": self.cluster.bootstrap_servers, "enable_auto_commit": False}
        async with started(AIOKafkaConsumer(group_id=group, **options)) as consumer:
            consumer.assign([TopicPartition(self.topic("events"), 0)])
            await commit_progress(consumer, self.topic("events"), {0: Committed(0, Progress(time))})

    async def finish(self) -> None:
        await finish_input(self.settings)

    @property
    def settings(self) -> ServiceSettings:
        names = {f"{kind}_topic": self.topic(kind) for kind in KINDS}
        brokers = {"bootstrap_servers": self.cluster.bootstrap_servers, "application": self.application}
        return ServiceSettings.model_validate(names | brokers)

    def start(self, **changes: str) -> None:
        self._run([sys.executable, "-m", "keygrouping_spark"], changes)

    def submit(self) -> None:
        """Starts it as a user of an own Spark does, who hands over the connector with the application."""
        tools = Path(sys.executable).parent
        jars = ",".join(map(str, (default_jars_dir() / "spark").glob("*.jar")))
        job = Path(keygrouping_spark.__file__).parent / "__main__.py"
        options = ["--master", "local[2]", "--driver-java-options", java_options([]), "--jars", jars]
        self._run([str(tools / "spark-submit"), *options, str(job)], {"spark_jars": "", "spark_java_options": ""})

    def _run(self, command: list[str], changes: dict[str, str]) -> None:
        settings = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "application": self.application,
            "job": orjson.dumps(JOB).decode(),
            **{f"{kind}_topic": self.topic(kind) for kind in KINDS},
            "spark_checkpoint": self.checkpoint("checkpoint"),
            "spark_jars": str(default_jars_dir() / "spark"),
            "spark_progress_topic": self.topic("progress"),
            "spark_shuffle_partitions": "2",
            "spark_trigger_seconds": "0.2",
            "spark_java_options": java_options(archives.reading("spark")),
            **changes,
        }
        environment = {**os.environ, **{f"KEYGROUPING_{name.upper()}": value for name, value in settings.items()}}
        # Without SPARK_HOME, spark-submit looks for itself by a script that a folder with a space ends.
        spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
        self.driver = spawn(command, self.log, {**environment, **spark})

    def checkpoint(self, name: str) -> str:
        """In the folder of the test, or where `make test-checkpoints` says."""
        root = os.environ.get("CHECKPOINTS")
        return f"{root}/{self.application}/{name}" if root else str(self.folder / name)

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    async def progress(self, stage: str, kind: str) -> int:
        """The stage's watermark."""
        committed = await self.cluster.committed(f"{self.application}-{stage}", self.topic(kind))
        return stage_watermark({partition: entry.progress for partition, entry in committed.items()})

    async def reaches(self, time: int) -> None:
        """Waits until all windows that end by `time` are final."""

        async def final() -> bool:
            assert self.driver is not None
            assert self.driver.poll() is None, "\n".join(last_lines(self.log, 30))
            return await self.progress("aggregator", "partials") >= time

        await until(final, START_SECONDS)

    async def kill(self) -> None:
        """SIGKILL to the driver, which must take its Java process along."""
        assert self.driver is not None
        children = psutil.Process(self.driver.pid).children(recursive=True)
        self.driver.kill()
        self.driver.wait()
        gone: Callable[[], bool] = lambda: not any(child.is_running() for child in children)  # noqa: E731
        await until(gone)

    def stop(self) -> int:
        assert self.driver is not None
        return terminate(self.driver, START_SECONDS)

    async def results(self) -> list[Result]:
        records = await self.cluster.read(self.topic("results"))
        found = [Result.decode(record.value) for record in records]
        assert [record.partition for record in records] == [partition_of(result.key, 2) for result in found]
        return found

    def expected(self, until_time: int = END) -> dict[tuple[bytes, int], dict[str, Any]]:
        """What one thread computes of all events, for the windows that end by a time."""
        groups: dict[tuple[bytes, int], list[Event]] = defaultdict(list)
        for event in self.sent:
            groups[event[1], event[2] // WINDOW * WINDOW].append(event)
        return {group: aggregate(events) for group, events in groups.items() if group[1] + WINDOW <= until_time}


def aggregate(events: list[Event]) -> dict[str, Any]:
    values = [x for _, _, _, x, _ in events if x is not None]
    return {
        "n": len(events),
        "total": sum(values) if values else None,
        "average": pytest.approx(statistics.fmean(values)) if values else None,
        "spread": pytest.approx(statistics.variance(values)) if len(values) > 1 else None,
        "kinds": len({who for *_, who in events}),
    }


def check(results: list[Result], expected: dict[tuple[bytes, int], dict[str, Any]]) -> None:
    """Every window is there once, with the right values."""
    found = [(result.key, result.start) for result in results]
    assert len(found) == len(set(found))
    assert set(found) == set(expected)
    for result in results:
        assert dict(result.aggregates) == expected[result.key, result.start], (result.key, result.start)
        assert (result.final, result.end, result.weight) == (True, result.start + WINDOW, result.events)
        assert result.events == result.aggregates["n"]


def some_events(rng: random.Random, window: int, count: int = 40) -> list[Event]:
    """Out of order over this window and the next; half of all goes to worker 0, nothing to the last two."""
    return [
        (
            rng.choice([0, 0, 0, 1, 2, 3]),
            rng.choice([b"hot", b"hot", b"a", b"b", b"\xff\x01"]),
            window * WINDOW + rng.randrange(2 * WINDOW),
            rng.choice([None, rng.randrange(-100, 100)]),
            f"who{rng.randrange(9)}",
        )
        for _ in range(count)
    ]


@pytest.fixture
async def pipeline(broker: EmbeddedBroker, application: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with Cluster(broker.bootstrap_servers) as cluster:
        made = Pipeline(cluster, application, tmp_path)
        await made.create_topics()
        yield made
        if made.driver is not None:
            terminate(made.driver, 1)


async def repeat_partials(pipeline: Pipeline) -> None:
    """Writes every partial again, as a worker that was killed between output and commit does."""
    records = await pipeline.cluster.read(pipeline.topic("partials"))
    for record in records:
        await pipeline.cluster.write(pipeline.topic("partials"), [(record.key, record.value)], record.partition)


async def test_results_are_exact_whenever_the_driver_is_killed(pipeline: Pipeline) -> None:
    rng = random.Random(1)
    pipeline.start()
    await pipeline.send(some_events(rng, 0))
    await pipeline.spoil(2)
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    check(await pipeline.results(), pipeline.expected(WINDOW))

    await pipeline.spoil(3)
    await repeat_partials(pipeline)
    await pipeline.cluster.write(pipeline.topic("partials"), poison(), 1)
    await pipeline.send(some_events(rng, 1))
    await pipeline.kill()
    await pipeline.send(some_events(rng, 1))
    await pipeline.promise(2 * WINDOW)
    pipeline.submit()
    await pipeline.reaches(2 * WINDOW)
    check(await pipeline.results(), pipeline.expected(2 * WINDOW))

    await pipeline.send(some_events(rng, 9))
    await pipeline.send(some_events(rng, 2))
    await pipeline.finish()
    await asyncio.sleep(rng.random() * 3)
    await pipeline.kill()
    await repeat_partials(pipeline)
    before = pipeline.log.read_text().count(LISTENING)
    pipeline.start()
    # All may have been final before the kill, and who has hardly started can't be stopped in order.
    await until(lambda: pipeline.log.read_text().count(LISTENING) > before, START_SECONDS)
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())
    assert await pipeline.progress("worker", "routed") == END
    await until(lambda: all_poison_is_told(pipeline), START_SECONDS)

    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
    committed = await pipeline.cluster.committed(f"{pipeline.application}-worker", pipeline.topic("routed"))
    assert sum(entry.offset or 0 for entry in committed.values()) == len(pipeline.sent) + pipeline.spoiled
    await one_partial_per_worker_window_and_key(pipeline)
    await poison_is_in_the_dead_letters(pipeline)

    changed = {**JOB, "window": 2 * WINDOW}
    pipeline.start(job=orjson.dumps(changed).decode())
    assert pipeline.driver is not None
    await until(lambda: pipeline.driver is not None and pipeline.driver.poll() is not None, START_SECONDS)
    assert pipeline.driver.returncode == 1
    (line,) = [line for line in last_lines(pipeline.log, 5) if line.startswith("fatal:")]
    assert "window" in line


async def test_results_are_exact_though_what_has_been_read_is_deleted(pipeline: Pipeline) -> None:
    rng = random.Random(2)
    pipeline.start(purge_after="0")
    await pipeline.send(some_events(rng, 0))
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    text = await metrics_of(pipeline)
    assert f'keygrouping_spark_input_rows_total{{query="worker"}} {float(len(pipeline.sent))}' in text
    check_parts_of_batches(text)
    await until(lambda: purged(pipeline, "routed"), START_SECONDS)
    # Windows of 1970 are open: nobody knows yet that none of these partials is needed any more.
    assert not await purged(pipeline, "partials")

    await pipeline.kill()
    await pipeline.send(some_events(rng, 1))
    pipeline.start(purge_after="0")
    await pipeline.finish()
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())
    await until(lambda: purged(pipeline, "partials"), START_SECONDS)
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))

    pipeline.start(purge_after="0", spark_checkpoint=pipeline.checkpoint("another"))
    await pipeline.reaches(END)
    first_batch = pipeline.folder / "another" / "aggregator" / "commits" / "0"
    await until(first_batch.exists, START_SECONDS)
    check(await pipeline.results(), pipeline.expected())


async def purged(pipeline: Pipeline, kind: str) -> bool:
    """Whether all that the stage behind a topic has committed in it is gone, and there was something."""
    topic, stage = pipeline.topic(kind), {"routed": "worker", "partials": "aggregator"}[kind]
    committed = await pipeline.cluster.committed(f"{pipeline.application}-{stage}", topic)
    wanted = {TopicPartition(topic, p): entry.offset or 0 for p, entry in committed.items()}
    async with started(AIOKafkaConsumer(bootstrap_servers=pipeline.cluster.bootstrap_servers)) as reader:
        return await reader.beginning_offsets(list(wanted)) == wanted and any(wanted.values())


def poison() -> list[tuple[bytes | None, bytes]]:
    """Records of `partials` that would end a query, spoil a result, or hold a window open for ever."""
    sketch = "CgEHBAAIBwKIndq+l5qxQAAAAAAAgKc/AAAAAAAAAAACAAAAAAAAACMBI43P2REw"
    aggregates = {
        "n": 1,
        "total": {"n": 1, "whole": "1", "parts": []},
        "average": {"n": 1, "whole": "1", "parts": []},
        "spread": {"n": 1, "mean": 1.0, "m2": 0.0},
        "kinds": "AgEHDAMIAQjHhJ4U",
    }
    good = Partial(0, 0, WINDOW, 1, 1, 0, 0, 0, aggregates).encode()
    assert Partial.decode(good).events == 1
    members = orjson.loads(good)
    wrong: list[dict[str, Any]] = [
        {"events": 1 << 64}, {"events": -7}, {"end": (1 << 63) - 1}, {"weight": 10**300}, {"epoch": 1 << 64},
        {"aggregates": {**aggregates, "kinds": sketch}}, {"aggregates": {**aggregates, "n": 1 << 63}},
        {"aggregates": {}},
    ]  # fmt: skip
    return [(POISONED, b"{"), *[(POISONED, json.dumps({**members, **one}).encode()) for one in wrong]]


async def all_poison_is_told(pipeline: Pipeline) -> bool:
    """Whether there are as many dead letters as there should be: what was written last is read after the end."""
    return len(await pipeline.cluster.read(pipeline.topic("dead_letters"))) >= len(await all_poison(pipeline))


async def all_poison(pipeline: Pipeline) -> list[tuple[str, Record]]:
    """What is of no use, and the topic that it stands in."""
    kinds = ("routed", "partials")
    return [
        (pipeline.topic(kind), each)
        for kind in kinds
        for each in await pipeline.cluster.read(pipeline.topic(kind))
        if each.key == POISONED
    ]


async def poison_is_in_the_dead_letters(pipeline: Pipeline) -> None:
    """Each such record once, however often the driver was killed, with what is wrong with it and where it was."""
    written = await all_poison(pipeline)
    dead = await pipeline.cluster.read(pipeline.topic("dead_letters"))
    told = [{name: (value or b"").decode() for name, value in record.headers} for record in dead]
    places = [tuple(one[f"keygrouping-{part}"] for part in ("topic", "partition", "offset")) for one in told]
    assert sorted(places) == sorted((topic, str(each.partition), str(each.offset)) for topic, each in written)
    assert Counter(each.value for each in dead) == Counter(each.value for _, each in written)
    reasons = Counter((one["keygrouping-topic"], one["keygrouping-reason"]) for one in told)
    routed, partials = pipeline.topic("routed"), pipeline.topic("partials")
    assert reasons[routed, "invalid-json"] == pipeline.spoiled // 2
    assert reasons[partials, "invalid-partial"] == sum(topic == partials for topic, _ in written)
    assert all(one["keygrouping-detail"] for one in told)


async def test_a_new_checkpoint_goes_on_although_the_broker_has_forgotten_the_groups(pipeline: Pipeline) -> None:
    rng = random.Random(2)
    pipeline.start()
    await pipeline.send(some_events(rng, 0))
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
    for group in ("worker", "aggregator", "aggregator-batches"):
        await pipeline.cluster.forget(f"{pipeline.application}-{group}")

    checkpoint = pipeline.checkpoint("another")
    pipeline.start(spark_checkpoint=checkpoint)
    await pipeline.send(some_events(rng, 1))
    await pipeline.finish()
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
    await one_partial_per_worker_window_and_key(pipeline)

    await pipeline.cluster.recreate(pipeline.topic("routed"), WORKERS)
    for changes, line in (
        ({"spark_checkpoint": checkpoint}, "routed topic's id changed"),
        ({"spark_checkpoint": checkpoint + "-again"}, "To begin again at its beginning set KEYGROUPING_BEGIN_AGAIN="),
    ):
        pipeline.start(spark_stages="worker", **changes)
        await until(lambda: pipeline.driver is not None and pipeline.driver.poll() is not None, START_SECONDS)
        assert line in pipeline.log.read_text()


async def test_a_lost_checkpoint_counts_no_event_twice_or_never_though_its_last_batch_was_not_committed(
    pipeline: Pipeline,
) -> None:
    """The driver was killed after it had written partials; the stage's group stands where that batch began."""
    rng = random.Random(5)
    pipeline.start()
    await pipeline.send(some_events(rng, 0))
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    await pipeline.send(some_events(rng, 1))
    await pipeline.spoil(1)
    await pipeline.spoil(2)
    await until(lambda: all_read(pipeline), START_SECONDS)
    await pipeline.kill()
    assert await begin_of_last_batch(pipeline), "the last batch had events"

    await pipeline.send(some_events(rng, 1))
    pipeline.start(spark_checkpoint=pipeline.checkpoint("another"))
    await pipeline.promise(2 * WINDOW)
    await pipeline.reaches(2 * WINDOW)
    check(await pipeline.results(), pipeline.expected(2 * WINDOW))
    assert "writing it again" in pipeline.log.read_text()
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
    dead = [dict(record.headers) for record in await pipeline.cluster.read(pipeline.topic("dead_letters"))]
    assert Counter(each["keygrouping-partition"] for each in dead) == {b"1": 2, b"2": 4}, "of 2 nobody knew"

    await both_are_out_of_date(pipeline)


async def both_are_out_of_date(pipeline: Pipeline) -> None:
    """Each stage alone refuses the checkpoint."""
    for stage in ("worker", "aggregator"):
        pipeline.start(spark_stages=stage)
        assert pipeline.driver is not None
        await until(lambda: pipeline.driver is not None and pipeline.driver.poll() is not None, START_SECONDS)
        assert pipeline.driver.returncode == 1
        line = last_lines(pipeline.log, 1)[0]
        assert f"{pipeline.checkpoint('checkpoint')} of the {stage} is out of date" in line


@pytest.mark.skipif("CHECKPOINTS" in os.environ, reason="copies a local folder")
async def test_an_older_copy_of_the_checkpoint_is_refused_and_a_new_one_is_exact(pipeline: Pipeline) -> None:
    rng = random.Random(7)
    checkpoint, copy = Path(pipeline.checkpoint("checkpoint")), pipeline.folder / "copy"
    for window in range(2):
        pipeline.start()
        await pipeline.send(some_events(rng, window))
        await pipeline.promise((window + 1) * WINDOW)
        await pipeline.reaches((window + 1) * WINDOW)
        assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
        if not copy.exists():
            shutil.copytree(checkpoint, copy)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    await pipeline.send(some_events(rng, 2))
    await both_are_out_of_date(pipeline)

    await forget_what_is_final(pipeline)
    pipeline.start(spark_checkpoint=pipeline.checkpoint("another"))
    await pipeline.finish()
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())


async def forget_what_is_final(pipeline: Pipeline) -> None:
    """As if the driver was killed between writing results and committing how far they are final."""
    topic, group = pipeline.topic("partials"), f"{pipeline.application}-aggregator"
    committed = await pipeline.cluster.committed(group, topic)
    options = {"bootstrap_servers": pipeline.cluster.bootstrap_servers, "enable_auto_commit": False}
    async with started(AIOKafkaConsumer(group_id=group, **options)) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in committed])
        before = {partition: replace(entry, progress=Progress()) for partition, entry in committed.items()}
        await commit_progress(consumer, topic, before)


async def all_read(pipeline: Pipeline) -> bool:
    committed = await pipeline.cluster.committed(f"{pipeline.application}-worker", pipeline.topic("routed"))
    return sum(entry.offset or 0 for entry in committed.values()) == len(pipeline.sent) + pipeline.spoiled


async def begin_of_last_batch(pipeline: Pipeline) -> int:
    """Sets the worker's group back to where its last batch began; gives by how many records.

    Of worker 2 the batch looks like one that was killed before its dead letters were written.
    """
    topic, group = pipeline.topic("routed"), f"{pipeline.application}-worker"
    tps = [TopicPartition(topic, partition) for partition in range(WORKERS)]
    batches = await read_offsets(pipeline.cluster.admin, f"{group}-batches", tps)
    committed = await pipeline.cluster.committed(group, topic)
    begins = {tp.partition: int(stored.metadata.split(" ")[2]) for tp, stored in batches.items()}
    options = {"bootstrap_servers": pipeline.cluster.bootstrap_servers, "enable_auto_commit": False}
    async with started(AIOKafkaConsumer(group_id=group, **options)) as consumer:
        consumer.assign(tps)
        entries = {partition: replace(committed[partition], offset=begin) for partition, begin in begins.items()}
        await commit_progress(consumer, topic, entries)
    async with started(AIOKafkaConsumer(group_id=f"{group}-batches", **options)) as consumer:
        consumer.assign(tps)
        untold = batches[tps[2]]
        words = untold.metadata.split(" ")
        assert int(words[4]) > int(words[2])
        await consumer.commit({tps[2]: untold._replace(metadata=" ".join([*words[:4], "0"]))})
    return sum((committed[partition].offset or 0) - begin for partition, begin in begins.items())


async def test_records_that_were_deleted_unread_are_told_and_a_new_checkpoint_goes_on_without_them(
    pipeline: Pipeline,
) -> None:
    rng = random.Random(3)
    pipeline.start()
    await pipeline.send(some_events(rng, 0))
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))
    routed, before = pipeline.topic("routed"), list(pipeline.sent)
    await pipeline.send(some_events(rng, 1))
    deleted = {TopicPartition(routed, worker): RecordsToDelete(before_offset=-1) for worker in range(WORKERS)}
    await pipeline.cluster.admin.delete_records(deleted)
    lost, pipeline.sent = len(pipeline.sent) - len(before), before

    pipeline.start()
    fault = f"retention deleted {lost} offsets of {routed} that group {pipeline.application}-worker had not read"
    await until(lambda: fault in pipeline.log.read_text(), START_SECONDS)
    group = f'group="{pipeline.application}-worker"'
    assert f"keygrouping_expired_offsets_total{{{group}}} {float(lost)}" in await metrics_of(pipeline)
    assert pipeline.stop() == 1
    assert "KEYGROUPING_SPARK_CHECKPOINT to a new folder" in last_lines(pipeline.log, 1)[0]

    pipeline.start(spark_checkpoint=pipeline.checkpoint("another"))
    await pipeline.send(some_events(rng, 2))
    await pipeline.finish()
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())
    text = await metrics_of(pipeline)
    assert f"keygrouping_expired_offsets_total{{{group}}} {float(lost)}" in text
    assert f"keygrouping_expiring_records{{{group}}} 0.0" in text
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))


STEPS = {"worker": ("announce", "write", "refuse"), "aggregator": ("merge", "commit", "publish")}
"""What the phase addBatch of each query consists of."""


def check_parts_of_batches(text: str) -> None:
    """The phases are about all of a batch, and the steps about all of the phase in which Spark calls us."""
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for line in re.findall(r"keygrouping_spark_(?:batch|phase|step)_seconds_sum\{.*", text):
        labels = dict(re.findall(r'(\w+)="(\w+)"', line))
        seconds = float(line.split()[-1])
        for part in ("phase", "step") if "phase" not in labels and "step" not in labels else ():
            spent[labels["query"], f"all of {part}"] += seconds
        for part in {"phase", "step"} & labels.keys():
            spent[labels["query"], part] += seconds
            spent[labels["query"], labels[part]] += seconds
    for query, steps in STEPS.items():
        assert all(spent[query, step] > 0 for step in steps)
        assert spent[query, "all of phase"] >= spent[query, "phase"] > 0.5 * spent[query, "all of phase"]
        # Spark tells of a batch after it has ended, and of one that is under way nothing.
        assert spent[query, "step"] > 0.25 * spent[query, "addBatch"] > 0


@pytest.mark.skipif(not REPARTITIONS, reason="since Spark 4.2")
async def test_the_state_gets_another_number_of_partitions_and_results_stay_exact(pipeline: Pipeline) -> None:
    """Windows are open meanwhile, partials are repeated across it, and it is broken off once."""
    rng = random.Random(5)
    pipeline.start()
    await pipeline.send(some_events(rng, 0))
    await pipeline.send(some_events(rng, 3))
    await pipeline.promise(WINDOW)
    await pipeline.reaches(WINDOW)
    assert pipeline.stop() == 0, "\n".join(last_lines(pipeline.log, 30))

    told = "gets 5 partitions in place of 2"
    pipeline.start(spark_shuffle_partitions="5")
    await until(lambda: told in pipeline.log.read_text(), START_SECONDS)
    await asyncio.sleep(rng.uniform(0, 2))
    await pipeline.kill()
    await repeat_partials(pipeline)
    await pipeline.send(some_events(rng, 1))
    pipeline.start(spark_shuffle_partitions="5")
    await pipeline.promise(3 * WINDOW)
    await pipeline.reaches(3 * WINDOW)
    check(await pipeline.results(), pipeline.expected(3 * WINDOW))
    assert sorted(name for name in state_of(pipeline) if name.isdigit()) == list("01234")

    await pipeline.send(some_events(rng, 4))
    await pipeline.kill()
    pipeline.start(spark_shuffle_partitions="5")
    await repeat_partials(pipeline)
    await pipeline.finish()
    await pipeline.reaches(END)
    check(await pipeline.results(), pipeline.expected())
    assert "in place of" not in pipeline.log.read_text().rpartition(LISTENING)[2]


def state_of(pipeline: Pipeline) -> list[str]:
    """Names in the folder of one operator's state: a folder for each partition."""
    return [each.name for each in (pipeline.folder / "checkpoint" / "aggregator" / "state" / "0").iterdir()]


async def metrics_of(pipeline: Pipeline) -> str:
    async with httpx.AsyncClient(timeout=60) as client:
        return (await client.get(f"http://{metrics_address(pipeline.log)}/metrics")).text


async def one_partial_per_worker_window_and_key(pipeline: Pipeline) -> None:
    """Partials that were written again are the same; together they hold every event once."""
    seen: dict[tuple[Any, ...], Partial] = {}
    for record in await pipeline.cluster.read(pipeline.topic("partials")):
        if record.key == POISONED:
            continue
        partial = Partial.decode(record.value)
        assert seen.setdefault((record.key, *partial.identity), partial) == partial
    assert sum(partial.events for partial in seen.values()) == len(pipeline.sent)


@pytest.mark.parametrize(
    ("setting", "wrong", "fault"),
    [
        ("spark_stages", "router", "KEYGROUPING_SPARK_STAGES"),
        ("spark_jars", "/nowhere", "no jars in /nowhere"),
        (
            "job",
            '{"aggregates": [{"name": "top", "op": "nowhere:Top", "field": "x"}]}',
            "op 'nowhere:Top' can't be loaded",
        ),
    ],
)
def test_wrong_settings_stop_the_start_with_a_line_each(setting: str, wrong: str, fault: str) -> None:
    settings = {"bootstrap_servers": "none:9", "job": '{"aggregates": []}', "spark_checkpoint": "x", setting: wrong}
    environment = {**os.environ, **{f"KEYGROUPING_{name.upper()}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "keygrouping_spark"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert fault in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
