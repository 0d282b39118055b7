"""The job as data: what is grouped by which key, in which windows, with which aggregates.

Router, both runners and the oracle build themselves from one `JobSpec`, so that a record means the same
to all of them. Only the router judges records (`JobSpec.extract`): what it lets through, every runner can
use, and their JSON parsers have no chance to disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, TypeAlias, get_args

import orjson

from keygrouping.aggregate import MOST_WHOLE, Aggregate, FieldKind
from keygrouping.instants import ms_of_number, ms_of_rfc3339
from keygrouping.job.declaration import OfField, OfHeader, TimeOfField, TimeUnit, read

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
FieldValue: TypeAlias = int | float | str | None

_WRONG = object()
_LARGE = object()

UNIT_MS: Mapping[TimeUnit, int] = {"ms": 1, "s": 1000}
"""Milliseconds of the units of times that are integers."""

MOST_IN_TEXT = (1 << 64) - 1
"""Largest integer that is a text by its digits; the least one has 64 bits with a sign. The router's parser knows others
as floats only.
"""

MAX_WEIGHT = 1e18
"""Heaviest event: sums of squares of heavier ones might not be finite."""

MAX_KEY_BYTES = 65_536
"""Longest key. A result holds its key twice, once as JSON text of up to six times the length, and must fit a record."""


@dataclass(frozen=True)
class Source:
    """Where a key, weight or time comes from: the record itself, a header, or a member of the JSON value."""

    kind: Literal["record", "header", "field", "one", "size", "timestamp"]
    name: str = ""
    unit: TimeUnit = "ms"


@dataclass(frozen=True)
class Field:
    """A member of the JSON value that an aggregate needs: its path of object members, and its type.

    Of type "any" only the presence counts: the value is 1, or None where the member is missing or null.
    """

    path: tuple[str, ...]
    kind: FieldKind

    @property
    def wanted(self) -> str:
        """What it must hold to be used, in words."""
        return {"number": "a finite number", "text": "a string or an integer", "any": "anything"}[self.kind]

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in self.path)


@dataclass(frozen=True)
class Extracted:
    """What the job needs of one record: key bytes, weight, event time in ms, and `JobSpec.fields` in order.

    `skipped` are the positions of fields whose values are of the wrong type; as fields they are None.
    """

    key: bytes
    weight: int | float
    time_ms: int
    fields: tuple[FieldValue, ...]
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rejection:
    """Why a record can't be used: a short code, and one line that says what is wrong and what to do."""

    reason: str
    detail: str


