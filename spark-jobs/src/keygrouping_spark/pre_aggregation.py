"""What the worker query does in Python: the library's compiled code reads and aggregates whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from keygrouping.accumulator import Accumulator
from keygrouping.job import Headers, JobSpec
from keygrouping.partial import Partial
from keygrouping.slices import Slices, buffer_of
from keygrouping_service.records.columns import Columns

ROWS = 100_000
"""Records of one partition after which its partials are written, from the beginning of the micro-batch on: it bounds
the groups in memory. A replayed batch must be cut at the same records, so no setting changes it."""

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_CHUNK = 5_000


@dataclass(frozen=True)
class PreAggregation:
    """What a task does with its records.

    The router has refused what the job can't use. What somebody else has written to `routed` counts nowhere.
    """

    job: JobSpec
    epoch: int
    topic_id: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[int, Accumulator] = {}
        taken: dict[int, int] = {}
        for part in chain.from_iterable(map(_columns, batches)):
            start = 0
            while start < len(part):
                stop = min(len(part), start + ROWS - taken.get(part.partition, 0) % ROWS)
                accumulator = held.setdefault(part.partition, self._accumulator(part.partition))
                accumulator.add(part.cut(start, stop))
                taken[part.partition] = taken.get(part.partition, 0) + stop - start
                if taken[part.partition] % ROWS == 0:
                    yield from _written(held.pop(part.partition).partials(self.epoch))
                start = stop
        for accumulator in held.values():
            yield from _written(accumulator.partials(self.epoch))

    def _accumulator(self, partition: int) -> Accumulator:
        return Accumulator(self.job, partition, self.topic_id)


def _columns(batch: pa.RecordBatch) -> Iterator[Columns]:
    """The records of a batch by their partition; a task of the Kafka source has one."""
    partitions = batch["partition"].to_numpy()
    for partition in np.unique(partitions).tolist():
        rows = batch if (partitions == partition).all() else batch.filter(pa.array(partitions == partition))
        yield Columns(
            "",
            partition,
            rows["offset"].to_numpy(),
            rows["timestamp"].to_numpy(),
            _slices(rows["key"]),
            _slices(rows["value"]),
            _headers(rows),
        )


def _slices(column: pa.Array) -> Slices:
    """The byte strings where they are."""
    if column.null_count == len(column):
        return Slices.of([None]).where(np.zeros(len(column), np.int64))
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), -1)
    return Slices(buffer_of(data or b""), bounds[:-1], sizes)


def _headers(rows: pa.RecordBatch) -> list[Headers]:
    if "headers" not in rows.schema.names:
        return [()] * len(rows)
    found = rows["headers"].to_pylist()
    return [tuple((header["key"], header["value"]) for header in headers or ()) for headers in found]


def _written(partials: Iterator[tuple[bytes, Partial]]) -> Iterator[pa.RecordBatch]:
    rows = [(key, partial.encode()) for key, partial in partials]
    for begin in range(0, len(rows), _CHUNK):
        keys, values = zip(*rows[begin : begin + _CHUNK], strict=True)
        yield pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
