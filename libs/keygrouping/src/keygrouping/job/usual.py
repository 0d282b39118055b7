"""What is usual among many events, taken by compiled code, column by column.

It says of a row what `JobSpec.extract` says of its event, or nothing: an event that may have to be refused, or is
written in an unusual way, is left to that. So there is one place that refuses events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import MOST_WHOLE, FieldKind
from keygrouping.instants import ms_of_rfc3339
from keygrouping.job.event import MAX_KEY_BYTES, MAX_WEIGHT, Headers, Source, parse_path
from keygrouping.job.extraction import UNIT_MS
from keygrouping.job.field_columns import FieldColumn
from keygrouping.job.kinds import BOOLEAN, MISSING, NULL, REAL, TEXT, WHOLE
from keygrouping.job.members import Member, read_members
from keygrouping.job.spec import JobSpec
from keygrouping.slices import Slices

_LATEST = 1 << 62
"""Beyond any event time that counts: what lies further is judged by itself."""


class EventColumns(Protocol):
    """A batch of events, a column for each of their parts; all are as long as the batch."""

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Of the records, in ms since the epoch; -1 without one."""

    @property
    def keys(self) -> Sequence[bytes | None]: ...
    @property
    def values(self) -> Sequence[bytes | None]: ...
    @property
    def headers(self) -> Sequence[Headers]: ...

    @property
    def undecoded_names(self) -> bool:
        """Whether names of headers may hold bytes that are not UTF-8, as lone surrogates (PEP 383)."""

    def __len__(self) -> int: ...

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """Only the chosen events; one boolean for each."""


@dataclass(slots=True)
class Usual:
    """What was taken of the `rows` that are usual; what the others have in these columns means nothing.

    `keys` is None if they are those of the records, `weights` if all weigh 1; `skipped` says for each field which rows
    have a value of the wrong type.
    """

    rows: NDArray[np.bool_]
    times: NDArray[np.int64]
    keys: Sequence[bytes] | None
    weights: FieldColumn | None
    fields: list[FieldColumn]
    skipped: list[NDArray[np.bool_]]


def read_usual(job: JobSpec, events: EventColumns, now_ms: int) -> Usual:
    """Takes what is usual of a batch; `now_ms` as for `JobSpec.extract`."""
    return _Reading(job, events).usual(now_ms)


class _Reading:
    """One batch on its way: `rows` are those that are usual so far."""

    def __init__(self, job: JobSpec, events: EventColumns) -> None:
        self._job = job
        self._events = events
        self._members: Mapping[str, Member] = {}
        self.rows = np.ones(len(events), np.bool_)
        names = job.extraction.members
        if names is None:
            self.rows[:] = False
            names = ()
        if names:
            found, self.rows = read_members(Slices.of(events.values), names)
            self._members = dict(zip(names, found, strict=True))
        if events.undecoded_names:
            self.rows &= ~np.fromiter(map(bool, events.headers), np.bool_, len(events))

    def usual(self, now_ms: int) -> Usual:
        times = self._times(self._job.time)
        self.rows &= (times >= 0) & (times <= now_ms + self._job.max_future_ms)
        weights = self._weights(self._job.weight)
        found = [self._field(field.path, field.kind) for field in self._job.fields]
        keys = self._keys(self._job.key)
        if self._job.extraction.has_trials:
            self._try([column for column, _ in found])
        skipped = [wrong & self.rows for _, wrong in found]
        return Usual(self.rows, times, keys, weights, [column for column, _ in found], skipped)

    def _try(self, columns: Sequence[FieldColumn]) -> None:
        """Leaves out what aggregates of a user's own refuse."""
        rows, takes = np.flatnonzero(self.rows), self._job.extraction.takes
        values = zip(*(column.where(rows) for column in columns), strict=True)
        self.rows[rows] = np.fromiter(map(takes, values), np.bool_, len(rows))

    def _member(self, path: tuple[str, ...]) -> Member:
        """The member at a path of one step; nothing where all rows are read one by one."""
        found = self._members.get(path[0])
        if found is not None:
            return found
        nothing = np.zeros(len(self.rows), np.int64)
        return Member(nothing.astype(np.uint8), nothing, Slices.of([None]).where(nothing))

    def _times(self, source: Source) -> NDArray[np.int64]:
        if source.kind != "field":
            return self._events.timestamps
        member = self._member(parse_path(source.name))
        if source.unit == "iso":
            return self._iso_times(member)
        factor = UNIT_MS[source.unit]
        self.rows &= (member.kinds == WHOLE) & (np.abs(member.bits) <= _LATEST // factor)
        return np.where(self.rows, member.bits, 0) * factor

    def _iso_times(self, member: Member) -> NDArray[np.int64]:
        self.rows &= member.kinds == TEXT
        read = [ms_of_rfc3339((text or b"").decode()) for text in member.written.where(self.rows)]
        times = np.zeros(len(self.rows), np.int64)
        times[self.rows] = [-1 if time_ms is None else time_ms for time_ms in read]
        return times

    def _weights(self, source: Source) -> FieldColumn | None:
        if source.kind == "one":
            return None
        if source.kind == "size":
            return FieldColumn.of([len(value or b"") for value in self._events.values])
        column = FieldColumn.numbers(self._member(parse_path(source.name)))
        numbers = np.where(column.kinds == WHOLE, column.bits, column.bits.view(np.float64))
        self.rows &= (column.kinds != MISSING) & (numbers >= 0) & (numbers <= MAX_WEIGHT)
        return column

    def _field(self, path: tuple[str, ...], kind: FieldKind) -> tuple[FieldColumn, NDArray[np.bool_]]:
        """A field's column, and where its value is of the wrong type."""
        member = self._member(path)
        if kind == "any":
            return FieldColumn.presence(member.kinds > NULL), np.zeros(len(self.rows), np.bool_)
        if kind == "text":
            return FieldColumn.strings(member), (member.kinds == REAL) | (member.kinds == BOOLEAN)
        real = member.kinds == REAL
        if real.any():
            reals = np.where(real, member.bits, 0).view(np.float64)
            self.rows &= np.abs(reals) < float(MOST_WHOLE)
        return FieldColumn.numbers(member), (member.kinds == TEXT) | (member.kinds == BOOLEAN)

    def _keys(self, source: Source) -> Sequence[bytes] | None:
        keys: Sequence[bytes | None] = self._events.keys
        if source.kind == "header":
            headers = self._events.headers
            keys = [next((text for name, text in reversed(row) if name == source.name), None) for row in headers]
        elif source.kind == "field":
            column = FieldColumn.strings(self._member(parse_path(source.name)))
            self.rows &= column.kinds == TEXT
            keys = list(column.texts)
        self.rows &= are_keys(keys)
        return None if source.kind == "record" else keys  # type: ignore[return-value]


def are_keys(keys: Sequence[bytes | None]) -> NDArray[np.bool_] | bool:
    """Which of these are there and not too long; True if all of them are."""
    if isinstance(keys, Slices):
        fits: NDArray[np.bool_] = (keys.sizes >= 0) & (keys.sizes <= MAX_KEY_BYTES)
        return fits
    if None not in keys and max(map(len, keys), default=0) <= MAX_KEY_BYTES:  # type: ignore[arg-type]
        return True
    return np.fromiter((key is not None and len(key) <= MAX_KEY_BYTES for key in keys), np.bool_, len(keys))
