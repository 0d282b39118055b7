"""The two stages: each is a query with its checkpoint and the loop that commits its progress."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import producer, retry, started
from keygrouping_service.kafka.leftovers import Leftovers
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import (
    Committed,
    Upstream,
    UpstreamWatermark,
    commit_progress,
    partitions_of,
    stage_watermark,
)
from keygrouping_service.kafka.starts import created_again, find_starts, read_last
from keygrouping_service.kafka.topic_ids import UNKNOWN, read_topic_id, same_topic
from keygrouping_service.kafka.watermarks import show_watermark
from keygrouping_service.observability.metrics import EXPIRED_OFFSETS
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from keygrouping_spark import aggregator, metrics, worker
from keygrouping_spark.batch_log import BatchLog
from keygrouping_spark.checkpoint import Checkpoint, Identity, aggregator_plan, worker_plan
from keygrouping_spark.fetching import Range, forget_client
from keygrouping_spark.progress import AggregatorProgress, WorkerProgress
from keygrouping_spark.query import QueryRunner, reason_of
from keygrouping_spark.reading import Letters
from keygrouping_spark.refused import Refused
from keygrouping_spark.reports import Reading
from keygrouping_spark.results import ResultWriter, Written, failed_result, records_of
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.unread import Unread

log = logging.getLogger(__name__)

_LOCK_TIMEOUT = 30.0
_TOPIC_TIMEOUT, _TOPIC_POLL = 15.0, 0.2


@dataclass(frozen=True)
class Stage:
    """A stage that is ready to run."""

    name: str
    reading: Reading
    runner: QueryRunner
    progress: WorkerProgress | AggregatorProgress
    unread: Unread
    began: Mapping[int, int]
    """Where its checkpoint goes on; empty if that is new."""


@dataclass
class Group:
    """A stage's group, which has no members: what it has committed, and commits that the broker may forget.

    `last` is by partition, offset None where reading begins at the beginning; `topic_id` is that of the topic.
    """

    name: str
    topic: str
    settings: SparkSettings
    admin: AIOKafkaAdminClient
    probe: AIOKafkaConsumer
    consumer: AIOKafkaConsumer
    producer: AIOKafkaProducer
    positions: Positions
    topic_id: str = UNKNOWN
    last: dict[int, Committed] = field(default_factory=dict)

    @property
    def watermark(self) -> int:
        """Event time (ms) up to which all is final by what has been committed last."""
        return stage_watermark({partition: entry.progress for partition, entry in self.last.items()})

    async def read(self, tps: Sequence[TopicPartition]) -> None:
        """Reads what has been committed last; offsets of a topic of another id mean nothing."""
        self.topic_id = await read_topic_id(self.admin, self.topic)
        found = await read_last(self.admin, self.probe, self.positions, self.name, tps)
        for tp, start in found.items():
            entry = start.committed
            offset = entry.offset if same_topic(entry.topic_id, self.topic_id) else None
            self.last[tp.partition] = replace(entry, offset=offset)

    async def judge(self) -> None:
        """`Fatal` if a new checkpoint can't begin where the group stands, unless the setting says to begin again."""
        tps = [TopicPartition(self.topic, partition) for partition in self.last]
        starts = await find_starts(self.admin, self.probe, self.settings, self.positions, self.name, tps)
        self.last.update({tp.partition: start.committed for tp, start in starts.items()})

    async def firsts(self) -> dict[int, int]:
        """The first offset of each partition that is still there."""
        tps = [TopicPartition(self.topic, partition) for partition in self.last]
        return {tp.partition: first for tp, first in (await self.probe.beginning_offsets(tps)).items()}

    def unread(self, reading: Reading) -> Unread:
        """What is lost of what a query has yet to read. One that has read nothing goes on where the group was."""
        last = {partition: entry.offset for partition, entry in self.last.items() if entry.offset}
        return Unread(self.admin, self.probe, self.name, self.topic, lambda: last | reading.positions)

    async def check(self) -> None:
        """`Fatal` if the topic has been created again meanwhile."""
        if not same_topic(now := await read_topic_id(self.admin, self.topic), self.topic_id):
            raise Fatal(created_again(self.topic, self.name, self.topic_id, now))

    async def commit(self, reached: Mapping[int, Committed]) -> None:
        """Commits offsets and progress, and their copies."""
        entries = {partition: replace(entry, topic_id=self.topic_id) for partition, entry in reached.items()}
        tps = {TopicPartition(self.topic, partition) for partition in entries}
        if not tps <= self.consumer.assignment():  # as at the first commit, and once partitions have been added
            self.consumer.assign(tps)
        await commit_progress(self.consumer, self.topic, entries)
        copies = [(TopicPartition(self.topic, partition), entry.encode()) for partition, entry in entries.items()]
        await self.positions.send(self.producer, copies)
        for partition, entry in entries.items():
            show_watermark(self.name, partition, entry.progress)


