"""Pre-aggregation of one partition's events per window and key, in memory between two flushes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.folds import Batch, Totals, fold_of, reaching
from keygrouping.grouped import Groups
from keygrouping.identity import Sums, partition_seeds
from keygrouping.job import EventColumns, ExtractedColumns, JobSpec, Rejection, extract_columns
from keygrouping.partial import Partial
from keygrouping.slices import Slices

_ANY_TIME = 1 << 62
_EVENTS, _FIRST, _LAST, _SUM = range(4)
"""Columns of what is noted of each group; from the last one on there are two for the sum of hashes."""


class OffsetColumns(EventColumns, Protocol):
    """A batch of events of one partition with their offsets, which rise."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...


OffsetEvents = TypeVar("OffsetEvents", bound=OffsetColumns)


class Accumulator:
    """Groups of one partition, a key in a window each, to which whole batches are added.

    It is a partition of the routed topic, or of the input where that is combined without being routed. `worker` is its
    number, and the `worker` of the partials; `topic` is the id of the topic.
    """

    _notes: NDArray[np.int64]

    def __init__(self, job: JobSpec, worker: int, topic: str) -> None:
        self._job = job
        self._worker = worker
        self._topic = topic
        self._sums = Sums(partition_seeds(topic, worker))
        self.clear()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def key_bytes(self) -> int:
        """Bytes of all keys held; with the number of groups it bounds the memory in use."""
        return self._groups.key_bytes

    def add(self, events: OffsetColumns) -> list[tuple[int, Rejection]]:
        """Takes a batch; returns the rows that the job can't use: not the router's, or routed under another job."""
        found = extract_columns(self._job, events, _ANY_TIME)
        self.add_extracted(found)
        return found.rejected

    def add_extracted(self, found: ExtractedColumns[OffsetEvents]) -> None:
        """Takes what the job takes of a batch of usable events."""
        starts = found.times - (found.times - self._job.window_offset_ms) % self._job.window_ms
        before = len(self._groups)
        runs = self._groups.add(Slices.of(found.keys), starts)
        batch = Batch(runs, found.fields.columns if found.fields is not None else (), len(self._groups))
        self._place(batch, found.events.offsets, before)
        if found.weights is not None:
            self._weights.add_column(batch, found.weights)
        for fold, positions in zip(self._folds, self._job.fields_of, strict=True):
            fold.add(batch, positions)

    def _place(self, batch: Batch, offsets: NDArray[np.int64], before: int) -> None:
        """Notes how many events there are of each group and at which offsets; the groups from `before` on are new."""
        rows, sizes, groups = batch.runs
        notes = self._notes = reaching(self._notes, batch.groups)
        new = groups >= before
        notes[groups[new], _FIRST] = offsets[rows[batch.begins[new]]]
        notes[groups, _LAST] = offsets[rows[batch.begins + sizes - 1]]
        notes[groups, _EVENTS] += sizes
        self._sums.add(offsets, batch.runs, notes[:, _SUM:])

    def partials(self, epoch: int) -> Iterator[tuple[bytes, Partial]]:
        """Key and partial of every group, the oldest window first."""
        groups, names = len(self._groups), [aggregate.name for aggregate in self._job.aggregates]
        states = list(zip(*(fold.encoded() for fold in self._folds), strict=True)) or [()] * groups
        keys, starts, spans = list(self._groups.keys), self._groups.windows, self._notes[:groups, :_SUM].tolist()
        weights = [span[_EVENTS] for span in spans] if self._job.weight.kind == "one" else self._weights.rounded()
        receipts, window = self._sums.encoded(self._notes[:groups, _SUM:]), self._job.window_ms
        for group in np.argsort(starts, kind="stable").tolist():
            start, (events, first, last) = int(starts[group]), spans[group]
            yield (
                keys[group] or b"",
                Partial(
                    worker=self._worker,
                    start=start,
                    end=start + window,
                    events=events,
                    weight=weights[group],
                    first=first,
                    last=last,
                    epoch=epoch,
                    aggregates=dict(zip(names, states[group], strict=True)),
                    receipt=receipts[group],
                    topic=self._topic,
                ),
            )

    def clear(self) -> None:
        """Forgets everything: the next event of a key begins a new partial."""
        self._groups = Groups()
        self._notes = np.zeros((0, _SUM + 2), np.int64)
        self._weights = Totals()
        self._folds = [fold_of(aggregate) for aggregate in self._job.aggregates]
