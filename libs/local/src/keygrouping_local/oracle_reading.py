"""The oracle's own reading of an event: other code than the stages', so that it doesn't share their faults.

Only events that the job can use come here, see `JobSpec.extract`.
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import orjson
from keygrouping.job import Field, FieldValue, JobSpec, parse_path

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FACTORS = {"ms": 1, "s": 1000}


class Reading(NamedTuple):
    """Event time in ms, and the job's fields in their order."""

    time_ms: int
    fields: tuple[FieldValue, ...]


def read(job: JobSpec, value: bytes | None, timestamp_ms: int) -> Reading:
    """What the job needs of an event that it can use."""
    document = _document(value) if job.needs_value else None
    time_ms = timestamp_ms
    if job.time.kind == "field":
        time_ms = _time(_at(document, parse_path(job.time.name)), job.time.unit)
    return Reading(time_ms, tuple([_field(document, wanted) for wanted in job.fields]))


def _document(value: bytes | None) -> Any:
    try:
        return json.loads(value or b"", parse_float=Decimal)
    except RecursionError:
        return orjson.loads(value or b"")


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _field(document: Any, wanted: Field) -> FieldValue:
    value = _at(document, wanted.path)
    if value is None:
        return None
    if wanted.kind == "any":
        return 1
    if wanted.kind == "text":
        return str(value)
    return value if isinstance(value, int) else float(value)


def _time(value: Any, unit: str) -> int:
    return int(value) * _FACTORS[unit] if unit in _FACTORS else _rfc3339(str(value).upper())


def _rfc3339(text: str) -> int:
    """Digits of the fraction beyond the third are not looked at."""
    day, _, rest = text.partition("T")
    zone = "Z" if rest.endswith("Z") else rest[-6:]
    clock, _, fraction = rest[: -len(zone)].partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    if zone != "Z":
        ahead = -1 if zone[0] == "-" else 1
        hours, minutes = hours - ahead * int(zone[1:3]), minutes - ahead * int(zone[4:6])
    days = date(*(int(part) for part in day.split("-"))).toordinal() - _EPOCH_DAY
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 1000 + int((fraction + "000")[:3])