@dataclass(frozen=True)
class Environment:
    """What the stages are made from. `stack` closes the clients that they open."""

    settings: SparkSettings
    spark: SparkSession
    admin: AIOKafkaAdminClient
    probe: AIOKafkaConsumer
    stack: AsyncExitStack

    @property
    def upstream(self) -> Upstream:
        """What the stages before promise."""
        return Upstream(self.admin, self.probe)

    async def open_group(self, stage: str, topic: str) -> Group:
        """What a stage has committed in all partitions of a topic, and how it goes on to commit."""
        await self._expect(self.settings.positions_topic)
        tps = [TopicPartition(topic, partition) for partition in await self._expect(topic)]
        name = self.settings.group(stage)
        consumer = AIOKafkaConsumer(**self.settings.kafka_options(), group_id=name, enable_auto_commit=False)
        await self.stack.enter_async_context(started(consumer))
        client = await self.stack.enter_async_context(started(producer(self.settings)))
        positions = Positions(self.settings, name)
        group = Group(name, topic, self.settings, self.admin, self.probe, consumer, client, positions)
        await retry(lambda: group.read(tps), f"reading group {name}")
        return group

    async def _expect(self, topic: str) -> list[int]:
        """The partitions of a topic, which may be about to be created; `Fatal` if it stays missing."""
        deadline = time.monotonic() + _TOPIC_TIMEOUT
        while not (found := await retry(lambda: partitions_of(self.admin, topic), "reading the topics")):
            if time.monotonic() > deadline:
                raise Fatal(f"topic {topic!r} does not exist: create it first")
            await asyncio.sleep(_TOPIC_POLL)
        return found

    async def open_checkpoint(self, stage: str) -> tuple[Checkpoint, Identity | None]:
        """The locked checkpoint of a stage, and whose it is, None if it is new; `Fatal` if it is in use."""
        checkpoint = await asyncio.to_thread(Checkpoint, self.spark, self.settings.checkpoint, stage)
        if not await asyncio.to_thread(checkpoint.lock, _LOCK_TIMEOUT):
            raise Fatal(f"another driver uses the checkpoint {self.settings.checkpoint}: run only one")
        return checkpoint, await asyncio.to_thread(checkpoint.read)


