"""Looks at a running pipeline from outside, through Kafka and the router's API, and sums it up for people."""

import contextlib
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import httpx
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping.job import JobSpec
from keygrouping.measure import Distribution, Measures, lambda_
from keygrouping.partial import RecordError, Result
from keygrouping.receipt import Receipt
from keygrouping_observer import offsets
from keygrouping_observer.counting import Counting
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import END, Committed, partitions_of, read_progress, stage_watermark
from keygrouping_service.records.record import Record
from keygrouping_service.records.unpacking import LARGEST_OF_ANY
from keygrouping_service.settings import ServiceSettings, StagesSettings

from keygrouping_local.consumed import Consumed
from keygrouping_local.errors import LocalError
from keygrouping_local.pace import Pace

Stages: TypeAlias = Literal["route", "combine"]
"""Whether routers spread events, or workers read them as they are."""

_LATEST = 8
_HOT_KEYS = 6


@dataclass(frozen=True)
class HotKey:
    """A key spread over several workers: its name if known, how many workers, its share of all weight."""

    key: str
    width: int
    share: float


@dataclass(frozen=True)
class Snapshot:
    """The pipeline at one moment; `run` is all since its start or the last change of workers or their capacities."""

    events: int
    events_per_second: float
    router_lag: int
    worker_lag: int
    late: int
    dead_letters: int
    final_until: int
    results: int
    run: Measures
    capacities: tuple[float, ...] = ()
    """Of the workers in use; none: all that have loads are in use, and alike."""
    hot: tuple[HotKey, ...] = ()
    latest: tuple[Result, ...] = ()

    @property
    def loads(self) -> tuple[float, ...]:
        """Of the workers in use."""
        return self.run.loads[: len(self.capacities) or None]

    @property
    def lambda_(self) -> float:
        """Largest over average load of the workers in use, by capacity."""
        return lambda_(self.loads, self.capacities or None)

    @property
    def is_final(self) -> bool:
        """Whether all results of a finished input are out."""
        return self.final_until >= END


