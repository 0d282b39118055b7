"""Reads partials in Spark's Python processes, as the native aggregator does.

What is no partial of the job goes to the driver by an accumulator, beside the query: it is rare, and a second branch of
the query would read everything twice. A task that is run again tells of the same records again, by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError
from keygrouping_service.kafka.partials import check, states_of
from keygrouping_service.observability.metrics import INVALID_PARTIAL
from keygrouping_service.records.record import Record
from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from keygrouping_spark.native import column_of, type_of
from keygrouping_spark.receipts import PIECES, pieces_of
from keygrouping_spark.refused import Refused
from keygrouping_spark.sums import NUMBER

_Told: TypeAlias = dict[tuple[int, int], tuple[Record, str]]
"""By partition and offset: the record, and what is wrong with it."""

_LONG = LongType()


class _Together(AccumulatorParam[_Told]):
    def zero(self, value: _Told) -> _Told:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: _Told, value2: _Told) -> _Told:
        return value1 | value2


class Letters:
    """The records that tasks have refused since they were taken last."""

    def __init__(self, context: SparkContext) -> None:
        self.told: Accumulator[_Told] = context.accumulator({}, _Together())

    def take(self) -> list[Refused]:
        """All of them, in the order of their offsets; to be called while no task runs."""
        told, self.told.value = self.told.value, {}
        return [Refused(record, INVALID_PARTIAL, fault) for _, (record, fault) in sorted(told.items())]


def read_partials(records: DataFrame, job: JobSpec, floor: int, letters: Letters) -> DataFrame:
    """Columns of the partials in Kafka records, without windows that ended at or before `floor` (ms).

    Records that are none go to the letters.
    """
    timestamp = F.unix_millis("timestamp").alias("timestamp")
    now = _time_of_batch().alias("now")
    given = records.select("topic", "partition", "offset", timestamp, "key", "value", "headers", now)
    read: DataFrame = given.mapInArrow(_Reading(job, floor, letters.told), _schema(job))
    return read.select(F.timestamp_millis("end").alias("window_end"), *read.columns[1:])


def _schema(job: JobSpec) -> StructType:
    """Of the rows: names and types."""
    states = StructType([StructField(aggregate.name, type_of(aggregate)) for aggregate in job.aggregates])
    columns: dict[str, DataType] = {
        "end": _LONG,
        "key": BinaryType(),
        "topic": StringType(),
        "worker": IntegerType(),
        "start": _LONG,
        "first": _LONG,
        "events": _LONG,
        "weight": NUMBER,
        **dict.fromkeys(PIECES, _LONG),
        "aggregates": states,
    }
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _time_of_batch() -> Column:
    """In ms; a batch that is run again judges alike.

    Spark writes a number that it knows into the code that it generates, and would compile all of it again for each
    batch. An array it hands over; and it can't know that the index is always 1.
    """
    first = F.least(F.octet_length("key"), F.lit(0)) + 1
    return F.element_at(F.array(F.unix_millis(F.current_timestamp())), F.coalesce(first, F.lit(1)))


@dataclass(frozen=True)
class _Reading:
    """What a task does with its records."""

    job: JobSpec
    floor: int
    told: Accumulator[_Told]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(_schema(self.job))
        told: _Told = {}
        for batch in batches:
            rows = list(self._rows(batch.to_pylist(), told))
            yield pa.RecordBatch.from_pylist(rows, schema)
        if told:
            self.told.add(told)

    def _rows(self, records: Iterable[Mapping[str, Any]], told: _Told) -> Iterator[dict[str, Any]]:
        for record in records:
            try:
                partial = Partial.decode(record["value"])
                check(record["key"], partial, self.job, record["now"])
                states = states_of(partial, self.job.aggregates)
            except RecordError as error:
                told[record["partition"], record["offset"]] = (_record(record), str(error))
                continue
            if partial.end > self.floor:
                yield self._row(record["key"], partial, states)

    def _row(self, key: bytes, partial: Partial, states: list[Any]) -> dict[str, Any]:
        whole = type(partial.weight) is int
        weight = {"whole": Decimal(partial.weight) if whole else None, "real": None if whole else partial.weight}
        pairs = zip(self.job.aggregates, states, strict=True)
        return {
            "end": partial.end,
            "key": key,
            "topic": partial.topic,
            "worker": partial.worker,
            "start": partial.start,
            "first": partial.first,
            "events": partial.events,
            "weight": weight,
            **dict(zip(PIECES, pieces_of(partial.hashes), strict=True)),
            "aggregates": {a.name: column_of(a, a.encode(state)) for a, state in pairs},
        }


def _record(row: Mapping[str, Any]) -> Record:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    place = (row["topic"], row["partition"], row["offset"], row["timestamp"])
    return Record(*place, row["key"], row["value"], headers)
