"""The job as data: what is grouped by which key, in which windows, with which aggregates."""

from keygrouping.aggregate import FieldKind
from keygrouping.job.columns import Events, ExtractedColumns, chosen_keys, extract_columns, is_plain
from keygrouping.job.declaration import MOST_CONFIRMATIONS, Format, JobError, TimeUnit, schema
from keygrouping.job.duration import parse_duration
from keygrouping.job.event import (
    AGGREGATE_FAILED,
    MAX_KEY_BYTES,
    MAX_WEIGHT,
    MOST_IN_TEXT,
    REASONS,
    Extracted,
    Field,
    FieldValue,
    Headers,
    Reason,
    RejectedError,
    Rejection,
    Source,
    parse_path,
)
from keygrouping.job.extraction import KEY, UNIT_MS, WEIGHT
from keygrouping.job.field_columns import FieldColumn, Fields
from keygrouping.job.formats import FORMATS, Codec
from keygrouping.job.spec import JobSpec, picker
from keygrouping.job.usual import EventColumns

__all__ = [
    "AGGREGATE_FAILED",
    "FORMATS",
    "KEY",
    "MAX_KEY_BYTES",
    "MAX_WEIGHT",
    "MOST_CONFIRMATIONS",
    "MOST_IN_TEXT",
    "REASONS",
    "UNIT_MS",
    "WEIGHT",
    "Codec",
    "EventColumns",
    "Events",
    "Extracted",
    "ExtractedColumns",
    "Field",
    "FieldColumn",
    "FieldKind",
    "FieldValue",
    "Fields",
    "Format",
    "Headers",
    "JobError",
    "JobSpec",
    "Reason",
    "RejectedError",
    "Rejection",
    "Source",
    "TimeUnit",
    "chosen_keys",
    "extract_columns",
    "is_plain",
    "parse_duration",
    "parse_path",
    "picker",
    "schema",
]
