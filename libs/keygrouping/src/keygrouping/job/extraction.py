"""Reads what a job needs of an event, or says why the event can't be used.

This is the one place that judges events. What it does is put together once for each job, from its declaration: which
parts of an event are looked at at all, by which path, as which type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from keygrouping.aggregate import MOST_WHOLE, Aggregate, FieldKind
from keygrouping.instants import ms_of_number, ms_of_rfc3339
from keygrouping.job.declaration import TimeUnit
from keygrouping.job.event import (
    AGGREGATE_FAILED,
    MAX_KEY_BYTES,
    MAX_WEIGHT,
    Extracted,
    Field,
    FieldValue,
    Headers,
    RejectedError,
    Rejection,
    Source,
    look_up,
    parse_path,
)
from keygrouping.job.formats import Codec, JsonCodec

UNIT_MS: dict[TimeUnit, int] = {"ms": 1, "s": 1000}
"""Milliseconds of the units of times that are integers."""

KEY: FieldKind = "text"
"""What a member must hold to be a key."""

WEIGHT: FieldKind = "number"
"""What a member must hold to be a weight."""

_ANY_TIME = 1 << 62
_WRONG = object()
_LARGE = object()
_NO_DOCUMENT: dict[str, Any] = {}

_Document: TypeAlias = dict[str, Any]
_ReadKey: TypeAlias = Callable[[_Document, bytes | None, Headers], bytes]
_ReadWeight: TypeAlias = Callable[[_Document, bytes | None], int | float]
_ReadTime: TypeAlias = Callable[[_Document, int], int]
_ReadField: TypeAlias = Callable[[_Document], object]
_Try: TypeAlias = Callable[[tuple[Any, ...]], None]


class Extraction:
    """The extraction of one job."""

    def __init__(
        self,
        codec: Codec,
        key: Source,
        weight: Source,
        time: Source,
        fields: tuple[Field, ...],
        max_future_ms: int,
        trials: Sequence[_Try] = (),
    ) -> None:
        self.needs_value = bool(fields) or "field" in (key.kind, weight.kind, time.kind)
        self.members = _members(codec, (key, weight, time), fields)
        """Names of the members that it takes of each document, if they can be read of many documents at once."""
        self._codec = codec
        self._key = _key_reader(key)
        self._weight = _weight_reader(weight)
        self._time = _time_reader(time)
        self._fields = fields
        self._readers = tuple(_reader(field.path, _CONVERT[field.kind]) for field in fields)
        self._time_of_value = time.kind == "field"
        self._max_future_ms = max_future_ms
        self.has_trials = bool(trials)
        """Whether aggregates of a user's own may refuse events."""
        self._trials = trials

    def time_of(self, value: bytes | None, timestamp_ms: int) -> int | None:
        """Event time (ms) of a record, whatever else is wrong with it; None if it has none."""
        try:
            time_ms = self._time(self._document(value) if self._time_of_value else _NO_DOCUMENT, timestamp_ms)
        except RejectedError:
            return None
        return time_ms if 0 <= time_ms <= _ANY_TIME + self._max_future_ms else None

    def extract(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, now_ms: int
    ) -> Extracted | Rejection:
        """See `JobSpec.extract`."""
        try:
            if headers:
                _check_names(headers)
            document = self._document(value) if self.needs_value else _NO_DOCUMENT
            time_ms = self._time(document, timestamp_ms)
            if not 0 <= time_ms <= now_ms + self._max_future_ms:
                self._refuse_time(time_ms, now_ms)
            weight = self._weight(document, value)
            fields = tuple([read(document) for read in self._readers])
            if _LARGE in fields:
                fields = self._with_large_ones(document, value or b"", fields)
            found = self._key(document, key, headers)
            if len(found) > MAX_KEY_BYTES:
                detail = f"the key has {len(found)} bytes; at most {MAX_KEY_BYTES} are allowed"
                raise RejectedError("key-too-large", detail)
            skipped: tuple[int, ...] = ()
            if _WRONG in fields:
                skipped = tuple([position for position, field in enumerate(fields) if field is _WRONG])
                fields = tuple([None if field is _WRONG else field for field in fields])
            for attempt in self._trials:
                attempt(fields)
        except RejectedError as rejected:
            return rejected.rejection
        return Extracted(found, weight, time_ms, fields, skipped)  # type: ignore[arg-type]

    def takes(self, fields: tuple[FieldValue, ...]) -> bool:
        """Whether no aggregate of a user's own refuses an event with these fields."""
        try:
            for attempt in self._trials:
                attempt(fields)
        except RejectedError:
            return False
        return True

    def _document(self, value: bytes | None) -> _Document:
        if value is None:
            raise RejectedError("no-value", "the record has no value; the job needs fields of it")
        return self._codec.read(value)

    def _refuse_time(self, time_ms: int, now_ms: int) -> None:
        if time_ms < 0:
            detail = f"event time {time_ms} ms is before 1970; set the record's timestamp"
            raise RejectedError("no-timestamp", detail)
        raise RejectedError(
            "timestamp-in-the-future",
            f"event time {time_ms} ms is {(time_ms - now_ms) / 1000:.0f} s ahead of the clock; max_future allows "
            f"{self._max_future_ms / 1000:.0f} s: check the sender's clock and unit",
        )

    def _with_large_ones(self, document: _Document, value: bytes, fields: tuple[object, ...]) -> tuple[object, ...]:
        """Numbers beyond the integers of 64 bits must be written as fractions: integers may have been rounded."""
        found = list(fields)
        for position, field in enumerate(fields):
            if field is _LARGE:
                wanted = self._fields[position]
                if self._codec.is_whole(value, wanted.path):
                    what = "holds an integer of more than 64 bits; send it in a larger unit, or as a float such as 1e20"
                    raise RejectedError("integer-too-large", f"field {wanted.pointer!r} {what}")
                found[position] = float(look_up(document, wanted.path))  # type: ignore[arg-type]
        return tuple(found)