async def worker_stage(environment: Environment) -> Stage:
    """The worker stage: `routed` to `partials`."""
    settings, upstream = environment.settings, environment.upstream
    group = await environment.open_group("worker", settings.routed_topic)
    checkpoint, identity = await environment.open_checkpoint("worker")
    plan = worker_plan(settings, group.topic_id)
    if identity is None:
        await retry(group.judge, f"reading group {group.name}")
        identity = await asyncio.to_thread(checkpoint.create, Identity(uuid.uuid4().hex, plan, group.watermark))
    checkpoint.require(identity, plan)
    firsts = await retry(group.firsts, f"reading topic {settings.routed_topic}")
    begun = await asyncio.to_thread(lambda: checkpoint.last_planned) >= 0
    # Where a new checkpoint begins. What is lost before that is counted, and Spark would fail at it. The first batch of
    # one that has begun is written again from where it began.
    starts = {p: max(entry.offset or 0, 0 if begun else firsts[p]) for p, entry in group.last.items()}
    batches = BatchLog(settings, environment.admin, identity.id, group.topic_id)
    writer = worker.Worker(environment.spark, settings, group.topic_id)
    environment.stack.push_async_callback(batches.close)
    await retry(batches.open, "taking over from a former driver")
    if begun:
        # Not before the former driver has been ended: it may plan a further batch until then.
        ends = dict.fromkeys(group.last, 0) | await asyncio.to_thread(checkpoint.last_ends, settings.routed_topic)
        await retry(lambda: batches.require(ends), "reading what was written last")
    else:
        ends = await _repeat_last(writer, group, batches, firsts)
        starts |= {partition: max(end, firsts[partition]) for partition, end in ends.items()}
    positions = await asyncio.to_thread(checkpoint.offsets, settings.routed_topic)
    known = {partition: entry.offset for partition, entry in group.last.items() if entry.offset}
    reading = Reading(settings.routed_topic, positions or known)

    async def read_upstream_watermark() -> UpstreamWatermark:
        await group.check()
        return await upstream.of_worker(
            settings.group("router"), settings.events_topic, settings.routed_topic, settings.job.lateness_ms
        )

    progress = WorkerProgress(
        reading=reading, read_upstream_watermark=read_upstream_watermark, commit=group.commit, last=group.last
    )
    beginning = _Beginning(checkpoint, group, batches, progress, starts, asyncio.get_running_loop(), writer)
    if not begun:
        await beginning.tell(starts, starts)
    runner = QueryRunner(
        "worker",
        lambda: worker.start(
            writer,
            starts,
            epoch=lambda: progress.ahead.newest.epoch,
            begin=beginning.begin,
            refuse=beginning.refuse,
        ),
        reading,
        lambda: beginning.failure,
    )
    return Stage("worker", reading, runner, progress, group.unread(reading), positions)


async def _repeat_last(
    writer: worker.Worker, group: Group, batches: BatchLog, firsts: Mapping[int, int]
) -> dict[int, int]:
    """Writes the last batch of a lost checkpoint again, which may not have been written whole; gives where it ended."""
    last = await retry(lambda: batches.take_over(group.last), "reading what was written last")
    ahead = {p: batch for p, batch in last.items() if (group.last[p].offset or 0) <= batch.begin < batch.end}
    ranges = [Range(p, batch.begin, batch.end) for p, batch in ahead.items()]
    for each in [each for each in ranges if firsts[each.partition] > each.begin]:
        log.error(
            "%s[%d]: offsets %d to %d are left out: a checkpoint that is lost had begun to write them, and some of "
            "them were deleted, so that nobody can write the same again",
            *(group.topic, each.partition, each.begin, each.end - 1),
        )
        EXPIRED_OFFSETS.labels(group.name).inc(each.end - each.begin)
        ranges.remove(each)
    if ranges:
        log.warning("a checkpoint that is lost has begun a batch: writing it again, %s", ranges)
        epoch = max(entry.progress.epoch for entry in group.last.values())
        begins = {p: replace(group.last[p], offset=each.begin, topic_id=group.topic_id) for p, each in ahead.items()}
        await batches.begin(begins, {partition: batch.end for partition, batch in ahead.items()})
        loop = asyncio.get_running_loop()

        def wait_for(action: Coroutine[Any, Any, None]) -> None:
            asyncio.run_coroutine_threadsafe(action, loop).result()

        try:
            spans = await asyncio.to_thread(writer.write, ranges, epoch)
            await asyncio.to_thread(_refuse, writer, batches, spans, wait_for)
        except (PySparkException, Py4JError) as error:
            raise Fatal(f"a batch that a lost checkpoint has begun can't be written: {reason_of(error)}") from None
    ends = {partition: batch.end for partition, batch in ahead.items()}
    for partition, end in ends.items():
        group.last[partition] = replace(group.last[partition], offset=end)
    return ends


