"""What the worker query does in Python: the library's compiled code reads and aggregates whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
from keygrouping.accumulator import Accumulator
from keygrouping.job import JobSpec
from keygrouping.partial import Partial
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import DeadLetter
from pyspark.accumulators import Accumulator as Shared
from pyspark.accumulators import AccumulatorParam

from keygrouping_spark.fetching import Fetching, Range

ROWS = 100_000
"""Records of one partition after which its partials are written, from the beginning of the micro-batch on: it bounds
the groups in memory. A replayed batch must be cut at the same records, so no setting changes it."""

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_CHUNK = 5_000

Seen: TypeAlias = dict[tuple[int, int], tuple[int, int, str]]
"""By partition and first offset of a range that was read: its records, how many are of no use, and the first of those.

A task that is run again says the same again.
"""


class Together(AccumulatorParam[Seen]):
    """What all tasks have seen."""

    def zero(self, value: Seen) -> Seen:  # noqa: ARG002
        """Nothing."""
        return {}

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:
        """Both."""
        return value1 | value2


@dataclass(frozen=True)
class PreAggregation:
    """Partials of the records of a range."""

    job: JobSpec
    epoch: int
    topic_id: str

    def __call__(
        self, wanted: Range, found: Iterable[RecordBatch | DeadLetter], seen: Seen
    ) -> Iterator[pa.RecordBatch]:
        """Their keys and values. `seen` gets what became of the range."""
        accumulator, room = self._accumulator(wanted.partition), ROWS
        records, refused, first = 0, 0, ""
        for part in found:
            if isinstance(part, DeadLetter):
                refused, first = refused + 1, first or _named(part.record.offset, part.detail)
                continue
            start = 0
            while start < len(part):
                stop = min(len(part), start + room)
                rejected = accumulator.add(rows := part.cut(start, stop))
                for row, rejection in rejected[:1]:
                    first = first or _named(int(rows.offsets[row]), rejection.detail)
                refused, room = refused + len(rejected), room - len(rows)
                if not room:
                    yield from _written(accumulator.partials(self.epoch))
                    accumulator, room = self._accumulator(wanted.partition), ROWS
                start = stop
            records += len(part)
        yield from _written(accumulator.partials(self.epoch))
        seen[wanted.partition, wanted.begin] = (records, refused, first)

    def _accumulator(self, partition: int) -> Accumulator:
        return Accumulator(self.job, partition, self.topic_id)


def _named(offset: int, detail: str) -> str:
    return f"offset {offset}: {detail}"


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
            wanted = self.ranges[number]
            yield from self.aggregation(wanted, self.fetching.read(wanted), seen)
        self.seen.add(seen)


def _written(partials: Iterator[tuple[bytes, Partial]]) -> Iterator[pa.RecordBatch]:
    rows = [(key, partial.encode()) for key, partial in partials]
    for begin in range(0, len(rows), _CHUNK):
        keys, values = zip(*rows[begin : begin + _CHUNK], strict=True)
        yield pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
