"""End-to-end latency of sampled events: from the event's own timestamp to that of the partial that holds it.

The observer reads offsets of what workers read, not its records. So it chooses a few partials of each worker, as a
function of their identities and likelier the more events they hold, and looks up the timestamp of the first or last
event of each.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import mmh3
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from keygrouping.partial import NO_TOPIC, Partial
from keygrouping_service.observability.final_results import HISTORICAL_MS
from keygrouping_service.observability.metrics import LATENCY_BUCKETS
from keygrouping_service.records.aiokafka_adapter import PartitionsSource

log = logging.getLogger(__name__)

_WORDS = 1 << 64
_TIMEOUT_SECONDS = 3.0


class Sample(NamedTuple):
    """An event to look up: where it ranks among the others, its offset, when its partial was written, and the id of the
    topic that it is in: workers may read another one from some moment on.
    """

    rank: float
    offset: int
    written: int
    topic: str = NO_TOPIC


class Samples:
    """The chosen events of one interval, at most `most` of each worker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._chosen: dict[int, list[Sample]] = {}

    def add(self, key: bytes, partial: Partial, written: int) -> None:
        """Perhaps chooses an event of this partial, which was written at a time (ms)."""
        if not self._most:
            return
        hashed = mmh3.hash64(b"%d|%d|%b" % (partial.start, partial.first, key), signed=False)
        # The largest of ln(u) / events: in proportion to the events, without replacement (Efraimidis and Spirakis).
        rank = math.log((hashed[0] + 1) / _WORDS) / partial.events
        sample = Sample(rank, partial.last if hashed[1] & 1 else partial.first, written, partial.topic)
        chosen = self._chosen.setdefault(partial.worker, [])
        if len(chosen) < self._most:
            heapq.heappush(chosen, sample)
        elif sample > chosen[0]:
            heapq.heapreplace(chosen, sample)

    @property
    def by_worker(self) -> dict[int, list[Sample]]:
        """What has been chosen, in the order of its offsets."""
        return {worker: sorted(chosen, key=lambda s: s.offset) for worker, chosen in self._chosen.items()}


async def look_up(
    source: PartitionsSource, topics: Mapping[str, str], samples: Mapping[int, Sequence[Sample]]
) -> list[float]:
    """The latencies in seconds; without those whose events are gone, can't be read now, or carry a time of another day.

    `topics` are the names of those that events may be in, by their ids; samples of others are gone.
    `source` is of a consumer without group; that is left with all its partitions paused.
    """
    found: list[float] = []
    if not samples:
        return found
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await _look_up(source, _by_partition(topics, samples), found)
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning("cannot look up events of %s to measure latency: %r", ", ".join(sorted(topics.values())), error)
    finally:
        # Not `unsubscribe`: aiokafka's fetcher doesn't survive it.
        source.consumer.pause(*source.consumer.assignment())
    return found


def _by_partition(
    topics: Mapping[str, str], samples: Mapping[int, Sequence[Sample]]
) -> dict[TopicPartition, list[Sample]]:
    found: dict[TopicPartition, list[Sample]] = {}
    for worker, chosen in samples.items():
        for sample in chosen:
            if sample.topic in topics:
                found.setdefault(TopicPartition(topics[sample.topic], worker), []).append(sample)
    return found


async def _look_up(
    source: PartitionsSource, wanted: Mapping[TopicPartition, Sequence[Sample]], found: list[float]
) -> None:
    """One event of every partition, then the next one of every one and so on: a fetch serves all of them at once."""
    reader = source.consumer
    firsts, ends = await reader.beginning_offsets(list(wanted)), await reader.end_offsets(list(wanted))
    kept = {tp: [s for s in chosen if firsts[tp] <= s.offset < ends[tp]] for tp, chosen in wanted.items()}
    there = {tp: chosen for tp, chosen in kept.items() if chosen}
    if not there:
        return
    reader.assign(list(there))
    reader.pause(*there)
    source.left_out()  # the last time, if that was given up
    for turn in zip_longest(*there.values()):
        due = {tp: sample for tp, sample in zip(there, turn, strict=True) if sample is not None}
        for tp, sample in due.items():
            reader.seek(tp, sample.offset)
        reader.resume(*due)
        while due:
            batches = await source.poll(*due, most=1, timeout=_TIMEOUT_SECONDS)
            left_out = [letter.record for letter in source.left_out()]
            for event in (*left_out, *chain.from_iterable(batches.values())):
                tp = TopicPartition(event.topic, event.partition)
                sample = due.pop(tp, None)
                if sample is None:
                    continue
                # Drops what was fetched beyond: unread records of one partition hold up the next fetch of all.
                reader.pause(tp)
                reader.seek(tp, sample.offset)
                age = sample.written - event.timestamp
                if event.offset == sample.offset and age < HISTORICAL_MS:
                    found.append(max(0.0, age / 1000))


def counts_of(latencies: Sequence[float]) -> list[float]:
    """How many are at most each bound of the metric's buckets and above the one before; then those above all."""
    counts = [0.0] * (len(LATENCY_BUCKETS) + 1)
    for latency in latencies:
        counts[bisect_left(LATENCY_BUCKETS, latency)] += 1
    return counts


def quantile(latencies: Sequence[float], part: float) -> float | None:
    """The latency that this part (above 0, up to 1) of the events doesn't exceed; None without any."""
    return sorted(latencies)[math.ceil(part * len(latencies)) - 1] if latencies else None
