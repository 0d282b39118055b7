"""Counts of classes and of feature values within classes, from which a naive Bayes classifier is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pydantic import Field

from keygrouping.aggregate.base import Aggregate, TextField, TextFields
from keygrouping.aggregate.bounds import bayes_of
from keygrouping.aggregate.expected import Answer
from keygrouping.aggregate.text import bounded
from keygrouping.hashing import hash_key

Row: TypeAlias = tuple[int, str | None]
"""What is counted per class: value (of feature 1, 2, ...), all values of a feature (None), or all events (0, None)."""

Rows: TypeAlias = dict[Row, dict[str, int]]
"""How often each class occurs in a row."""

EVENTS: Row = (0, None)


class State(NamedTuple):
    """Events with a class, the counts, and the first row by rank that there was no room for."""

    events: int
    rows: Rows
    cut: Row | None


class NaiveBayes(Aggregate):
    """How often each class (`field`) occurs, and within it each value of each of the `features`.

    As {"events", "classes": {class: n}, "features": {field: {"classes": {class: n}, "values": {value: {class: n}}}},
    "complete"}; `classes` of a feature counts the events that have it. Without features this is the running
    example of "Partial Key Grouping" (Nasir et al., sections 2.1 and 3.1): the event's key is the word, and its
    co-occurrences with each class are counted. An event without class is skipped, a missing feature counts for nothing.

    All counts are exact, in whatever order and split. If there is no room for all of them, whole values are left out
    (`complete` is false), those with the greatest hashes, until no more than `entries` counts are left: the same values
    under any split, since what is left out of a part belongs to what is left out of the whole. Each feature's `classes`
    less those of its values tell what is missing. If classes and features alone are too many, `classes` and `features`
    are None, and `exceeded` says so. Texts have `text.LONGEST` bytes at most; longer ones stand for themselves as
    `text.bounded` says.
    """

    op: ClassVar[str] = "naive-bayes"

    field: TextField
    features: TextFields = ()
    entries: int = Field(1000, description="counts kept at most", ge=1, le=10_000)

    def initial(self) -> State:
        return State(0, {}, None)

    def add_many(self, state: State, values: Iterable[Any]) -> State:
        events = state.events
        for value, times in Counter(values).items():
            label, *features = [part if part is None else bounded(part) for part in self._parts(value)]
            if label is not None:
                events += times
                for row in _rows_of(features):
                    _count(state.rows, row, label, times)
        return self._within_bounds(State(events, state.rows, state.cut))

    def merge(self, left: State, right: State) -> State:
        rows = {row: dict(counts) for row, counts in left.rows.items()}
        for row, counts in right.rows.items():
            for label, times in counts.items():
                _count(rows, row, label, times)
        cuts = [state.cut for state in (left, right) if state.cut is not None]
        return self._within_bounds(State(left.events + right.events, rows, min(cuts, key=_rank, default=None)))

    def _parts(self, value: Any) -> tuple[Any, ...]:
        return value if len(self.inputs) > 1 else (value,)

    def _within_bounds(self, state: State) -> State:
        """The rows that rank before the cut, which moves to the first one that there is no room for."""
        if state.cut is None and _entries(state.rows) <= self.entries:
            return state
        rows: Rows = {}
        room, cut = self.entries, state.cut
        before = state.rows if cut is None else [row for row in state.rows if _rank(row) < _rank(cut)]
        for row in sorted(before, key=_rank):
            room -= len(state.rows[row])
            if room < 0:
                return State(state.events, rows, row)
            rows[row] = state.rows[row]
        return State(state.events, rows, cut)

    def finish(self, state: State) -> dict[str, Any]:
        if state.cut is not None and state.cut[1] is None:
            said = f"the classes alone need more than {self.entries} counts: allow more entries, at most 10000"
            return {"events": state.events, "classes": None, "features": None, "complete": False, "exceeded": said}
        features = {
            given.field: {"classes": _sorted(state.rows, (index, None)), "values": _values(state.rows, index)}
            for index, given in enumerate(self.inputs[1:], 1)
        }
        classes = _sorted(state.rows, EVENTS)
        return {"events": state.events, "classes": classes, "features": features, "complete": state.cut is None}

    def expected(self, values: Iterable[Any]) -> Answer:
        return bayes_of(values, [given.field for given in self.inputs[1:]], self.entries)

    def encode(self, state: State) -> Any:
        rows = [[*row, counts] for row, counts in state.rows.items()]
        return {"events": state.events, "rows": rows, "cut": state.cut and list(state.cut)}

    def decode(self, data: Any) -> State:
        try:
            rows = {self._row(index, value): dict(counts) for index, value, counts in data["rows"]}
            cut = None if data["cut"] is None else self._row(*data["cut"])
            state = State(data["events"], rows, cut)
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None
        counts = [count for counts in rows.values() for count in counts.values()]
        whole = all(type(number) is int for number in (state.events, *counts))
        if not whole or state.events < 0 or not all(0 <= count <= state.events for count in counts):
            raise self.fault(data)
        if len(counts) > self.entries:
            raise self.fault(data)
        return state

    def seen(self, state: State) -> int:
        return state.events

    def _row(self, index: Any, value: Any) -> Row:
        known = type(index) is int and 0 <= index < max(1, len(self.inputs))
        if not known or not (value is None or (isinstance(value, str) and index)):
            raise ValueError
        return (index, value)


def _rows_of(features: list[str | None]) -> Iterator[Row]:
    """The rows that an event is counted in."""
    yield EVENTS
    for index, value in enumerate(features, 1):
        if value is not None:
            yield (index, None)
            yield (index, value)


def _count(rows: Rows, row: Row, label: str, times: int) -> None:
    counts = rows.setdefault(row, {})
    counts[label] = counts.get(label, 0) + times


def _entries(rows: Rows) -> int:
    return sum(map(len, rows.values()))


def _sorted(rows: Rows, row: Row) -> dict[str, int]:
    return dict(sorted(rows.get(row, {}).items()))


def _values(rows: Rows, index: int) -> dict[str, dict[str, int]]:
    """The counts of a feature's values, in the order of these."""
    values = sorted(value for feature, value in rows if feature == index and value is not None)
    return {value: _sorted(rows, (index, value)) for value in values}


def _rank(row: Row) -> tuple[bool, int, int, str]:
    """What is kept first: the counts of all values, then values by their hash, which favours none."""
    index, value = row
    return (False, 0, index, "") if value is None else (True, hash_key(value, index), index, value)
