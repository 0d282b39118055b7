"""Pre-aggregation of one worker's routed events per window and key, in memory between two flushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import State
from keygrouping.aggregate.exact import sum_of
from keygrouping.grouped import grouped
from keygrouping.identity import Sums, partition_seeds
from keygrouping.job import EventColumns, JobSpec, Rejection, extract_columns
from keygrouping.partial import Partial
from keygrouping.slices import Slices

_ANY_TIME = 1 << 62


Place = tuple[int, bytes]
"""Window start and key."""


@dataclass(slots=True)
class _Group:
    """What has been seen of one key in one window since the last flush; `number` is that of its hashes' sum."""

    events: int
    weight: int | float
    first: int
    last: int
    number: int
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
        self._sums = Sums(partition_seeds(topic, worker))
        self._groups: dict[Place, _Group] = {}
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def key_bytes(self) -> int:
        """Bytes of all keys held; with the number of groups it bounds the memory in use."""
        return self._key_bytes

    def add(self, events: RoutedEvents) -> list[tuple[int, Rejection]]:
        """Takes a batch; returns the rows that the job can't use: not the router's, or routed under another job."""
        found = extract_columns(self._job, events, _ANY_TIME)
        starts = found.times - (found.times - self._job.window_offset_ms) % self._job.window_ms
        keys = Slices.of(found.keys)
        rows, sizes, firsts = grouped(keys, starts)
        offsets = found.events.offsets[rows]
        weights = None if found.weights is None else list(found.weights)
        weights = weights and [weights[row] for row in rows.tolist()]
        columns = [] if found.fields is None else [list(column.where(rows)) for column in found.fields.columns]
        values = [_values(columns, positions, len(rows)) for positions in self._job.fields_of]
        places = cast(Iterator[Place], zip(starts[firsts].tolist(), keys.where(firsts), strict=True))
        ends = np.cumsum(sizes)
        bounds = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        edges = zip(offsets[ends - sizes].tolist(), offsets[ends - 1].tolist(), strict=True)
        numbers = []
        for place, (begin, end), (first, last) in zip(places, bounds, edges, strict=True):
            group = self._groups.get(place) or self._new_group(place, first)
            group.last = last
            group.events += end - begin
            group.weight += end - begin if weights is None else sum_of(weights[begin:end])
            numbers.append(group.number)
            for index, aggregate in enumerate(self._job.aggregates):
                group.states[index] = aggregate.add_many(group.states[index], values[index][begin:end])
        self._sums.add(offsets, sizes, numbers)
        return found.rejected

    def _new_group(self, place: Place, first: int) -> _Group:
        self._key_bytes += len(place[1])
        states = [aggregate.initial() for aggregate in self._job.aggregates]
        group = self._groups[place] = _Group(0, 0, first, first, len(self._groups), states)
        return group

    def partials(self, epoch: int) -> Iterator[tuple[bytes, Partial]]:
        """Key and partial of every group, the oldest window first."""
        aggregates, receipts = self._job.aggregates, self._sums.all(len(self._groups))
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
                    receipt=receipts[group.number],
                    topic=self._topic,
                ),
            )

    def clear(self) -> None:
        """Forgets everything: the next event of a key begins a new partial."""
        self._groups.clear()
        self._sums.clear()
        self._key_bytes = 0


def _values(columns: Sequence[Sequence[Any]], positions: tuple[int, ...], events: int) -> Sequence[Any]:
    """What an aggregate is given of the fields of some events: see `Aggregate`."""
    if not positions:
        return [()] * events
    if len(positions) == 1:
        return columns[positions[0]]
    return list(zip(*(columns[position] for position in positions), strict=True))
