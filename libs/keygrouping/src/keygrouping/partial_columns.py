"""Partials of many records at once, as columns: what `Partial.decode` and `Aggregate.decode` make of each.

Only what is sure is read here, in compiled code. Of a row that is not `good` nothing is known: it is to be read by
those themselves, which may find it good or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Shape
from keygrouping.job.kinds import MISSING, REAL, WHOLE
from keygrouping.partial import MEMBERS, VERSION, Kind, decode_topic, parsed
from keygrouping.partial_layout import ANY, DIGITS, LIST, RECEIPT, SCALAR, TOPIC, Form, Path, table_of
from keygrouping.slices import Slices
from keygrouping.state_columns import Cell, States, decoder_of, floats_of

_VERSION = "v"
_FORMS: dict[Kind, Form] = {"integer": SCALAR, "number": SCALAR, "topic": TOPIC, "receipt": RECEIPT}
_LEADING, _TRAILING = ("worker", "start", "end", "events"), ("first", "last", "epoch")
_TEXTS = (("topic",), ("receipt",))
_TOPIC_BYTES = 22


class Read(NamedTuple):
    """A partial that was read: members as `Partial` has them, and the decoded states; `hashes` is the receipt."""

    topic: str
    worker: int
    start: int
    end: int
    first: int
    events: int
    weight: int | float
    hashes: int
    states: tuple[Any, ...]


class PartialColumns:
    """The members of many partials by row, for rules that ask something of them; see `Partial`.

    `good` says which rows could be read; states have yet to be decoded.
    """

    def __init__(self, data: NDArray[np.uint8], cells: Mapping[Path, Cell], plain: NDArray[np.bool_]) -> None:
        self._data = data
        self._cells = cells
        self.worker, self.start, self.end, self.events = (cells[name,].bits for name in _LEADING)
        self.first, self.last, self.epoch = (cells[name,].bits for name in _TRAILING)
        weight = cells["weight",]
        self.weight: NDArray[np.float64] = floats_of(weight)
        self.good = plain & (cells[_VERSION,].kinds == WHOLE) & (cells[_VERSION,].bits == VERSION)
        for name in (*_LEADING, *_TRAILING):
            self.good &= cells[name,].kinds == WHOLE
        # As floats, integers of up to 18 digits may be rounded, but not above the largest weight of one event, 1e18.
        self.good &= (weight.kinds == WHOLE) | (weight.kinds == REAL)
        for path, cell in cells.items():
            if path in _TEXTS or (len(path) < 3 and path[:1] == ("aggregates",)):
                self.good &= cell.kinds != MISSING

    def rows(self, aggregates: Sequence[Aggregate], chosen: NDArray[np.bool_], closed: int) -> list[Read | None]:
        """The chosen rows with their states; None for all others, and where a state is not sure to be one.

        Of windows that are `closed`, as they end by that time (ms), states that only their aggregate can decode are
        not decoded.
        """
        good, states = chosen & self.good, list[Sequence[Any]]()
        is_open = self.end > closed
        for aggregate in aggregates:
            decoded = self._decoded(aggregate, good, is_open)
            good &= decoded.good & (decoded.seen <= self.events)
            states.append(decoded.states)
        columns = (self.worker, self.start, self.end, self.first, self.events)
        members = (self._topics(), *(column.tolist() for column in columns), self._weights(), self._hashes())
        all_states = list(zip(*states, strict=True)) if states else [()] * len(good)
        rows = map(Read._make, zip(*members, all_states, strict=True))
        return [row if is_good and row.topic else None for row, is_good in zip(rows, good.tolist(), strict=True)]

    def _decoded(self, aggregate: Aggregate, rows: NDArray[np.bool_], is_open: NDArray[np.bool_]) -> States:
        decoder, path = decoder_of(aggregate), ("aggregates", aggregate.name)
        if decoder is None:
            return self._decoded_by(aggregate, self._cells[path], rows, is_open)
        members = {each[-1] if len(each) > 2 else "": cell for each, cell in self._cells.items() if each[:2] == path}
        return decoder(aggregate, members)

    def _decoded_by(
        self, aggregate: Aggregate, cell: Cell, rows: NDArray[np.bool_], is_open: NDArray[np.bool_]
    ) -> States:
        """What only the aggregate itself can decode, of these rows; of those that are not open, whether it is JSON."""
        states, good = [None] * len(rows), rows.copy()
        for row in np.flatnonzero(rows).tolist():
            written = self._data[cell.bits[row] : cell.more[row]].tobytes()
            try:
                (data,) = parsed(b"[" + written + b"]")
                if is_open[row]:
                    states[row] = aggregate.decode(data)
                    good[row] = aggregate.seen(states[row]) <= int(self.events[row])
            except Exception:  # as its code may raise anything, which is told where the row is read by itself
                good[row] = False
        return States(states, good, np.zeros_like(self.events))

    def _topics(self) -> list[str]:
        """The ids, "" for what is none."""
        places = self._cells["topic",].bits
        texts = Slices(self._data, places, np.full_like(places, _TOPIC_BYTES))
        known = _Topics()
        return [known[text or b""] for text in texts]

    def _weights(self) -> list[int | float]:
        weight = self._cells["weight",]
        found: list[int | float] = weight.bits.tolist()
        for row in np.flatnonzero(weight.kinds == REAL).tolist():
            found[row] = float(self.weight[row])
        return found

    def _hashes(self) -> list[int]:
        receipt = self._cells["receipt",]
        halves = (half.view(np.uint64).tolist() for half in (receipt.bits, receipt.more))
        return [high << 64 | low for high, low in zip(*halves, strict=True)]


class PartialReader:
    """Reads partials of a job with these aggregates."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        members: dict[str, Form] = {_VERSION: SCALAR, **{name: _FORMS.get(kind, ANY) for name, kind in MEMBERS.items()}}
        members["aggregates"] = {aggregate.name: _form_of(aggregate) for aggregate in aggregates}
        self._table, self._slots = table_of(members)

    def read(self, values: Slices) -> PartialColumns:
        """The members of all rows."""
        from keygrouping._partial_kernel import read_partials

        kinds = np.zeros((len(self._slots), len(values)), np.uint8)
        cells = np.zeros((2 * len(self._slots), len(values)), np.int64)
        starts, sizes = np.ascontiguousarray(values.starts), np.ascontiguousarray(values.sizes)
        plain = read_partials(values.data, starts, sizes, self._table, kinds, cells)
        found = {path: Cell(kinds[slot], *cells[2 * slot : 2 * slot + 2]) for path, slot in self._slots.items()}
        return PartialColumns(values.data, found, plain)


class _Topics(dict[bytes, str]):
    def __missing__(self, text: bytes) -> str:
        try:
            self[text] = decode_topic(text.decode("ascii"))
        except ValueError:
            self[text] = ""
        return self[text]


def _form_of(aggregate: Aggregate) -> Form:
    return ANY if decoder_of(aggregate) is None or aggregate.shape is None else _form_of_shape(aggregate.shape)


def _form_of_shape(shape: Shape) -> Form:
    if isinstance(shape, tuple):
        return LIST
    if isinstance(shape, str):
        return DIGITS if shape == "text" else SCALAR
    return {name: _form_of_shape(inner) for name, inner in shape.items()}