def _members(codec: Codec, sources: Sequence[Source], fields: Sequence[Field]) -> tuple[str, ...] | None:
    paths = [*(parse_path(source.name) for source in sources if source.kind == "field"), *(f.path for f in fields)]
    if any(len(path) > 1 for path in paths) or not isinstance(codec, JsonCodec):
        return None
    return tuple(dict.fromkeys(name for (name,) in paths))


def trial_of(aggregate: Aggregate, pick: Callable[[Sequence[Any]], Any]) -> _Try:
    """What refuses an event whose fields alone make an aggregate raise an error."""

    def attempt(fields: tuple[Any, ...]) -> None:
        try:
            aggregate.check(pick(fields))
        except Exception as error:
            raise RejectedError(AGGREGATE_FAILED, aggregate.failed(error)) from None

    return attempt


def _check_names(headers: Headers) -> None:
    try:
        "".join([name for name, _ in headers]).encode()
    except UnicodeEncodeError:
        raise RejectedError("invalid-header", "a header name is not UTF-8; Kafka's protocol asks for that") from None


def _key_reader(source: Source) -> _ReadKey:
    name = source.name
    if source.kind == "record":
        return _record_key
    if source.kind == "header":

        def of_header(_: _Document, __: bytes | None, headers: Headers) -> bytes:
            found = next((value for header, value in reversed(headers) if header == name), None)
            if found is None:
                raise RejectedError("no-key", f"the record has no header {name!r} to take the key from")
            return found

        return of_header
    read = _reader(parse_path(name), _CONVERT[KEY])

    def of_field(document: _Document, _: bytes | None, __: Headers) -> bytes:
        text = read(document)
        if text is None:
            raise RejectedError("no-key", f"field {name!r} is missing; the key is taken from it")
        if text is _WRONG:
            raise RejectedError("wrong-type", f"field {name!r} is the key: it must be a string or an integer")
        return str(text).encode()

    return of_field


def _record_key(_: _Document, key: bytes | None, __: Headers) -> bytes:
    if key is None:
        raise RejectedError("no-key", "the record has no key; send one, or take the key from a header or field")
    return key


def _weight_reader(source: Source) -> _ReadWeight:
    if source.kind == "one":
        return lambda _, __: 1
    if source.kind == "size":
        return lambda _, value: len(value or b"")
    read = _reader(parse_path(source.name), _CONVERT[WEIGHT])

    def of_field(document: _Document, _: bytes | None) -> int | float:
        number = read(document)
        if not isinstance(number, int | float) or not 0 <= number <= MAX_WEIGHT:
            what = f"it must be a number from 0 to {MAX_WEIGHT:g}"
            raise RejectedError("no-weight", f"field {source.name!r} is the weight: {what}")
        return number

    return of_field


def _time_reader(source: Source) -> _ReadTime:
    if source.kind != "field":
        return lambda _, timestamp_ms: timestamp_ms
    read = _reader(parse_path(source.name), _iso if source.unit == "iso" else _instant_in(UNIT_MS[source.unit]))
    wanted = "a text like 2026-01-31T12:00:00Z" if source.unit == "iso" else f"an integer in {source.unit}"

    def of_field(document: _Document, _: int) -> int:
        time_ms = read(document)
        if not isinstance(time_ms, int):
            raise RejectedError("no-timestamp", f"field {source.name!r} is the event time: it must be {wanted}")
        return time_ms

    return of_field


def _iso(value: object) -> object:
    return ms_of_rfc3339(value) if isinstance(value, str) else None


def _instant_in(factor: int) -> Callable[[object], object]:
    return lambda value: ms_of_number(value, factor) if type(value) is int else None


def _reader(path: tuple[str, ...], convert: Callable[[object], object]) -> _ReadField:
    """Reads a member of a document: most paths have one step."""
    if len(path) > 1:
        return lambda document: convert(look_up(document, path))
    (name,) = path
    return lambda document: convert(document.get(name))


def _number(value: object) -> object:
    if type(value) is float:
        return value if -MOST_WHOLE < value < MOST_WHOLE else _LARGE
    if type(value) is int:
        return value if -MOST_WHOLE <= value < MOST_WHOLE else _LARGE
    return None if value is None else _WRONG


def _text(value: object) -> object:
    if value is None or type(value) is str:
        return value
    return str(value) if type(value) is int else _WRONG


def _present(value: object) -> object:
    return None if value is None else 1


_CONVERT: dict[FieldKind, Callable[[object], object]] = {"number": _number, "text": _text, "any": _present}
