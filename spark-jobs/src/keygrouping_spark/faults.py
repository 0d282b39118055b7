"""What is wrong with a record of `partials`, in native Spark expressions.

The same that `keygrouping_service.kafka.partials.check` and the aggregates' `decode` ask in the native runner: what
gets past here can be merged without an error, an overflow or a window that never closes.
"""

from __future__ import annotations

from types import SimpleNamespace

from keygrouping.job import MAX_KEY_BYTES, JobSpec
from keygrouping.partial import MEMBERS, PATTERNS, VERSION
from keygrouping_service.kafka.partials import LONG_KEY, NO_KEY, OTHER_JOB, RULES, rule_of_clock, rules_of, told
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from keygrouping_spark.in_python import InPython
from keygrouping_spark.support import native

_TYPES: dict[str, DataType] = {"integer": LongType()}
"""Of all other members the text is read, to be looked at before anything is made of it."""
_SCHEMA = StructType(
    [
        StructField("v", IntegerType()),
        *[StructField(name, _TYPES.get(kind, StringType())) for name, kind in MEMBERS.items()],
    ]
)
_UNLIMITED = {"maxStringLen": str(2**31 - 1), "maxNumLen": "1000"}
_NUMBER = "^[0-9]{1,38}([.][0-9]+)?(E-?[0-9]+)?$"
"""A number that is not negative, as Spark writes it."""


def judged(records: DataFrame, job: JobSpec) -> DataFrame:
    """The records, what they say as `partial`, its `states` (of the aggregates), and their `fault`, null if good."""
    states = StructType([StructField(a.name, a.json_type) for a in native(job.aggregates)])
    said = records.withColumn("partial", _once(F.from_json(F.col("value").cast("string"), _SCHEMA, _UNLIMITED)))
    read = said.withColumn("states", _once(F.from_json(F.col("partial.aggregates"), states, _UNLIMITED)))
    text, events = F.col("partial.aggregates"), F.col("partial.events")
    in_python = [a for a in native(job.aggregates) if isinstance(a, InPython)]
    if in_python:
        own = {a.name: a.read(text, events) for a in in_python}
        rest = [own.get(field.name, F.col("states")[field.name]).alias(field.name) for field in states]
        read = read.withColumn("states", F.struct(*rest))
    return read.withColumn("fault", fault(job))


def _once(column: Column) -> Column:
    """The same, kept as it was computed: a filter is put no further down than this.

    Else Spark would put the expression in the place of every mention of it, dozens of them, and would plan and compile
    that for longer than it takes to merge the partials of a batch.
    """
    return F.explode(F.array(column))


def fault(job: JobSpec) -> Column:
    """One line on what is wrong with the `partial` and `states` of a row, null if nothing is."""
    found = F.when(~_is(F.col("partial.v") == VERSION), f"not JSON, or no object of version {VERSION}")
    for rule, says in _rules(job):
        found = found.when(~_is(rule), says)
    return found


def _is(rule: Column) -> Column:
    """A rule about something that is missing, or of another type, is broken."""
    return F.coalesce(rule, F.lit(False))


def _time_of_batch() -> Column:
    """In ms; a batch that is run again judges alike.

    Spark writes a number that it knows into the code that it generates, and would compile all of it again for each
    batch. An array it hands over; and it can't know that the index is always 1.
    """
    first = F.least(F.octet_length("key"), F.lit(0)) + 1
    return F.element_at(F.array(F.unix_millis(F.current_timestamp())), first)


def _rules(job: JobSpec) -> list[tuple[Column, str]]:
    """What must be true, and what is said if it is not. Those before it are true already: nothing overflows."""
    columns = {name: F.col(f"partial.{name}") for name in MEMBERS}
    texts = [(name, PATTERNS[kind]) for name, kind in MEMBERS.items() if kind in PATTERNS]
    weight, events = columns["weight"], columns["events"]
    number = F.when(weight.rlike(_NUMBER), weight.try_cast("double"))
    partial = SimpleNamespace(**columns | {"weight": number})
    clock = rule_of_clock(job, _time_of_batch())
    names = F.array(*[F.lit(name) for name in sorted(a.name for a in job.aggregates)]).cast("array<string>")
    return [
        (F.col("key").isNotNull(), NO_KEY),
        (F.octet_length("key") <= MAX_KEY_BYTES, LONG_KEY),
        *((columns[name].rlike(rf"^{form}\z"), f"{name} must be {form}") for name, form in texts),
        *((rule.holds(partial), told(rule)) for rule in (*RULES, *rules_of(job), clock)),
        (F.array_sort(F.json_object_keys("partial.aggregates")) == names, OTHER_JOB),
        *(
            (a.fits(F.col("states").getField(a.name), events), f"aggregate {a.name!r} ({a.aggregate.op}): not a state")
            for a in native(job.aggregates)
        ),
    ]
