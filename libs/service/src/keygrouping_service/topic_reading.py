"""Reads a topic for `keygrouping inspect`, and leaves no trace: no group, no commit, no topic."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from keygrouping.inspection import Batch, Extraction, InspectionError, Range, divided, spread
from keygrouping.inspection.extraction import extract
from keygrouping.job import JobSpec, Rejection
from pydantic import ValidationError

from keygrouping_service import kafka
from keygrouping_service.lenient import read_leniently
from keygrouping_service.progress import partitions_of
from keygrouping_service.settings import ServiceSettings, describe_faults

Record: TypeAlias = ConsumerRecord[bytes, bytes]
Progress: TypeAlias = Callable[[int, int], None]

_STEP = 10_000
"""Offsets of all partitions that are read together: no partition gets further ahead of the others."""
_RANGES = 100
"""Ranges of each partition that make up a sample; more of them where they would be longer than a step."""
_LEAST_RANGE = 100
_WAIT_MS = 200
_RECORDS = 10_000
_FETCH_BYTES = 4 << 20


class TopicReading:
    """A topic. What was there at the begin is read in step over all partitions, or a sample of it; then, with
    `follow`, what comes, with an empty batch now and then while nothing does. Memory: a step, and what was fetched."""

    kind = "topic"

    def __init__(
        self, settings: ServiceSettings, topic: str, job: JobSpec, sample: int | None, follow: bool, progress: Progress
    ) -> None:
        self.name = topic
        self.partitions: int | None = None
        self.sampled_of: int | None = None
        self.left_out: Counter[str] = Counter()
        self._settings = settings
        self._job = job
        self._sample = sample
        self._follow = follow
        self._progress = progress

    def batches(self) -> Generator[Batch, None, None]:
        """All that is to be read. Raises InspectionError where Kafka can't be asked, or there is no such topic."""
        read_leniently()
        with _quiet(), asyncio.Runner() as runner:
            records = self._records()
            try:
                while (found := runner.run(_next(records))) is not None:
                    yield self._batch(found)
            except (KafkaError, OSError) as error:
                said = " ".join(str(error).split()) or type(error).__name__
                raise InspectionError(
                    f"topic {self.name} at {self._settings.bootstrap_servers} can't be read: {said}"
                ) from None
            finally:
                runner.run(records.aclose())

    async def _records(self) -> AsyncGenerator[Sequence[Record], None]:
        tps = await self._find()
        client = kafka.reader(self._settings, wait_ms=_WAIT_MS, max_partition_fetch_bytes=_FETCH_BYTES)
        _create_no_topics(client)
        async with kafka.started(client) as consumer:
            consumer.assign(tps)
            firsts, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
            for tp in tps:
                consumer.seek(tp, firsts[tp])
            spare: dict[TopicPartition, list[Record]] = {}
            for ranges in self._steps(tps, firsts, ends):
                if self.sampled_of is not None:
                    spare.clear()
                    for tp, wanted in ranges.items():
                        consumer.seek(tp, wanted.start)
                yield await _read(consumer, ranges, spare)
            if self._follow:
                for tp in tps:
                    consumer.seek(tp, ends[tp])
            while self._follow:
                yield _mixed(await _fetched(consumer, tps))

    async def _find(self) -> list[TopicPartition]:
        """The topic's partitions. All topics are asked for: by its name alone a broker might create it."""
        async with kafka.started(kafka.admin(self._settings)) as admin:
            if self.name not in await admin.list_topics():
                raise InspectionError(
                    f"topic {self.name} does not exist at {self._settings.bootstrap_servers}, or may not be seen"
                )
            found = await partitions_of(admin, self.name)
        self.partitions = len(found)
        return [TopicPartition(self.name, partition) for partition in found]

    def _steps(
        self, tps: Sequence[TopicPartition], firsts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> Iterator[dict[TopicPartition, Range]]:
        """What is read together; tells the progress when it was."""
        sizes = [ends[tp] - firsts[tp] for tp in tps]
        wanted = sizes
        parts = max(1, -(-sum(sizes) // _STEP))
        if self._sample is not None and self._sample < sum(sizes):
            self.sampled_of = sum(sizes)
            wanted = divided(self._sample, sizes)
            most = max(_RANGES, self._sample // _STEP)
            parts = max(1, min(most, self._sample // (_LEAST_RANGE * len(tps))))
        ranges = {tp: spread(firsts[tp], ends[tp], count, parts) for tp, count in zip(tps, wanted, strict=True)}
        for part in range(parts):
            yield {tp: mine[part] for tp, mine in ranges.items()}
            self._progress(part + 1, parts)

    def _batch(self, records: Sequence[Record]) -> Batch:
        keys, weights, partitions, times = [], [], [], []
        for record in records:
            extracted = extract(self._job, record.key, record.value, record.headers)
            if isinstance(extracted, Rejection):
                self.left_out[extracted.reason] += 1
                continue
            keys.append(extracted.key)
            weights.append(extracted.weight)
            partitions.append(record.partition)
            times.append(record.timestamp)
        return Batch(
            keys,
            None if self._job.weight.kind == "one" else np.array(weights, np.float64),
            np.array(partitions, np.int64),
            min(times, default=None),
            max(times, default=None),
        )


def open_topic(
    topic: str,
    extraction: Extraction,
    *,
    bootstrap_servers: str | None,
    sample: int | None,
    follow: bool,
    progress: Progress,
) -> TopicReading:
    """A reading of a topic of the brokers that the environment names, unless others are given.

    Raises InspectionError for settings that can't be used.
    """
    given: dict[str, Any] = {} if bootstrap_servers is None else {"bootstrap_servers": bootstrap_servers}
    try:
        settings = ServiceSettings(**given)
    except ValidationError as error:
        faults = "; ".join(describe_faults(ServiceSettings, error))
        raise InspectionError(f"Kafka can't be reached by these settings: {faults}") from None
    return TopicReading(settings, topic, extraction.job(), sample, follow, progress)


async def _next(records: AsyncGenerator[Sequence[Record], None]) -> Sequence[Record] | None:
    """The next records, None at the end."""
    return await anext(records, None)


async def _read(
    consumer: AIOKafkaConsumer, ranges: Mapping[TopicPartition, Range], spare: dict[TopicPartition, list[Record]]
) -> list[Record]:
    """The records in these ranges, those of all partitions evenly mixed; `spare` keeps what was fetched beyond."""
    found: dict[TopicPartition, list[Record]] = {tp: [] for tp in ranges}
    behind = [tp for tp, wanted in ranges.items() if wanted]
    while behind:
        for tp in behind:
            fetched = spare.pop(tp, [])
            cut = bisect_left(fetched, ranges[tp].stop, key=lambda record: record.offset)
            found[tp] += fetched[:cut]
            if fetched[cut:]:
                spare[tp] = fetched[cut:]
        behind = [tp for tp in behind if tp not in spare and await consumer.position(tp) < ranges[tp].stop]
        if behind:
            spare.update(await _fetched(consumer, behind))
    return _mixed(found)


def _mixed(found: Mapping[TopicPartition, Sequence[Record]]) -> list[Record]:
    """The records of all partitions, each partition's evenly spread over the whole."""
    placed = [
        ((number + 0.5) / len(records), record) for records in found.values() for number, record in enumerate(records)
    ]
    return [record for _, record in sorted(placed, key=itemgetter(0))]


async def _fetched(consumer: AIOKafkaConsumer, tps: Sequence[TopicPartition]) -> dict[TopicPartition, list[Record]]:
    """What comes next of these partitions; what retention has deleted meanwhile is passed over."""
    try:
        found: dict[TopicPartition, list[Record]] = await consumer.getmany(
            *tps, timeout_ms=_WAIT_MS, max_records=_RECORDS
        )
    except OffsetOutOfRangeError:
        firsts = await consumer.beginning_offsets(tps)
        for tp in tps:
            if await consumer.position(tp) < firsts[tp]:
                consumer.seek(tp, firsts[tp])
        return {}
    return found


def _create_no_topics(consumer: AIOKafkaConsumer) -> None:
    """Lets the client ask for the metadata of all topics, never of one by its name.

    aiokafka lets brokers create the topics that it names, so one that is deleted while it is read would be back, empty.
    """
    ask = consumer._client._metadata_update
    consumer._client._metadata_update = lambda metadata, topics: ask(metadata, ())  # noqa: ARG005


@contextmanager
def _quiet() -> Iterator[None]:
    """What the client would log meanwhile is told by the error that it raises."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
