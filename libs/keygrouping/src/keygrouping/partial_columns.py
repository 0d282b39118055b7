"""Partials of many records at once, as columns: what `Partial.decode` and `Aggregate.decode` make of each.

Only what is sure is read here, in compiled code. Of a row that is not `good` nothing is known: it is to be read by
those themselves, which may find it good or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Shape
from keygrouping.job.kinds import MISSING, REAL, WHOLE
from keygrouping.partial import MEMBERS, VERSION, Kind, Partial, parsed
from keygrouping.partial_layout import ANY, DIGITS, LIST, RECEIPT, SCALAR, TOPIC, TOPIC_BYTES, Form, Path, table_of
from keygrouping.slices import Slices
from keygrouping.state_columns import Cell, floats_of, judge_of

_VERSION = "v"
_FORMS: dict[Kind, Form] = {"integer": SCALAR, "number": SCALAR, "topic": TOPIC, "receipt": RECEIPT}
_LEADING, _TRAILING = ("worker", "start", "end", "events"), ("first", "last", "epoch")
_TEXTS = (("topic",), ("receipt",))


class PartialColumns:
    """The members of many partials by row, for rules that ask something of them; see `Partial`.

    `good` says which rows could be read, and `sure` those of which the states were judged, too. What stands in the
    other rows is whatever was put there.
    """

    def __init__(
        self, values: Slices, aggregates: Sequence[Aggregate], cells: Mapping[Path, Cell], plain: NDArray[np.bool_]
    ) -> None:
        self._values = values
        self._aggregates = aggregates
        self._cells = cells
        self._singles: dict[int, tuple[Partial, Sequence[Any]]] = {}
        self._foreign: dict[int, list[Any]] = {}
        self.worker, self.start, self.end, self.events = (cells[name,].bits for name in _LEADING)
        self.first, self.last, self.epoch = (cells[name,].bits for name in _TRAILING)
        self.members = {name: cells[name,] for name in ("events", "weight")}
        self.receipt = cells["receipt",]
        self.weight: NDArray[np.float64] = floats_of(self.members["weight"])
        self.good = plain & (cells[_VERSION,].kinds == WHOLE) & (cells[_VERSION,].bits == VERSION)
        for name in (*_LEADING, *_TRAILING):
            self.good &= cells[name,].kinds == WHOLE
        # As floats, integers of up to 18 digits may be rounded, but not above the largest weight of one event, 1e18.
        kinds = self.members["weight"].kinds
        self.good &= (kinds == WHOLE) | (kinds == REAL)
        for path, cell in cells.items():
            if path in _TEXTS or (len(path) < 3 and path[:1] == ("aggregates",)):
                self.good &= cell.kinds != MISSING
        self.sure = np.zeros_like(self.good)

    def judge(self, chosen: NDArray[np.bool_], closed: int) -> None:
        """Says of which of the chosen rows the states are sure to be some, in `sure`.

        Of windows that are `closed`, as they end by that time (ms), states that only their aggregate can decode are
        not decoded.
        """
        self.sure = chosen & self.good
        is_open = self.end > closed
        for place, aggregate in enumerate(self._aggregates):
            judge = judge_of(aggregate)
            if judge is None:
                self._decode(place, is_open)
            else:
                good, seen = judge(self.cells_of(aggregate))
                self.sure &= good & (seen <= self.events)

    def _decode(self, place: int, is_open: NDArray[np.bool_]) -> None:
        """Decodes what only the aggregate itself can, of rows that are sure; of those not open, whether it is JSON."""
        aggregate = self._aggregates[place]
        cell, states = self._cells["aggregates", aggregate.name], [None] * len(self.good)
        for row in np.flatnonzero(self.sure).tolist():
            written = self._values.data[cell.bits[row] : cell.more[row]].tobytes()
            try:
                (data,) = parsed(b"[" + written + b"]")
                if is_open[row]:
                    states[row] = aggregate.decode(data)
                    self.sure[row] = aggregate.seen(states[row]) <= int(self.events[row])
            except Exception:  # as its code may raise anything, which is told where the row is read by itself
                self.sure[row] = False
        self._foreign[place] = states

    def put(self, row: int, partial: Partial, states: Sequence[Any]) -> None:
        """Has a row be a partial that was read by itself, and checked, and the states of its aggregates."""
        self._singles[row] = partial, states
        for name in (*_LEADING, "first"):
            self._cells[name,].bits[row] = getattr(partial, name)
        halves = np.array(divmod(partial.hashes, 1 << 64), np.uint64).view(np.int64)
        self.receipt.bits[row], self.receipt.more[row] = halves

    def _single(self, row: int) -> tuple[Partial, Sequence[Any]]:
        if row not in self._singles:
            partial = Partial.decode(self._values[row])
            states = [
                None if place in self._foreign else each.decode(partial.aggregates[each.name])
                for place, each in enumerate(self._aggregates)
            ]
            self._singles[row] = partial, states
        return self._singles[row]

    def cells_of(self, aggregate: Aggregate) -> dict[str, Cell]:
        """The members of its states, see `Judge`."""
        path = ("aggregates", aggregate.name)
        return {each[-1] if len(each) > 2 else "": cell for each, cell in self._cells.items() if each[:2] == path}

    def states_of(self, place: int) -> Callable[[int], Any]:
        """What makes the decoded state of a row, of the aggregate at this place."""
        known = self._foreign.get(place)

        def state_of(row: int) -> Any:
            return self._single(row)[1][place] if known is None or not self.sure[row] else known[row]

        return state_of

    def events_and_weight(self, row: int) -> tuple[int, int | float]:
        """Both members of a row as they were written."""
        partial = self._single(row)[0]
        return partial.events, partial.weight

    def topics(self, rows: NDArray[np.int64]) -> Slices:
        """The ids of these rows."""
        places = self._cells["topic",].bits[rows]
        found = Slices(self._values.data, places, np.full_like(places, TOPIC_BYTES))
        if self.sure[rows].all():
            return found
        pairs = zip(rows.tolist(), self.sure[rows].tolist(), strict=True)
        return Slices.of(
            [found[at] if sure else self._single(row)[0].topic.encode() for at, (row, sure) in enumerate(pairs)]
        )


class PartialReader:
    """Reads partials of a job with these aggregates."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = aggregates
        members: dict[str, Form] = {_VERSION: SCALAR, **{name: _FORMS.get(kind, ANY) for name, kind in MEMBERS.items()}}
        members["aggregates"] = {aggregate.name: _form_of(aggregate) for aggregate in aggregates}
        self._table, self._slots = table_of(members)

    def read(self, values: Slices) -> PartialColumns:
        """The members of all rows."""
        from keygrouping._partial_kernel import read_partials

        kinds = np.zeros((len(self._slots), len(values)), np.uint8)
        cells = np.zeros((3 * len(self._slots), len(values)), np.int64)
        starts, sizes = np.ascontiguousarray(values.starts), np.ascontiguousarray(values.sizes)
        plain = read_partials(values.data, starts, sizes, self._table, kinds, cells)
        found = {path: Cell(kinds[slot], *cells[3 * slot : 3 * slot + 3]) for path, slot in self._slots.items()}
        return PartialColumns(values, self._aggregates, found, plain)


def _form_of(aggregate: Aggregate) -> Form:
    return ANY if judge_of(aggregate) is None or aggregate.shape is None else _form_of_shape(aggregate.shape)


def _form_of_shape(shape: Shape) -> Form:
    if isinstance(shape, tuple):
        return LIST
    if isinstance(shape, str):
        return DIGITS if shape == "text" else SCALAR
    return {name: _form_of_shape(inner) for name, inner in shape.items()}
