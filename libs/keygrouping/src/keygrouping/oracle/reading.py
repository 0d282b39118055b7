"""The oracle's own reading of an event: other code than the stages', so that it doesn't share their faults.

Only events that the job can use come here, see `JobSpec.extract`; what is raised at others is `UNREADABLE`.
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from keygrouping.job import Field, FieldKind, FieldValue, Headers, JobSpec, parse_path

UNREADABLE = (ValueError, TypeError, ArithmeticError, LookupError)
"""What is raised at an event that the job can't use, if anything is."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LEAST_WHOLE, _MOST_WHOLE = -(2**63), 2**64 - 1
_FACTORS = {"ms": 1, "s": 1000}
_NUMBERS = (int, float, Decimal)
_DECODER = json.JSONDecoder(parse_float=Decimal)


class Reading(NamedTuple):
    """Event time in ms, the job's fields in their order, and the positions of those of the wrong type (None)."""

    time_ms: int
    fields: tuple[FieldValue, ...]
    skipped: tuple[int, ...]


def read(job: JobSpec, value: bytes | None, timestamp_ms: int) -> Reading:
    """What the job needs of an event that it can use."""
    document = _document(value) if job.needs_value else None
    time_ms = timestamp_ms
    if job.time.kind == "field":
        time_ms = _time(_at(document, parse_path(job.time.name)), job.time.unit)
    fields: list[FieldValue] = []
    skipped: list[int] = []
    for position, wanted in enumerate(job.fields):
        value = _at(document, wanted.path)
        fits = _fits(value, wanted.kind)
        fields.append(_field(value, wanted) if fits else None)
        if not fits:
            skipped.append(position)
    return Reading(time_ms, tuple(fields), tuple(skipped))


def read_key(job: JobSpec, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """The key of an event that the job can use."""
    source = job.key
    if source.kind == "header":
        key = dict(headers).get(source.name)
    elif source.kind == "field":
        found = _at(_document(value), parse_path(source.name))
        key = str(found).encode() if _fits(found, "text") and found is not None else None
    if key is None:
        raise ValueError("it has no key")
    return key


def _document(value: bytes | None) -> Any:
    try:
        return _DECODER.decode((value or b"").decode())
    except RecursionError:
        return orjson.loads(value or b"")


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _fits(value: Any, kind: FieldKind) -> bool:
    """Whether a value is of the type that is wanted; a missing one is."""
    if value is None or kind == "any":
        return True
    if isinstance(value, bool):
        return False
    if kind == "number":
        return isinstance(value, _NUMBERS)
    return isinstance(value, str) or (isinstance(value, int) and _LEAST_WHOLE <= value <= _MOST_WHOLE)


def _field(value: Any, wanted: Field) -> FieldValue:
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
