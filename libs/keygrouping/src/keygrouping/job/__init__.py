"""The job as data: what is grouped by which key, in which windows, with which aggregates."""

from keygrouping.aggregate import FieldKind
from keygrouping.job.declaration import MOST_CONFIRMATIONS, JobError, TimeUnit, schema
from keygrouping.job.duration import parse_duration
from keygrouping.job.spec import (
    MAX_KEY_BYTES,
    MAX_WEIGHT,
    MOST_IN_TEXT,
    REASONS,
    UNIT_MS,
    Extracted,
    Field,
    FieldValue,
    Headers,
    JobSpec,
    Reason,
    Rejection,
    Source,
    parse_path,
    picker,
)

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_WEIGHT",
    "MOST_CONFIRMATIONS",
    "MOST_IN_TEXT",
    "REASONS",
    "UNIT_MS",
    "Extracted",
    "Field",
    "FieldKind",
    "FieldValue",
    "Headers",
    "JobError",
    "JobSpec",
    "Reason",
    "Rejection",
    "Source",
    "TimeUnit",
    "parse_duration",
    "parse_path",
    "picker",
    "schema",
]
