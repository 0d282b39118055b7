"""What the worker query does in Python: the library's compiled code reads and aggregates whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import is_foreign
from keygrouping.job import Extracted, FieldValue, JobSpec, Rejection, picker
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
_STEP = 10_000
"""Records that are added at once, however many are fetched: the last bits of some aggregates depend on it, and a replay
must find the same. It divides `ROWS`."""

Became: TypeAlias = tuple[int, Range | None]
"""How many records there were, and where those of them lie that are of no use; None: there are none."""

Seen: TypeAlias = dict[tuple[int, int], Became]
"""What became of ranges, by partition and first offset. A task that is run again says the same again."""


class Together(AccumulatorParam[Seen]):
    """What all tasks have seen."""

    def zero(self, value: Seen) -> Seen:  # noqa: ARG002
        """Nothing."""
        return {}

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:
        """Both."""
        return value1 | value2


class AggregateFailedError(Exception):
    """The code of a user's own aggregate raises an error at an event that its check takes."""


@dataclass(frozen=True)
class PreAggregation:
    """Partials of the records of a range."""

    job: JobSpec
    epoch: int
    topic_id: str

    def __call__(self, wanted: Range, found: Iterable[RecordBatch], seen: Seen) -> Iterator[pa.RecordBatch]:
        """Their keys and values. `seen` gets what became of the range. AggregateFailedError.

        To leave such events out would move the first offset of a partial, by which it is known when it is written
        again, so that it would count twice once the code has been corrected.
        """
        accumulator, records = self._accumulator(wanted.partition), 0
        refused: list[int] = []
        for rows in in_steps(found):
            rejected = self._added(accumulator, rows)
            if rejected:
                places = [row for row, _ in rejected]
                refused += [int(rows.offsets[place]) for place in (min(places), max(places))]
            records += len(rows)
            if records % ROWS == 0:
                yield from _written(accumulator.partials(self.epoch))
                accumulator = self._accumulator(wanted.partition)
        yield from _written(accumulator.partials(self.epoch))
        span = Range(wanted.partition, min(refused), max(refused) + 1) if refused else None
        seen[wanted.partition, wanted.begin] = (records, span)

    def _added(self, accumulator: Accumulator, rows: RecordBatch) -> list[tuple[int, Rejection]]:
        try:
            return accumulator.add(rows)
        except (MemoryError, OSError, ImportError):
            raise
        except Exception as error:
            if any(map(is_foreign, self.job.aggregates)):
                raise AggregateFailedError(self._blamed(rows, error)) from error
            raise

    def _blamed(self, rows: RecordBatch, error: Exception) -> str:
        """Which record it is, if it is one alone."""
        for offset, item in zip(rows.offsets.tolist(), rows, strict=True):
            found = self.job.extract(item.key, item.value, item.headers, item.timestamp, _ANY_TIME)
            if isinstance(found, Extracted) and (fault := _fault(self.job, found.fields)):
                return f"{fault}, at offset {offset} of a worker's partition, which its check() takes: correct that"
        between = f"offsets {rows.offsets[0]} to {rows.offsets[-1]} of a worker's partition"
        return f"an aggregate of your own raises {error!r} at several events of {between} together"

    def _accumulator(self, partition: int) -> Accumulator:
        return Accumulator(self.job, partition, self.topic_id)


def in_steps(found: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """The same records, so many at once."""
    held: list[RecordBatch] = []
    room = _STEP
    for part in found:
        start = 0
        while start < len(part):
            held.append(piece := part.cut(start, min(len(part), start + room)))
            start, room = start + len(piece), room - len(piece)
            if not room:
                yield held[0].followed_by(held[1:])
                held, room = [], _STEP
    if held:
        yield held[0].followed_by(held[1:])


def _fault(job: JobSpec, fields: Sequence[FieldValue]) -> str:
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
            wanted = self.ranges[number]
            yield from self.aggregation(wanted, self.fetching.read(wanted), seen)
        self.seen.add(seen)


def _written(partials: Iterator[tuple[bytes, Partial]]) -> Iterator[pa.RecordBatch]:
    rows = [(key, partial.encode()) for key, partial in partials]
    for begin in range(0, len(rows), _CHUNK):
        keys, values = zip(*rows[begin : begin + _CHUNK], strict=True)
        yield pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
