"""Fetches the records of a topic, keeps of each only what is asked for, and notices when Kafka doesn't answer."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError, OffsetOutOfRangeError
from keygrouping.inspection import Batch, Range, Silence
from keygrouping.inspection.extraction import extract
from keygrouping.job import JobSpec, Rejection

from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import DeadLetter, Record, by_partition, in_order

WAIT_MS = 200
_TIMEOUT = 60.0
"""Seconds of waiting without progress after which reading is given up."""
_SILENCE = 10.0
"""Seconds of waiting after which a partition without an answer is told; a broker answers within `WAIT_MS`."""
_RECORDS = 500
_ROUNDS = 20


class KeptEvent(NamedTuple):
    """What is kept of a record: not its value, which may be large."""

    partition: int
    offset: int
    time_ms: int
    key: bytes
    weight: float
    fault: str | None
    """Why the record can't be used."""


class Fetching:
    """A started consumer with assigned partitions, and what it has fetched beyond what was asked for.

    What can't be read or is too large is an event with a fault, as it is a dead letter of a router. Memory: some
    hundred records at a time, beside the events.
    """

    def __init__(self, source: PartitionsSource, kept: Callable[[Record], KeptEvent]) -> None:
        self.consumer = source.consumer
        self._source = source
        self._kept = kept
        self._spare: dict[TopicPartition, list[KeptEvent]] = {}

    def seek(self, places: Mapping[TopicPartition, int]) -> None:
        """Go on at these offsets; what was fetched beyond is forgotten."""
        self._spare.clear()
        self._source.left_out()
        for tp, offset in places.items():
            self.consumer.seek(tp, offset)

    async def positions(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset of each partition."""
        return {tp: await self.consumer.position(tp) for tp in tps}

    async def read(self, ranges: Mapping[TopicPartition, Range]) -> list[KeptEvent]:
        """The events in these ranges, those of all partitions evenly mixed; TimeoutError if there is no progress."""
        found: dict[TopicPartition, list[KeptEvent]] = {tp: [] for tp in ranges}
        behind = [tp for tp, wanted in ranges.items() if wanted]
        before: dict[TopicPartition, int] = {}
        waited = 0.0
        while behind:
            for tp in behind:
                fetched = self._spare.pop(tp, [])
                cut = bisect_left(fetched, ranges[tp].stop, key=attrgetter("offset"))
                found[tp] += fetched[:cut]
                if fetched[cut:]:
                    self._spare[tp] = fetched[cut:]
            positions = await self.positions(tp for tp in behind if tp not in self._spare)
            behind = [tp for tp, position in positions.items() if position < ranges[tp].stop]
            if behind:
                began = time.monotonic()
                for tp, events in (await self._fetched(behind)).items():  # of others what was left out, too
                    self._spare.setdefault(tp, []).extend(events)
                waited = waited + time.monotonic() - began if positions == before else 0.0
                before = positions
            if waited > _TIMEOUT:
                raise TimeoutError(_standing(behind))
        return _mixed(found)

    async def next(self, tps: Sequence[TopicPartition]) -> list[KeptEvent]:
        """What comes next of these partitions, mixed; nothing if nothing comes for a moment."""
        return _mixed(await self._fetched(tps))

    async def _fetched(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, list[KeptEvent]]:
        """What comes next of each; what retention has deleted meanwhile is passed over."""
        found: dict[TopicPartition, list[KeptEvent]] = defaultdict(list)
        wait = WAIT_MS / 1000
        for _ in range(_ROUNDS):
            records: Mapping[TopicPartition, RecordBatch] = {}
            try:
                records = await self._source.poll(*tps, most=_RECORDS, timeout=wait)
            except OffsetOutOfRangeError:
                await self._pass_over(tps)
            letters = by_partition(self._source.left_out())
            if not records and not letters:
                break
            for tp in {*records, *letters}:
                found[tp] += map(self._event, in_order(records.get(tp, ()), letters.get(tp, ())))
            wait = 0.0
        return found

    def _event(self, found: Record | DeadLetter) -> KeptEvent:
        if isinstance(found, Record):
            return self._kept(found)
        record = found.record
        return KeptEvent(record.partition, record.offset, record.timestamp, b"", 0.0, found.reason)

    async def _pass_over(self, tps: Sequence[TopicPartition]) -> None:
        with suppress(KafkaTimeoutError):  # it will be out of range again
            firsts = await self.consumer.beginning_offsets(tps)
            for tp, position in (await self.positions(tps)).items():
                if position < firsts[tp]:
                    self.consumer.seek(tp, firsts[tp])


@dataclass
class _Answer:
    """The last answer for a partition, and the seconds that another one has been waited for."""

    mark: tuple[int | None, int]
    at_ms: int
    waited: float = 0.0


class Following:
    """What comes to a topic, from the offsets on where the consumer is, and to partitions that are added meanwhile."""

    def __init__(self, fetching: Fetching, topic: str, tps: Sequence[TopicPartition]) -> None:
        self.partitions = len(tps)
        self.silence: Silence | None = None
        self._fetching = fetching
        self._topic = topic
        self._tps = list(tps)
        self._answers: dict[TopicPartition, _Answer] = {}

    async def next(self) -> list[KeptEvent]:
        """What comes next, nothing if nothing comes for a moment; `silence` and `partitions` are known by then."""
        await self._take_added()
        began = time.monotonic()
        found = await self._fetching.next(self._tps)
        drained = len(found) < _ROUNDS * _RECORDS
        await self._listen(time.monotonic() - began if drained else 0.0)
        return found

    async def _take_added(self) -> None:
        """Reads partitions that are new, too, from their beginning."""
        consumer = self._fetching.consumer
        numbers = consumer.partitions_for_topic(self._topic) or set()
        added = sorted(numbers - {tp.partition for tp in self._tps})
        if not added:
            return
        places = await self._fetching.positions(self._tps)
        places |= {TopicPartition(self._topic, number): 0 for number in added}
        self._tps = list(places)
        self.partitions = len(places)
        consumer.assign(self._tps)
        self._fetching.seek(places)

    async def _listen(self, seconds: float) -> None:
        """Finds out whether there was an answer. Only waiting counts: while events are taken in, or lie ready, nobody
        asks for more."""
        now_ms = int(1000 * time.time())
        for tp, position in (await self._fetching.positions(self._tps)).items():
            mark = (self._fetching.consumer.last_poll_timestamp(tp), position)
            answer = self._answers.get(tp)
            if answer is None or answer.mark != mark:
                self._answers[tp] = _Answer(mark, now_ms)
            else:
                answer.waited += seconds
        silent = [answer.at_ms for answer in self._answers.values() if answer.waited > _SILENCE]
        self.silence = Silence(min(silent), len(silent), len(self._tps)) if silent else None


def kept_by(job: JobSpec) -> Callable[[Record], KeptEvent]:
    """What keeps of a record the key and weight that a job takes from it."""

    def kept(record: Record) -> KeptEvent:
        extracted = extract(job, record.key, record.value, record.headers)
        place = (record.partition, record.offset, record.timestamp)
        if isinstance(extracted, Rejection):
            return KeptEvent(*place, b"", 0.0, extracted.reason)
        return KeptEvent(*place, extracted.key, extracted.weight, None)

    return kept


def batch_of(events: Sequence[KeptEvent], job: JobSpec) -> Batch:
    """The events that the job can use."""
    used = [event for event in events if event.fault is None]
    return Batch(
        [event.key for event in used],
        None if job.weight.kind == "one" else np.array([event.weight for event in used], np.float64),
        np.array([event.partition for event in used], np.int64),
        np.array([event.time_ms for event in used], np.int64),
    )


def _mixed(found: Mapping[TopicPartition, Sequence[KeptEvent]]) -> list[KeptEvent]:
    """The events of all partitions, each partition's evenly spread over the whole."""
    placed = [((number + 0.5) / len(events), event) for events in found.values() for number, event in enumerate(events)]
    return [event for _, event in sorted(placed, key=itemgetter(0))]


def _standing(behind: Sequence[TopicPartition]) -> str:
    """What is said of partitions of which nothing comes."""
    shown = ", ".join(str(tp.partition) for tp in sorted(behind)[:8])
    more = f" and {len(behind) - 8:,} more" if len(behind) > 8 else ""
    return f"nothing came for {_TIMEOUT:.0f} s from partitions {shown}{more}, though there are records to read"
