"""The job as data: what is grouped by which key, in which windows, with which aggregates.

Router, both runners and the oracle build themselves from one `JobSpec`, so that a record means the same
to all of them. Only the router judges records (`JobSpec.extract`): what it lets through, every runner can
use, and their parsers have no chance to disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import itemgetter
from typing import Any

from keygrouping.aggregate import Aggregate, is_foreign
from keygrouping.job.declaration import Format, OfField, OfHeader, TimeOfField, read
from keygrouping.job.event import Extracted, Field, Headers, Rejection, Source, parse_path
from keygrouping.job.extraction import Extraction, trial_of
from keygrouping.job.formats import FORMATS

_RECORD, _ONE, _TIMESTAMP = Source("record"), Source("one"), Source("timestamp")


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
    key: Source = _RECORD
    weight: Source = _ONE
    time: Source = _TIMESTAMP
    format: Format = "json"
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
        found = tuple(dict.fromkeys(item for items in wanted for item in items))
        object.__setattr__(self, "fields", found)
        object.__setattr__(self, "fields_of", tuple(tuple(map(found.index, items)) for items in wanted))

    def __getstate__(self) -> dict[str, object]:
        """To be pickled, as Spark does: without `extraction`, whose code and marks must be those of the reader."""
        return {member.name: getattr(self, member.name) for member in fields(self)}

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, object]) -> JobSpec:
        """Builds a job from JSON text or the data of it; `JobError` lists every fault."""
        job = read(source)
        return cls(
            aggregates=job.aggregates,
            key=_source(job.key),
            weight=_source(job.weight),
            time=_source(job.time),
            format=job.format,
            window_ms=job.window,
            window_offset_ms=job.window_offset,
            lateness_ms=job.lateness,
            max_future_ms=job.max_future,
            confirmations=job.confirmations,
        )

    @cached_property
    def extraction(self) -> Extraction:
        """What `extract` does, put together once."""
        picked = zip(self.aggregates, map(picker, self.fields_of), strict=True)
        trials = [trial_of(a, pick) for a, pick in picked if pick is not None and is_foreign(a)]
        sources = (self.key, self.weight, self.time)
        return Extraction(FORMATS[self.format], *sources, self.fields, self.max_future_ms, trials)

    @property
    def needs_value(self) -> bool:
        """Whether the value must be read, or key, header and timestamp are enough."""
        return self.extraction.needs_value

    def window_of(self, time_ms: int) -> int:
        """Start of the window that holds an event time, both in ms since the epoch."""
        return time_ms - (time_ms - self.window_offset_ms) % self.window_ms

    def event_time(self, value: bytes | None, timestamp_ms: int) -> int | None:
        """Event time (ms) of a record, whatever else is wrong with it; None if it has none."""
        return self.extraction.time_of(value, timestamp_ms)

    def extract(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, now_ms: int
    ) -> Extracted | Rejection:
        """Key, weight, event time and fields of one record, or why it can't be used.

        `timestamp_ms` is the record's own timestamp, `now_ms` the wall clock that guards against times in the
        far future. Fields that are missing, null or of the wrong type are None; an integer of more than 64 bits where
        a number is wanted refuses the record, and so does an error that an aggregate which is not the library's
        raises at its fields alone. Bytes of a header name that are not UTF-8 are expected as lone surrogates
        (PEP 383); they refuse the record too.
        """
        return self.extraction.extract(key, value, headers, timestamp_ms, now_ms)


_PLAIN = {"record": _RECORD, 1: _ONE, "1": _ONE, "size": Source("size"), "timestamp": _TIMESTAMP}


def _source(declared: str | int | OfHeader | OfField) -> Source:
    if isinstance(declared, OfHeader):
        return Source("header", declared.header)
    if isinstance(declared, TimeOfField):
        return Source("field", declared.field, declared.unit)
    return Source("field", declared.field) if isinstance(declared, OfField) else _PLAIN[declared]
