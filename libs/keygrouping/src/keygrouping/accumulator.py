"""Pre-aggregation of one worker's routed events per window and key, in memory between two flushes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import State
from keygrouping.aggregate.exact import sum_of
from keygrouping.identity import hashes_of, partition_seeds, tallies
from keygrouping.job import EventColumns, FieldValue, JobSpec, Rejection, extract_columns, picker
from keygrouping.partial import Partial
from keygrouping.receipt import MODULUS, Tally

_ANY_TIME = 1 << 62


Place = tuple[int, bytes]
"""Window start and key."""

Row = tuple[int, int | float, tuple[FieldValue, ...]]
"""Offset, weight and fields of an event."""

Item = TypeVar("Item")


@dataclass(slots=True)
class _Group:
    """What has been seen of one key in one window since the last flush."""

    events: int
    weight: int | float
    first: int
    last: int
    receipt: int
    states: list[State]


class RoutedEvents(EventColumns, Protocol):
    """A batch of routed events with their offsets, which rise."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...


class Accumulator:
    """Groups of one routed partition. Events are grouped per batch first, so that states are touched once per batch.

    `worker` is the partition's number, and the `worker` of the partials; `topic` is the id of the topic.
    """

    def __init__(self, job: JobSpec, worker: int, topic: str) -> None:
        self._job = job
        self._worker = worker
        self._topic = topic
        self._seeds = partition_seeds(topic, worker)
        self._groups: dict[Place, _Group] = {}
        self._key_bytes = 0
        self._columns = list(zip(job.aggregates, map(picker, job.fields_of), strict=True))

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def key_bytes(self) -> int:
        """Bytes of all keys held; with the number of groups it bounds the memory in use."""
        return self._key_bytes

    def add(self, events: RoutedEvents) -> list[tuple[int, Rejection]]:
        """Takes a batch; returns the rows that the job can't use: not the router's, or routed under another job."""
        found = extract_columns(self._job, events, _ANY_TIME)
        starts = (found.times - (found.times - self._job.window_offset_ms) % self._job.window_ms).tolist()
        offsets = found.events.offsets.tolist()
        if found.weights is None and found.fields is None:
            self._merge_plain(_gathered(zip(starts, found.keys, strict=True), offsets))
        else:
            weights = found.weights or repeat(1)
            rows = zip(offsets, weights, found.fields or repeat(()), strict=False)
            self._merge(_gathered(zip(starts, found.keys, strict=True), rows))
        return found.rejected

    def _merge_plain(self, places: dict[Place, list[int]]) -> None:
        sums = self._sums([offset for offsets in places.values() for offset in offsets], places.values())
        for (place, offsets), added in zip(places.items(), sums, strict=True):
            group = self._group(place, offsets[0], offsets[-1], added)
            group.weight += len(offsets)
            self._aggregate(group, [()] * len(offsets))

    def _merge(self, batch: dict[Place, list[Row]]) -> None:
        sums = self._sums([row[0] for rows in batch.values() for row in rows], batch.values())
        for (place, rows), added in zip(batch.items(), sums, strict=True):
            group = self._group(place, rows[0][0], rows[-1][0], added)
            group.weight += sum_of([weight for _, weight, _ in rows])
            self._aggregate(group, [fields for _, _, fields in rows])

    def _sums(self, offsets: list[int], groups: Iterable[Sized]) -> list[Tally]:
        """Number and sum of the hashes of each group of a batch; `offsets` are those of one group after the other."""
        return tallies(hashes_of(np.array(offsets, np.int64), self._seeds), list(map(len, groups)))

    def _group(self, place: Place, first: int, last: int, added: Tally) -> _Group:
        """The group of a place, with so many events more, from `first` to `last`."""
        group = self._groups.get(place)
        if group is None:
            self._key_bytes += len(place[1])
            states = [aggregate.initial() for aggregate in self._job.aggregates]
            group = self._groups[place] = _Group(0, 0, first, 0, 0, states)
        group.events += added.events
        group.receipt = (group.receipt + added.hashes) % MODULUS
        group.last = last
        return group

    def _aggregate(self, group: _Group, fields: list[tuple[FieldValue, ...]]) -> None:
        for index, (aggregate, pick) in enumerate(self._columns):
            values = fields if pick is None else list(map(pick, fields))
            group.states[index] = aggregate.add_many(group.states[index], values)

    def partials(self, epoch: int) -> Iterator[tuple[bytes, Partial]]:
        """Key and partial of every group, the oldest window first."""
        aggregates = self._job.aggregates
        for (start, key), group in sorted(self._groups.items(), key=lambda item: item[0][0]):
            states = {a.name: a.encode(state) for a, state in zip(aggregates, group.states, strict=True)}
            yield (
                key,
                Partial(
                    worker=self._worker,
                    start=start,
                    end=start + self._job.window_ms,
                    events=group.events,
                    weight=group.weight,
                    first=group.first,
                    last=group.last,
                    epoch=epoch,
                    aggregates=states,
                    receipt=group.receipt,
                    topic=self._topic,
                ),
            )

    def clear(self) -> None:
        """Forgets everything: the next event of a key begins a new partial."""
        self._groups.clear()
        self._key_bytes = 0


def _gathered(places: Iterable[Place], items: Iterable[Item]) -> dict[Place, list[Item]]:
    """What belongs to each place, in order."""
    batch: dict[Place, list[Item]] = defaultdict(list)
    for place, item in zip(places, items, strict=True):
        batch[place].append(item)
    return batch