def _refuse(
    writer: worker.Worker,
    batches: BatchLog,
    spans: Iterable[Range],
    wait_for: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """Makes dead letters of what is of no use there, where that has not been done."""
    for partition, begin, end in spans:
        begin = max(begin, batches.told(partition))
        for after, refused in writer.refused(Range(partition, begin, end)) if begin < end else ():
            wait_for(batches.refuse(partition, refused, after))
        forget_client()


class _Beginning:
    """Tells the log of each batch of the worker before it writes; keeps the error that Spark would wrap."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        group: Group,
        batches: BatchLog,
        progress: WorkerProgress,
        starts: Mapping[int, int],
        loop: asyncio.AbstractEventLoop,
        writer: worker.Worker,
    ) -> None:
        self.failure: BaseException | None = None
        self._writer = writer
        self._checkpoint = checkpoint
        self._group = group
        self._batches = batches
        self._progress = progress
        self._starts = starts
        self._loop = loop

    def begin(self, batch: int) -> list[Range]:
        """What the batch, which is told by Spark's thread, reads; returns when it may write."""
        self._progress.reading.begin(batch)
        topic = self._group.topic
        starts = self._checkpoint.planned(batch - 1, topic) if batch else self._starts
        ends = self._checkpoint.planned(batch, topic)
        ranges = [Range(partition, starts.get(partition, 0), end) for partition, end in ends.items()]
        self._wait_for(self._go_on(ranges))
        return ranges

    def refuse(self, spans: Iterable[Range]) -> None:
        """Makes dead letters of what is of no use there; returns when they are written."""
        _refuse(self._writer, self._batches, spans, self._wait_for)

    def _wait_for(self, action: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(action, self._loop).result()
        except Fatal as error:
            self.failure = error
            raise

    async def tell(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Tells of a batch, which is empty where a new checkpoint begins."""
        last, topic_id = self._progress.last, self._group.topic_id
        entries = {
            partition: replace(last.get(partition, Committed()), offset=starts.get(partition, 0), topic_id=topic_id)
            for partition in ends
        }
        await self._batches.begin(entries, ends)
        self._progress.last = {**last, **entries}

    async def _go_on(self, ranges: Sequence[Range]) -> None:
        for partition, begin, end in ranges:
            if end < begin:
                raise Fatal(
                    f"{self._group.topic}[{partition}] ends at offset {end} and has been read up to {begin}: the "
                    "broker has lost records, so compare its results, and set KEYGROUPING_SPARK_CHECKPOINT to a new "
                    "folder to go on"
                )
        starts = {each.partition: each.begin for each in ranges}
        await self.tell(starts, {each.partition: each.end for each in ranges})
        # Spark tells of finished batches later, and the group must not go back behind this one. What a new checkpoint
        # leaves out is not passed over here before it has been counted.
        self._progress.reading.positions.update(starts)


async def aggregator_stage(environment: Environment) -> Stage:
    """The aggregator stage: `partials` to `results`."""
    settings, upstream = environment.settings, environment.upstream
    group = await environment.open_group("aggregator", settings.partials_topic)
    await _create_progress_topic(environment.admin, settings.progress_topic)
    checkpoint, identity, writer = await _open_results(environment, group)
    positions = await asyncio.to_thread(checkpoint.offsets, settings.partials_topic)
    reading = Reading(settings.partials_topic, positions)
    watermarks = producer(settings)
    await environment.stack.enter_async_context(started(watermarks))

    async def publish(watermark: int) -> None:
        value = json.dumps({"checkpoint": identity.id, "watermark": watermark}).encode()
        await watermarks.send_and_wait(settings.progress_topic, value)

    leftovers = Leftovers(settings)

    async def read_upstream_watermark() -> UpstreamWatermark:
        await group.check()
        if settings.combines:
            return await upstream.of_combined(settings, settings.job.lateness_ms, leftovers.count)
        return await upstream.of_aggregator(settings.group("worker"), settings.routed_topic, settings.partials_topic)

    progress = AggregatorProgress(
        reading=reading,
        read_upstream_watermark=read_upstream_watermark,
        commit=group.commit,
        publish=publish,
        job=settings.job,
        last=group.last,
    )

    async def close_windows(batch: int) -> None:
        await progress.close(await asyncio.to_thread(checkpoint.planned, batch, settings.partials_topic))
        await runner.advance(progress.published)

    letters = Letters(environment.spark.sparkContext)
    sink = _Sink(writer, reading.begin, close_windows, asyncio.get_running_loop(), settings, letters)
    runner = QueryRunner(
        "aggregator",
        lambda: aggregator.start(environment.spark, settings, identity.id, identity.floor, letters, sink.write),
        reading,
        lambda: sink.failure,
    )
    return Stage("aggregator", reading, runner, progress, group.unread(reading), positions)


async def _open_results(environment: Environment, group: Group) -> tuple[Checkpoint, Identity, ResultWriter]:
    """The aggregator's checkpoint, and the writer of its results, which has ended a former driver's.

    A new checkpoint takes for final what the group and the results that are written say. It takes over before they are
    believed: a driver that still writes could be beyond them.
    """
    settings = environment.settings
    plan = aggregator_plan(settings, group.topic_id)
    checkpoint, identity = await environment.open_checkpoint("aggregator")
    if identity is not None:
        checkpoint.require(identity, plan)
    writer = ResultWriter(settings, identity.id if identity else uuid.uuid4().hex)
    environment.stack.push_async_callback(writer.close)
    await retry(writer.open, "taking over from a former driver")
    if identity is None:
        await retry(group.judge, f"reading group {group.name}")
        floor = max(await writer.take_over(), group.watermark)
        identity = await asyncio.to_thread(checkpoint.create, Identity(writer.checkpoint_id, plan, floor))
    else:
        writer.require(await asyncio.to_thread(lambda: checkpoint.last_planned))
        await asyncio.to_thread(checkpoint.repartition, settings.shuffle_partitions)
    return checkpoint, identity, writer


async def _create_progress_topic(client: AIOKafkaAdminClient, topic: str) -> None:
    if not await retry(lambda: partitions_of(client, topic), "reading the topics"):
        replicas = 3 if len((await client.describe_cluster())["brokers"]) >= 3 else 1
        await client.create_topics([NewTopic(topic, 1, replicas, topic_configs={"retention.ms": "-1"})])


class _Sink:
    """Hands each batch from Spark's thread to the writer in the event loop; keeps the error that Spark would wrap."""

    def __init__(
        self,
        writer: ResultWriter,
        begin: Callable[[int], None],
        close_windows: Callable[[int], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
        settings: SparkSettings,
        letters: Letters,
    ) -> None:
        self.writer = writer
        self._letters = letters
        self._topic = settings.partials_topic
        self.failure: BaseException | None = None
        self._begin = begin
        self._close_windows = close_windows
        self._loop = loop

    def write(self, batch: DataFrame, number: int) -> None:
        """Writes a batch and returns when its transaction is committed and its windows' watermark is published."""
        self._begin(number)
        with metrics.STEP_SECONDS.labels("aggregator", "merge").time():
            results = list(records_of(batch.toArrow()))
        failed = [failed_result(self._topic, row) for row in results if row.fault]
        refused = [*self._letters.take(), *failed]
        done: concurrent.futures.Future[None] = asyncio.run_coroutine_threadsafe(
            self._finish(number, results, refused), self._loop
        )
        try:
            done.result()
        except Fatal as error:
            self.failure = error
            raise

    async def _finish(self, number: int, results: list[Written], refused: list[Refused]) -> None:
        with metrics.STEP_SECONDS.labels("aggregator", "commit").time():
            metrics.RESULTS.inc(await self.writer.write(number, results, refused))
        with metrics.STEP_SECONDS.labels("aggregator", "publish").time():
            await retry(lambda: self._close_windows(number), "publishing what is complete")