class Observer:
    """Takes snapshots of an application; an async context manager.

    Events are counted by the router's receipts, from the offsets on that it had committed at the observer's start; lags
    are offsets, so transaction markers are among them. Loads and costs come from the partials written since the start,
    each once; late events and dead letters are counted one by one. A worker is a partition of the input if workers read
    that (`stages` of combine).
    """

    def __init__(self, settings: ServiceSettings, job: JobSpec, workers: int, stages: Stages = "route") -> None:
        self._settings = StagesSettings(**settings.model_dump(exclude_unset=True), stages=stages)
        self._counting = Counting(job)
        self._distribution = Distribution(workers)
        self._capacities = (1.0,) * workers
        self._latest: deque[Result] = deque(maxlen=_LATEST)
        self._results = 0
        self._refused = {settings.late_topic: 0, settings.dead_letters_topic: 0}
        self._pace = Pace()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        settings = self._settings
        self._admin = await self._stack.enter_async_context(clients.started(clients.admin(settings)))
        self._probe = await self._stack.enter_async_context(clients.started(clients.reader(settings, committed=False)))
        self._source = clients.source(settings, largest=LARGEST_OF_ANY)
        self._reader = await self._stack.enter_async_context(clients.started(self._source.consumer))
        self._http = await self._stack.enter_async_context(httpx.AsyncClient(timeout=1.0))
        self._partitions = {topic: await self._tps(topic) for topic in self._topics()}
        if settings.stages == "combine":
            self._use((1.0,) * len(self._partitions[settings.events_topic]))
        await self._begin_reading()
        # A broker that has just begun has no coordinator for the group yet.
        routed = await clients.retry(
            lambda: self._committed("router", settings.events_topic), "reading the routers' progress"
        )
        self._consumed = Consumed({partition: entry.offset or 0 for partition, entry in routed.items()})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def look(self, router_url: str | None = None) -> Snapshot:
        """Takes a snapshot; hot keys and which workers are in use are known only by the address of the router's API."""
        settings = self._settings
        found = await offsets.look(settings, self._admin, self._probe, int(time.time() * 1000))
        self._counting.look(found)
        if router_url is not None:
            await self._learn_workers(router_url)
        await self._read_new()
        ends = await self._probe.end_offsets(self._partitions[settings.events_topic])
        routed = await self._committed("router", settings.events_topic)
        finals = await self._committed("aggregator", settings.partials_topic)
        events = self._consumed.events
        return Snapshot(
            events=events,
            events_per_second=self._pace.at(time.monotonic(), events),
            router_lag=sum(end - (routed[tp.partition].offset or 0) for tp, end in ends.items()),
            worker_lag=sum(found.lags) if settings.stages == "route" else 0,
            late=self._refused[settings.late_topic],
            dead_letters=self._refused[settings.dead_letters_topic],
            final_until=stage_watermark({p: entry.progress for p, entry in finals.items()}),
            results=self._results,
            run=self._distribution.run(),
            capacities=self._capacities,
            hot=await self._hot_keys(router_url) if router_url is not None else (),
            latest=tuple(self._latest),
        )

    def _topics(self) -> tuple[str, ...]:
        s = self._settings
        return (s.events_topic, s.partials_topic, s.results_topic, s.late_topic, s.dead_letters_topic, s.receipts_topic)

    async def _tps(self, topic: str) -> list[TopicPartition]:
        partitions = await partitions_of(self._admin, topic)
        if not partitions:
            raise LocalError(f"topic {topic} does not exist")
        return [TopicPartition(topic, partition) for partition in partitions]

    async def _begin_reading(self) -> None:
        settings = self._settings
        topics = (settings.partials_topic, settings.results_topic, settings.receipts_topic)
        followed = [tp for topic in topics for tp in self._partitions[topic]]
        counted = [tp for topic in self._refused for tp in self._partitions[topic]]
        reader: AIOKafkaConsumer = self._reader
        reader.assign([*followed, *counted])
        await reader.seek_to_beginning(*counted)
        for tp, end in (await reader.end_offsets(followed)).items():
            recent = end - _LATEST if tp.topic == settings.results_topic else end
            reader.seek(tp, max(recent, 0))

    async def _read_new(self) -> None:
        while batches := await self._source.poll(most=5000, timeout=0.0):
            for tp, records in batches.items():
                if tp.topic in self._refused:
                    self._refused[tp.topic] += len(records)
                    continue
                for record in records:
                    if tp.topic == self._settings.partials_topic:
                        self._count(record)
                    elif tp.topic == self._settings.receipts_topic:
                        self._count_consumed(record)
                    else:
                        self._count_result(record)
        for letter in self._source.left_out():
            if letter.record.topic in self._refused:
                self._refused[letter.record.topic] += 1
        partials = [tp for tp in self._reader.assignment() if tp.topic == self._settings.partials_topic]
        positions = {tp.partition: await self._reader.position(tp) for tp in partials}
        self._counting.forget(lambda ends: all(positions.get(number, 0) >= end for number, end in ends.items()))

    def _count(self, record: Record) -> None:
        """Counts a partial; the aggregator tells of one that can't be used."""
        with contextlib.suppress(RecordError):
            if counted := self._counting.count(record):
                key, partial = counted
                self._distribution.add(partial.worker, key, partial.weight, partial.events)

    def _count_consumed(self, record: Record) -> None:
        """Counts what a transaction consumed; the audit tells of a receipt that can't be used."""
        with contextlib.suppress(RecordError):
            self._consumed.add(Receipt.decode(record.value))

    def _count_result(self, record: Record) -> None:
        """Counts a result, and keeps it to be shown; one that can't be used was written by somebody else."""
        with contextlib.suppress(RecordError):
            self._latest.append(Result.decode(record.value))
            self._results += 1

    async def _committed(self, stage: str, topic: str) -> dict[int, Committed]:
        partitions = [tp.partition for tp in self._partitions[topic]]
        return await read_progress(self._admin, self._settings.group(stage), topic, partitions)

    async def _learn_workers(self, router_url: str) -> None:
        """Which workers are in use; what was measured with others says nothing of these."""
        told = await self._ask(router_url, "workers")
        if told is None:
            return
        capacities = tuple(float(item["capacity"]) for item in told["items"][: told["workers"]])
        if capacities != self._capacities:
            self._use(capacities)

    def _use(self, capacities: tuple[float, ...]) -> None:
        self._capacities = capacities
        self._distribution = Distribution(len(capacities))

    async def _hot_keys(self, router_url: str) -> tuple[HotKey, ...]:
        told = await self._ask(router_url, "keyspace", limit=_HOT_KEYS, sort="width")
        hot = [key for key in told["keys"] if key["hot"]] if told is not None else []
        return tuple(HotKey(key["key"] or key["id"], int(key["width"]), float(key["share"])) for key in hot)

    async def _ask(self, router_url: str, path: str, **wanted: str | int) -> Any | None:
        """What the router's API answers; None if it can't just now."""
        try:
            answer = await self._http.get(f"{router_url.rstrip('/')}/{path}", params=wanted)
            return answer.raise_for_status().json()
        except httpx.HTTPError:
            return None