Reason = Literal[
    "integer-too-large",
    "invalid-header",
    "invalid-json",
    "key-too-large",
    "no-key",
    "no-timestamp",
    "no-value",
    "no-weight",
    "not-an-object",
    "timestamp-in-the-future",
    "wrong-type",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""All reasons for which a job can't use a record."""


class _Reject(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(reason, detail)


def parse_path(text: str) -> tuple[str, ...]:
    """Path of a field given as a JSON pointer (`/user/id`) or as the plain name of a top-level member."""
    if not text.startswith("/"):
        return (text,)
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def picker(positions: tuple[int, ...]) -> Callable[[Sequence[Any]], Any] | None:
    """What takes an aggregate's value from a row of all fields (see `JobSpec.fields_of`); None if it needs no field."""
    return itemgetter(*positions) if positions else None


@dataclass(frozen=True)
class JobSpec:
    """One grouped, windowed aggregation over a stream.

    Windows are tumbling: [start, start + window_ms), aligned to the epoch plus `window_offset_ms`. An event is
    late if it lies more than `lateness_ms` behind the confirmed time of its own input partition: the latest time that
    `confirmations` of any twice as many successive events have reached. So a few fast clocks make nobody late; with
    1 every event is believed. Events further than `max_future_ms` ahead of the wall clock are refused.
    """

    aggregates: tuple[Aggregate, ...]
    key: Source = Source("record")
    weight: Source = Source("one")
    time: Source = Source("timestamp")
    window_ms: int = 60_000
    window_offset_ms: int = 0
    lateness_ms: int = 10_000
    max_future_ms: int = 3_600_000
    confirmations: int = 32
    fields: tuple[Field, ...] = field(init=False)
    """What all aggregates read, each field once for each type that is wanted of it."""
    fields_of: tuple[tuple[int, ...], ...] = field(init=False)
    """For each aggregate the positions of its inputs in `fields`."""

    def __post_init__(self) -> None:
        wanted = [[Field(parse_path(i.field), i.kind) for i in a.inputs] for a in self.aggregates]
        fields = tuple(dict.fromkeys(item for items in wanted for item in items))
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "fields_of", tuple(tuple(map(fields.index, items)) for items in wanted))

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, object]) -> JobSpec:
        """Builds a job from JSON text or the data of it; `JobError` lists every fault."""
        job = read(source)
        return cls(
            aggregates=job.aggregates,
            key=_source(job.key),
            weight=_source(job.weight),
            time=_source(job.time),
            window_ms=job.window,
            window_offset_ms=job.window_offset,
            lateness_ms=job.lateness,
            max_future_ms=job.max_future,
            confirmations=job.confirmations,
        )

    @property
    def needs_value(self) -> bool:
        """Whether the JSON value must be read, or key, header and timestamp are enough."""
        return bool(self.fields) or "field" in (self.key.kind, self.weight.kind, self.time.kind)

    def window_of(self, time_ms: int) -> int:
        """Start of the window that holds an event time, both in ms since the epoch."""
        return time_ms - (time_ms - self.window_offset_ms) % self.window_ms

    def event_time(self, value: bytes | None, timestamp_ms: int) -> int | None:
        """Event time (ms) of a record, whatever else is wrong with it; None if it has none."""
        try:
            document = self._document(value) if self.time.kind == "field" else None
            return self._time(document, timestamp_ms, 1 << 62)
        except _Reject:
            return None

    def extract(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, now_ms: int
    ) -> Extracted | Rejection:
        """Key, weight, event time and fields of one record, or why it can't be used.

        `timestamp_ms` is the record's own timestamp, `now_ms` the wall clock that guards against times in the
        far future. Fields that are missing, null or of the wrong type are None; an integer of more than 64 bits where
        a number is wanted refuses the record. Bytes of a header name that are not UTF-8 are expected as lone surrogates
        (PEP 383); they refuse the record too.
        """
        try:
            _check_names(headers)
            document = self._document(value) if self.needs_value else None
            time_ms = self._time(document, timestamp_ms, now_ms)
            weight = self._weight(document, value)
            fields = [_typed(document, wanted, value) for wanted in self.fields]
            found = _checked(self._key(document, key, headers))
            if _WRONG not in fields:
                return Extracted(found, weight, time_ms, tuple(fields))  # type: ignore[arg-type]
            skipped = tuple([position for position, field in enumerate(fields) if field is _WRONG])
            known = tuple([None if field is _WRONG else field for field in fields])
            return Extracted(found, weight, time_ms, known, skipped)  # type: ignore[arg-type]
        except _Reject as reject:
            return reject.rejection

    def _document(self, value: bytes | None) -> dict[str, object]:
        if value is None:
            raise _Reject("no-value", "the record has no value; the job needs fields of a JSON value")
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise _Reject("invalid-json", f"the value is not JSON: {error}; the job needs fields of it") from None
        if not isinstance(document, dict):
            raise _Reject("not-an-object", "the value is JSON, but no object; the job needs members of an object")
        return document

    def _key(self, document: dict[str, object] | None, key: bytes | None, headers: Headers) -> bytes:
        if self.key.kind == "record":
            if key is None:
                raise _Reject("no-key", "the record has no key; send one, or take the key from a header or field")
            return key
        if self.key.kind == "header":
            found = next((value for name, value in reversed(headers) if name == self.key.name), None)
            if found is None:
                raise _Reject("no-key", f"the record has no header {self.key.name!r} to take the key from")
            return found
        text = _text(_look_up(document, parse_path(self.key.name)))
        if text is None:
            raise _Reject("no-key", f"field {self.key.name!r} is missing; the key is taken from it")
        if text is _WRONG:
            raise _Reject("wrong-type", f"field {self.key.name!r} is the key: it must be a string or an integer")
        return str(text).encode()

    def _weight(self, document: dict[str, object] | None, value: bytes | None) -> int | float:
        if self.weight.kind == "one":
            return 1
        if self.weight.kind == "size":
            return len(value or b"")
        number = _number(_look_up(document, parse_path(self.weight.name)))
        if not isinstance(number, int | float) or not 0 <= number <= MAX_WEIGHT:
            what = f"it must be a number from 0 to {MAX_WEIGHT:g}"
            raise _Reject("no-weight", f"field {self.weight.name!r} is the weight: {what}")
        return number

    def _time(self, document: dict[str, object] | None, timestamp_ms: int, now_ms: int) -> int:
        if self.time.kind == "field":
            time_ms = _time_of(_look_up(document, parse_path(self.time.name)), self.time)
        else:
            time_ms = timestamp_ms
        if time_ms < 0:
            raise _Reject("no-timestamp", f"event time {time_ms} ms is before 1970; set the record's timestamp")
        if time_ms > now_ms + self.max_future_ms:
            ahead = (time_ms - now_ms) / 1000
            raise _Reject(
                "timestamp-in-the-future",
                f"event time {time_ms} ms is {ahead:.0f} s ahead of the clock; max_future allows "
                f"{self.max_future_ms / 1000:.0f} s: check the sender's clock and unit",
            )
        return time_ms


