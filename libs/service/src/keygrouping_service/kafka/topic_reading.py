"""Reads a topic for `keygrouping inspect`, and leaves no trace: no group, no commit, no topic."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from keygrouping.inspection import Batch, Extraction, InspectionError, Range, Sample, Silence, divided, spread
from keygrouping.job import JobSpec
from keygrouping_kafka.errors import can_be_retried
from pydantic import ValidationError

from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.kafka.topic_fetching import (
    WAIT_MS,
    Fetching,
    Following,
    KeptEvent,
    batch_of,
    kept_by,
)
from keygrouping_service.records.aiokafka_adapter import create_no_topics
from keygrouping_service.settings import ServiceSettings, Settings, describe_faults

Progress: TypeAlias = Callable[[int, int], None]

_STEP = 10_000
"""Offsets of all partitions that are read together: no partition gets further ahead of the others."""
_RANGES = 100
"""Ranges of each partition that make up a sample; more of them where they would be longer than a step."""
_LEAST_RANGE = 100
_FETCH_BYTES = 4 << 20
_REFRESH_MS = 30_000
"""How often the topic is asked for partitions that were added."""


class TopicReading:
    """A topic. What was there at the beginning is read in step over all partitions, or a sample of it; then, with
    `follow`, what comes, with an empty batch now and then while nothing does. Memory: keys and weights of a step, and
    what was fetched."""

    kind = "topic"

    def __init__(
        self, settings: ServiceSettings, topic: str, job: JobSpec, sample: int | None, follow: bool, progress: Progress
    ) -> None:
        self.name = topic
        self.partitions: int | None = None
        self.sample: Sample | None = None
        self.followed = 0
        self.silence: Silence | None = None
        self.left_out: Counter[str] = Counter()
        self._settings = settings
        self._job = job
        self._wanted = sample
        self._follow = follow
        self._progress = progress

    def batches(self) -> Generator[Batch, None, None]:
        """All that is to be read. Raises InspectionError where Kafka doesn't answer, or there is no such topic."""
        with _quiet(), asyncio.Runner() as runner:
            events = self._events()
            try:
                while (found := runner.run(_next(events))) is not None:
                    yield self._batch(found)
            except (KafkaError, OSError) as error:
                said = " ".join(str(error).split()) or type(error).__name__
                if can_be_retried(error):
                    said += "; see whether its brokers run and can be reached, then start again"
                raise InspectionError(
                    f"topic {self.name} at {self._settings.bootstrap_servers} can't be read: {said}"
                ) from None
            finally:
                runner.run(events.aclose())

    async def _events(self) -> AsyncGenerator[Sequence[KeptEvent], None]:
        tps = await self._find()
        source = clients.source(
            self._settings,
            wait_ms=WAIT_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
            metadata_max_age_ms=_REFRESH_MS,
        )
        create_no_topics(source.consumer)
        async with clients.started(source.consumer) as consumer:
            consumer.assign(tps)
            firsts, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
            fetching = Fetching(source, kept_by(self._job))
            fetching.seek(firsts)
            for ranges in self._steps(tps, firsts, ends):
                if self.sample is not None:
                    fetching.seek({tp: wanted.start for tp, wanted in ranges.items()})
                found = await fetching.read(ranges)
                if self.sample is not None:
                    size = self.sample.size + sum(map(len, ranges.values()))
                    self.sample = self.sample._replace(size=size, records=self.sample.records + len(found))
                yield found
            fetching.seek(ends)
            following = Following(fetching, self.name, tps)
            while self._follow:
                found = await following.next()
                self.partitions, self.silence = following.partitions, following.silence
                self.followed += sum(event.fault is None for event in found)
                yield found

    async def _find(self) -> list[TopicPartition]:
        """The topic's partitions. All topics are asked for: by its name alone a broker might create it."""
        async with clients.started(clients.admin(self._settings)) as admin:
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
        if self._wanted is not None and self._wanted < sum(sizes):
            self.sample = Sample(0, sum(sizes), 0)
            wanted = divided(self._wanted, sizes)
            most = max(_RANGES, self._wanted // _STEP)
            parts = max(1, min(most, self._wanted // (_LEAST_RANGE * len(tps))))
        ranges = {tp: spread(firsts[tp], ends[tp], count, parts) for tp, count in zip(tps, wanted, strict=True)}
        for part in range(parts):
            yield {tp: mine[part] for tp, mine in ranges.items()}
            self._progress(part + 1, parts)

    def _batch(self, events: Sequence[KeptEvent]) -> Batch:
        self.left_out.update(event.fault for event in events if event.fault is not None)
        return batch_of(events, self._job)


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
    settings = connection(ServiceSettings, bootstrap_servers)
    return TopicReading(settings, topic, extraction.job(), sample, follow, progress)


def connection(kind: type[Settings], bootstrap_servers: str | None, **given: Any) -> Settings:
    """Settings of this kind from the environment, but for what is given; InspectionError tells all faults."""
    if bootstrap_servers is not None:
        given["bootstrap_servers"] = bootstrap_servers
    try:
        return kind(**given)
    except ValidationError as error:
        faults = "; ".join(describe_faults(kind, error))
        raise InspectionError(f"Kafka can't be reached by these settings: {faults}") from None


async def _next(events: AsyncGenerator[Sequence[KeptEvent], None]) -> Sequence[KeptEvent] | None:
    """The next events, None at the end."""
    return await anext(events, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """What would be logged of clients meanwhile is told by the error that is raised, or by `silence`."""
    loggers = [logging.getLogger(name) for name in ("aiokafka", clients.__name__)]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
