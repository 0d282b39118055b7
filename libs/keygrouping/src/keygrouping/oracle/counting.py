"""What results must be: all values of a key and window side by side, without states that are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from keygrouping.aggregate import Answer
from keygrouping.job import FieldValue, JobSpec, picker
from keygrouping.oracle.reading import Reading

Place: TypeAlias = tuple[bytes, int]
"""Key and start of a window in ms."""


class Count(NamedTuple):
    """What the result of a key and window must be: how many events it holds, and the answer by aggregate."""

    events: int
    answers: Mapping[str, Answer]


class Counting:
    """The events of each key and window. Memory: the fields of all events that have not been taken out."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._rows: dict[Place, list[tuple[FieldValue, ...]]] = {}

    def window_of(self, time_ms: int) -> int:
        """Start of the window that holds an event time, both in ms since the epoch."""
        return time_ms - (time_ms - self._job.window_offset_ms) % self._job.window_ms

    def add(self, key: bytes, event: Reading) -> None:
        """Takes an event in."""
        self._rows.setdefault((key, self.window_of(event.time_ms)), []).append(event.fields)

    @property
    def places(self) -> list[Place]:
        """All keys and windows that have events."""
        return list(self._rows)

    def take(self, place: Place) -> Count:
        """What the result must be of the events of a key and window, which are taken out; KeyError if it has none."""
        rows, job = self._rows.pop(place), self._job
        answers = {
            aggregate.name: aggregate.expected(_values(rows, picker(positions)))
            for aggregate, positions in zip(job.aggregates, job.fields_of, strict=True)
        }
        return Count(len(rows), answers)


def _values(rows: list[tuple[FieldValue, ...]], pick: Callable[[Sequence[Any]], Any] | None) -> list[Any]:
    """The values of an aggregate's inputs; of an aggregate without inputs, something for each event."""
    return rows if pick is None else [pick(row) for row in rows]