def _check_names(headers: Headers) -> None:
    try:
        "".join(name for name, _ in headers).encode()
    except UnicodeEncodeError:
        raise _Reject("invalid-header", "a header name is not UTF-8; Kafka's protocol asks for that") from None


def _checked(key: bytes) -> bytes:
    if len(key) > MAX_KEY_BYTES:
        raise _Reject("key-too-large", f"the key has {len(key)} bytes; at most {MAX_KEY_BYTES} are allowed")
    return key


def _look_up(document: object, path: tuple[str, ...]) -> object:
    for token in path:
        if not isinstance(document, dict):
            return None
        document = document.get(token)
    return document


def _number(value: object) -> object:
    if type(value) is float:
        return value if -MOST_WHOLE < value < MOST_WHOLE else _LARGE
    if type(value) is int:
        return value if -MOST_WHOLE <= value < MOST_WHOLE else _LARGE
    return None if value is None else _WRONG


def _text(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _WRONG


def _present(value: object) -> object:
    return None if value is None else 1


_CONVERT: dict[FieldKind, Callable[[object], object]] = {"number": _number, "text": _text, "any": _present}


def _typed(document: dict[str, object] | None, wanted: Field, raw: bytes | None) -> object:
    """The value of a field, or `_WRONG` for one of the wrong type."""
    value = _CONVERT[wanted.kind](_look_up(document, wanted.path))
    return _large(document, wanted, raw) if value is _LARGE else value


def _large(document: dict[str, object] | None, wanted: Field, raw: bytes | None) -> float:
    """A number beyond the integers of 64 bits, which must be written as a fraction: the parser has rounded integers."""
    try:
        written = _look_up(json.loads(raw or b"", parse_int=lambda _: _LARGE), wanted.path)
    except RecursionError:
        written = _LARGE
    if written is _LARGE:
        what = "holds an integer of more than 64 bits; send it in a larger unit, or as a float such as 1e20"
        raise _Reject("integer-too-large", f"field {wanted.pointer!r} {what}")
    return float(_look_up(document, wanted.path))  # type: ignore[arg-type]


def _time_of(value: object, source: Source) -> int:
    if source.unit == "iso":
        time_ms = ms_of_rfc3339(value) if isinstance(value, str) else None
        if time_ms is not None:
            return time_ms
    elif isinstance(value, int) and not isinstance(value, bool):
        return ms_of_number(value, UNIT_MS[source.unit])
    wanted = "a text like 2026-01-31T12:00:00Z" if source.unit == "iso" else f"an integer in {source.unit}"
    raise _Reject("no-timestamp", f"field {source.name!r} is the event time: it must be {wanted}")


_PLAIN = {
    "record": Source("record"),
    1: Source("one"),
    "1": Source("one"),
    "size": Source("size"),
    "timestamp": Source("timestamp"),
}


def _source(declared: str | int | OfHeader | OfField) -> Source:
    if isinstance(declared, OfHeader):
        return Source("header", declared.header)
    if isinstance(declared, TimeOfField):
        return Source("field", declared.field, declared.unit)
    return Source("field", declared.field) if isinstance(declared, OfField) else _PLAIN[declared]
