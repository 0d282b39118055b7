"""What the worker query does in Python: the library's compiled code reads and aggregates whole columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import is_foreign
from keygrouping.job import JobSpec, extract_columns, picker
from keygrouping.partial import Partial
from keygrouping_service.records.protocols import RecordBatch
from pyspark.accumulators import Accumulator as Shared
from pyspark.accumulators import AccumulatorParam

from keygrouping_spark.fetching import Fetching, Range

ROWS = 100_000
"""Records of one partition after which its partials are written, from the beginning of the micro-batch on: it bounds
the groups in memory. A replayed batch must be cut at the same records, so no setting changes it."""

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_CHUNK = 5_000
_ANY_TIME = 1 << 62

Became: TypeAlias = tuple[int, int, str]
"""How many records there were, how many of them are of no use, and which is the first of those."""

Seen: TypeAlias = dict[tuple[int, int], Became]
"""What became of ranges, by partition and first offset. A task that is run again says the same again."""

Refused: TypeAlias = list[tuple[int, str]]
"""Offsets of records of no use, and why."""

_Add: TypeAlias = Callable[[JobSpec, Accumulator, RecordBatch], Refused]


class Together(AccumulatorParam[Seen]):
    """What all tasks have seen."""

    def zero(self, value: Seen) -> Seen:  # noqa: ARG002
        """Nothing."""
        return {}

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:
        """Both."""
        return value1 | value2


class AggregateFailedError(Exception):
    """The code of a user's own aggregate raises an error at some of the records from `offset` on."""

    def __init__(self, offset: int, error: Exception) -> None:
        super().__init__(
            f"an aggregate of your own raises {error!r} at some of the records from offset {offset} on, and at none of "
            "them alone"
        )
        self.offset = offset


@dataclass
class _Told:
    """What became of a range so far, and when partials were written last; `begin` is the offset behind those."""

    begin: int
    now: Became = (0, 0, "")
    kept: Became = (0, 0, "")

    def add(self, records: int, refused: Refused) -> None:
        """So many more."""
        before, useless, first = self.now
        named = first or "".join(f"offset {offset}: {detail}" for offset, detail in refused[:1])
        self.now = (before + records, useless + len(refused), named)

    def keep(self, begin: int) -> None:
        """Partials were written."""
        self.begin, self.kept = begin, self.now


@dataclass(frozen=True)
class PreAggregation:
    """Partials of the records of a range."""

    job: JobSpec
    epoch: int
    topic_id: str

    def __call__(
        self, wanted: Range, read: Callable[[Range], Iterable[RecordBatch]], seen: Seen
    ) -> Iterator[pa.RecordBatch]:
        """Their keys and values. `seen` gets what became of the range.

        If the code of a user's own aggregate raises an error, the records behind the last partials are read a second
        time, without those at which it raises one alone: so a replay comes to the same partials. AggregateFailedError
        if there are none such.
        """
        told = _Told(wanted.begin)
        try:
            yield from self._partials(wanted, read, told, _add)
        except AggregateFailedError as failed:
            told.now = told.kept
            yield from self._partials(wanted._replace(begin=failed.offset), read, told, _add_what_can_be)
        seen[wanted.partition, wanted.begin] = told.now

    def _partials(
        self, wanted: Range, read: Callable[[Range], Iterable[RecordBatch]], told: _Told, add: _Add
    ) -> Iterator[pa.RecordBatch]:
        accumulator, room = self._accumulator(wanted.partition), ROWS
        for part in read(wanted):
            start = 0
            while start < len(part):
                rows = part.cut(start, min(len(part), start + room))
                start, room = start + len(rows), room - len(rows)
                try:
                    told.add(len(rows), add(self.job, accumulator, rows))
                except Exception as error:
                    raise AggregateFailedError(told.begin, error) from error
                if not room:
                    yield from _written(accumulator.partials(self.epoch))
                    accumulator, room = self._accumulator(wanted.partition), ROWS
                    told.keep(int(rows.offsets[-1]) + 1)
        yield from _written(accumulator.partials(self.epoch))

    def _accumulator(self, partition: int) -> Accumulator:
        return Accumulator(self.job, partition, self.topic_id)


def _add(_: JobSpec, accumulator: Accumulator, rows: RecordBatch) -> Refused:
    return [(int(rows.offsets[row]), why.detail) for row, why in accumulator.add(rows)]


def _add_what_can_be(job: JobSpec, accumulator: Accumulator, rows: RecordBatch) -> Refused:
    """The same, without what a user's own aggregate can't add to an empty state, though its check takes it."""
    found = extract_columns(job, rows, _ANY_TIME)
    faults = [_fault(job, fields) for fields in found.fields or [()] * len(found.keys)]
    refused = [(int(rows.offsets[row]), why.detail) for row, why in found.rejected]
    refused += [(o, fault) for o, fault in zip(found.events.offsets.tolist(), faults, strict=True) if fault]
    accumulator.add_extracted(found.where(np.array([not fault for fault in faults], np.bool_)))
    return sorted(refused)


def _fault(job: JobSpec, fields: Sequence[Any]) -> str:
    for aggregate, positions in zip(job.aggregates, job.fields_of, strict=True):
        pick = picker(positions)
        if pick is not None and is_foreign(aggregate):
            try:
                aggregate.add(aggregate.initial(), pick(fields))
            except Exception as error:
                return aggregate.failed(error)
    return ""


@dataclass(frozen=True)
class Task:
    """What a task does: its rows name the ranges that it reads."""

    fetching: Fetching
    ranges: tuple[Range, ...]
    aggregation: PreAggregation
    seen: Shared[Seen]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: Seen = {}
        for number in chain.from_iterable(batch["id"].to_pylist() for batch in batches):
            yield from self.aggregation(self.ranges[number], self.fetching.read, seen)
        self.seen.add(seen)


def _written(partials: Iterator[tuple[bytes, Partial]]) -> Iterator[pa.RecordBatch]:
    rows = [(key, partial.encode()) for key, partial in partials]
    for begin in range(0, len(rows), _CHUNK):
        keys, values = zip(*rows[begin : begin + _CHUNK], strict=True)
        yield pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
