"""What people declare as a job: its members, and the faults and the JSON schema that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema

from keygrouping.aggregate import Aggregate, FieldName, parse_aggregates
from keygrouping.aggregate.parse import schema as schema_of_aggregate
from keygrouping.declaration import Declared, faults_of
from keygrouping.job.duration import LONG_PATTERN, PATTERN, parse_duration

TimeUnit: TypeAlias = Literal["ms", "s", "iso"]

Format: TypeAlias = Literal["json"]
"""How the values of events are written: see `keygrouping.job.formats`."""

MOST_CONFIRMATIONS = 128
"""Twice as many event times are committed with each offset, as text that must fit its metadata (4 kB)."""


class JobError(ValueError):
    """The job's text is wrong; the message lists every fault, one a line."""


class OfHeader(Declared):
    """A header of the record; of several with this name the last."""

    header: str = Field(min_length=1)


class OfField(Declared):
    """A member of the event's JSON value."""

    field: FieldName


class TimeOfField(OfField):
    """A member of the event's JSON value that holds a time, in this unit (iso: a text such as 2026-01-31T12:00:00Z)."""

    unit: TimeUnit = "ms"


def _some_time(value: object) -> int:
    found = parse_duration(value)
    if not found:
        raise ValueError("must be at least 1 ms")
    if found > _LONGEST_WINDOW:
        raise ValueError("must be at most 2900000d: events have times up to the year 9999")
    return found


def _of_duration(least: int, pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["integer", "string"], "minimum": least, "pattern": pattern})


_LONGEST_WINDOW = 2_900_000 * 86_400_000

# As a Literal it would take true.
One: TypeAlias = Annotated[int, Field(ge=1, le=1), WithJsonSchema({"const": 1})]
Duration: TypeAlias = Annotated[int, PlainValidator(parse_duration), _of_duration(0, PATTERN)]
LongDuration: TypeAlias = Annotated[int, PlainValidator(_some_time), _of_duration(1, LONG_PATTERN)]
Aggregates: TypeAlias = Annotated[
    tuple[Aggregate, ...],
    PlainValidator(parse_aggregates),
    WithJsonSchema({"type": "array", "items": {"type": "object"}}),
]


class Job(Declared):
    """A grouped, windowed aggregation over a stream of events."""

    schema_: str | None = Field(None, alias="$schema", description="where an editor finds this schema")
    key: Literal["record"] | OfHeader | OfField = Field("record", description="where the key comes from")
    weight: One | Literal["1", "size"] | OfField = Field(1, description="what an event costs: 1, its bytes, or a field")
    time: Literal["timestamp"] | TimeOfField = Field("timestamp", description="where the event time comes from")
    format: Format = Field("json", description="how the values of events are written")
    window: LongDuration = Field(60_000, description="length of a window, in ms unless a unit is given")
    window_offset: Duration = Field(0, description="start of windows after midnight (UTC)")
    lateness: Duration = Field(10_000, description="how far an event may lie behind the time of its partition")
    max_future: Duration = Field(3_600_000, description="how far an event may lie ahead of the clock")
    confirmations: int = Field(
        32,
        description="the time of a partition is what this many of twice as many successive events have reached",
        ge=1,
        le=MOST_CONFIRMATIONS,
    )
    aggregates: Aggregates = Field((), description="what is computed of each key and window")


def read(source: str | bytes | Mapping[str, object]) -> Job:
    """A job from JSON text or the data of it; `JobError` lists every fault."""
    data = source
    if isinstance(source, str | bytes):
        try:
            data = orjson.loads(source)
        except orjson.JSONDecodeError as error:
            raise JobError(f"the job is not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise JobError("the job must be a JSON object")
    try:
        return Job.model_validate(dict(data))
    except ValidationError as error:
        raise JobError("\n".join(_line(name, text) for name, text in faults_of(Job, data, error))) from None


def _line(name: str, text: str) -> str:
    if not text:
        return f"{name}: unknown; the job has {', '.join(name for name in Job.model_fields if name != 'schema_')}"
    return text if name == "aggregates" else f"{name}: {text}"


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a job with the library's own operations."""
    found = Job.describe()
    definitions = {**found.pop("$defs"), "aggregate": schema_of_aggregate()}
    found["properties"]["aggregates"]["items"] = {"$ref": "#/$defs/aggregate"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "$defs": definitions}
