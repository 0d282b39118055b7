"""What is wrong with a record of `partials`, in native Spark expressions.

The same that `keygrouping_service.records.partials.check` and the aggregates' `decode` ask in the native runner: what
gets past here can be merged without an error, an overflow or a window that never closes.
"""

from __future__ import annotations

import sys

from keygrouping.aggregate.base import MOST_EVENTS
from keygrouping.job import MAX_KEY_BYTES, MAX_WEIGHT, JobSpec
from keygrouping.partial import VERSION
from keygrouping_service.kafka.progress import END
from keygrouping_service.records.partials import MOST_EPOCH, MOST_WORKERS, OFFSET_BITS
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from keygrouping_spark.aggregates import native
from keygrouping_spark.receipts import PATTERN

_MEMBERS: list[tuple[str, DataType]] = [
    ("v", IntegerType()),
    *((name, LongType()) for name in ("worker", "start", "end", "events", "first", "last", "epoch")),
    ("weight", StringType()),
    ("topic", StringType()),
    ("receipt", StringType()),
    ("aggregates", StringType()),
]
_SCHEMA = StructType([StructField(name, kind) for name, kind in _MEMBERS])
_UNLIMITED = {"maxStringLen": str(2**31 - 1), "maxNumLen": "1000"}
_TOPIC = "^[A-Za-z0-9_-]{22}$"
_WEIGHT = "^[0-9]{1,38}([.][0-9]+)?(E-?[0-9]+)?$"


def judged(records: DataFrame, job: JobSpec) -> DataFrame:
    """The records, what they say as `partial`, its `states` (of the aggregates), and their `fault`, null if good."""
    states = StructType([StructField(a.name, a.json_type) for a in native(job.aggregates)])
    said = records.withColumn("partial", F.from_json(F.col("value").cast("string"), _SCHEMA, _UNLIMITED))
    read = said.withColumn("states", F.from_json(F.col("partial.aggregates"), states, _UNLIMITED))
    return read.withColumn("fault", fault(job))


def fault(job: JobSpec) -> Column:
    """One line on what is wrong with the `partial` and `states` of a row, null if nothing is."""
    told = F.when(~_is(F.col("partial.v") == VERSION), f"not JSON, or no object of version {VERSION}")
    for rule, says in _rules(job):
        told = told.when(~_is(rule), says)
    return told


def _is(rule: Column) -> Column:
    """A rule about something that is missing, or of another type, is broken."""
    return F.coalesce(rule, F.lit(False))


def _rules(job: JobSpec) -> list[tuple[Column, str]]:
    members = {name: F.col(f"partial.{name}") for name, _ in _MEMBERS}
    worker, epoch, events, weight = (members[name] for name in ("worker", "epoch", "events", "weight"))
    first, last, start, end = (members[name] for name in ("first", "last", "start", "end"))
    number = F.when(weight.rlike(_WEIGHT), weight.try_cast("double"))
    # Windows are compared within bounds, so that no difference of two numbers overflows.
    in_time = end.between(1, END) & start.between(-job.window_ms, END)
    in_place = (end - start == job.window_ms) & (F.pmod(start - job.window_offset_ms, F.lit(job.window_ms)) == 0)
    offsets = (first >= 0) & (first <= last) & (last < 1 << OFFSET_BITS)
    names = F.array(*[F.lit(name) for name in sorted(a.name for a in job.aggregates)]).cast("array<string>")
    return [
        (F.col("key").isNotNull(), "the record has no key"),
        (F.octet_length("key") <= MAX_KEY_BYTES, f"the key has more than {MAX_KEY_BYTES} bytes"),
        (members["topic"].rlike(_TOPIC), "topic must be a topic's id"),
        (members["receipt"].rlike(PATTERN), "receipt must be 32 hexadecimal digits"),
        (worker.between(0, MOST_WORKERS - 1), f"worker must be in [0, {MOST_WORKERS})"),
        (epoch.between(0, MOST_EPOCH - 1), f"epoch must be in [0, {MOST_EPOCH})"),
        (offsets, "first and last must be offsets of a partition"),
        (
            events.between(1, F.least(F.when(offsets, last - first + 1), F.lit(MOST_EVENTS))),
            f"events must be from 1 to as many as there are offsets, at most {MOST_EVENTS}",
        ),
        (
            (number >= 0) & (number <= events.cast("double") * MAX_WEIGHT) & (number <= sys.float_info.max),
            f"weight must be a number from 0 to {MAX_WEIGHT:g} for each event",
        ),
        (in_time, "start and end are no window of event times that there are"),
        (
            F.when(in_time, in_place),
            f"start and end are no window of this job, whose windows have {job.window_ms} ms",
        ),
        (
            F.array_sort(F.json_object_keys("partial.aggregates")) == names,
            "its aggregates are not the job's: written for another job",
        ),
        *(
            (a.fits(F.col("states").getField(a.name), events), f"aggregate {a.name!r} ({a.aggregate.op}): not a state")
            for a in native(job.aggregates)
        ),
    ]
