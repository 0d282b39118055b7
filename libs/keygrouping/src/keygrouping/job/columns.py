"""What a job takes of whole batches of events, column by column: the same as `JobSpec.extract` of each event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from keygrouping.job.event import Extracted, Rejection
from keygrouping.job.field_columns import FieldColumn, Fields
from keygrouping.job.spec import JobSpec
from keygrouping.job.usual import EventColumns, Usual, are_keys, read_usual
from keygrouping.slices import Slices

Events = TypeVar("Events", bound=EventColumns)


@dataclass(slots=True)
class ExtractedColumns(Generic[Events]):
    """What a job takes of the usable `events` of a batch: keys, event times in ms, weights, and `JobSpec.fields`.

    `weights` is None if all weigh 1, `fields` if the job has none. By their rows in the batch that was given:
    `rejected` are the events that can't be used, `skipped` has for each field (by position) those with a value of the
    wrong type.
    """

    events: Events
    keys: Sequence[bytes]
    times: NDArray[np.int64]
    weights: FieldColumn | None = None
    fields: Fields | None = None
    rejected: list[tuple[int, Rejection]] = field(default_factory=list)
    skipped: dict[int, list[int]] = field(default_factory=dict)

    def where(self, chosen: NDArray[np.bool_]) -> ExtractedColumns[Events]:
        """Only the chosen ones of the usable events; what is said by rows of the given batch stays as it is."""
        return ExtractedColumns(
            self.events.where(chosen),
            chosen_keys(self.keys, chosen),
            self.times[chosen],
            None if self.weights is None else self.weights.where(chosen),
            None if self.fields is None else Fields([column.where(chosen) for column in self.fields.columns]),
            self.rejected,
            self.skipped,
        )


def chosen_keys(keys: Sequence[bytes], chosen: NDArray[np.bool_]) -> Sequence[bytes]:
    """The keys of the chosen rows, without copying them where they are slices."""
    if isinstance(keys, Slices):
        return cast("Sequence[bytes]", keys.where(chosen))
    return list(compress(keys, chosen.tolist()))


def is_plain(job: JobSpec) -> bool:
    """Whether key, timestamp and a weight of 1 are all there is to it, so that columns are checked at once."""
    return (job.key.kind, job.weight.kind, job.time.kind, job.fields) == ("record", "one", "timestamp", ())


def extract_columns(job: JobSpec, events: Events, now_ms: int) -> ExtractedColumns[Events]:
    """Sorts out what the job can use, in the order of the events; see `JobSpec.extract`.

    Compiled code reads what is usual; all other events go through `JobSpec.extract`, one by one.
    """
    if is_plain(job) and not events.undecoded_names and _all_usable(events, now_ms + job.max_future_ms):
        return ExtractedColumns(events, events.keys, events.timestamps)  # type: ignore[arg-type]
    usual = read_usual(job, events, now_ms)
    rows, extracted, rejected = _one_by_one(job, events, np.flatnonzero(~usual.rows), now_ms)
    times = usual.times.copy()
    times[rows] = [each.time_ms for each in extracted]
    keys, weights, fields = usual.keys, usual.weights, usual.fields
    if keys is not None:
        keys = _replaced(keys, rows, [each.key for each in extracted])
    if weights is not None:
        weights = weights.replaced(rows, [each.weight for each in extracted])
    columns = [column.replaced(rows, [e.fields[i] for e in extracted]) for i, column in enumerate(fields)]
    found = ExtractedColumns(
        events,
        events.keys if keys is None else keys,  # type: ignore[arg-type]
        times,
        weights,
        Fields(columns) if columns else None,
        rejected,
        _skipped(usual, rows, extracted),
    )
    if not rejected:
        return found
    chosen = np.ones(len(events), np.bool_)
    chosen[[row for row, _ in rejected]] = False
    return found.where(chosen)


def _one_by_one(
    job: JobSpec, events: EventColumns, rows: NDArray[np.int64], now_ms: int
) -> tuple[NDArray[np.int64], list[Extracted], list[tuple[int, Rejection]]]:
    """What `JobSpec.extract` says of these rows: those that are usable and what is taken of them, and the others."""
    usable: list[int] = []
    extracted: list[Extracted] = []
    rejected: list[tuple[int, Rejection]] = []
    if not len(rows):  # columns may make their entries when they are asked for
        return rows, extracted, rejected
    extract = job.extraction.extract
    keys, values, headers, times = events.keys, events.values, events.headers, events.timestamps[rows].tolist()
    for row, timestamp in zip(rows.tolist(), times, strict=True):
        found = extract(keys[row], values[row], headers[row], timestamp, now_ms)
        if isinstance(found, Rejection):
            rejected.append((row, found))
        else:
            usable.append(row)
            extracted.append(found)
    return np.array(usable, np.int64), extracted, rejected


def _replaced(keys: Sequence[bytes], rows: NDArray[np.int64], others: Sequence[bytes]) -> list[bytes]:
    found = list(keys)
    for row, key in zip(rows.tolist(), others, strict=True):
        found[row] = key
    return found


def _skipped(usual: Usual, rows: NDArray[np.int64], extracted: Sequence[Extracted]) -> dict[int, list[int]]:
    skipped = {i: np.flatnonzero(there).tolist() for i, there in enumerate(usual.skipped) if there.any()}
    for row, each in zip(rows.tolist(), extracted, strict=True):
        for position in each.skipped:
            skipped.setdefault(position, []).append(row)
    return {position: sorted(skipped[position]) for position in sorted(skipped)}


def _all_usable(events: EventColumns, latest: int) -> bool:
    """Whether `JobSpec.extract` would refuse none of these events of a plain job."""
    times = events.timestamps
    if not len(events):
        return True
    return bool(times.min() >= 0 and times.max() <= latest and np.all(are_keys(events.keys)))
