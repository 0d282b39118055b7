"""Values of fields as columns: numbers and texts of many events without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from keygrouping.job.event import FieldValue
from keygrouping.job.kinds import MISSING, REAL, TEXT, WHOLE
from keygrouping.job.members import Member
from keygrouping.slices import Slices

_KINDS: dict[type, int] = {type(None): MISSING, int: WHOLE, float: REAL, str: TEXT}


class FieldColumn(Sequence[FieldValue]):
    """One field of many events.

    By row, `kinds` are MISSING, WHOLE, REAL or TEXT; `bits` are those of the number, an int64 or a float64; `texts`
    are the bytes of the strings.
    """

    __slots__ = ("bits", "kinds", "texts")

    def __init__(self, kinds: NDArray[np.uint8], bits: NDArray[np.int64], texts: Slices) -> None:
        self.kinds = kinds
        self.bits = bits
        self.texts = texts

    @classmethod
    def of(cls, values: Sequence[FieldValue]) -> FieldColumn:
        """The column of these values; integers have 64 bits at most."""
        kinds = np.fromiter((_KINDS[type(value)] for value in values), np.uint8, len(values))
        bits = np.zeros(len(values), np.int64)
        bits[kinds == WHOLE] = [value for value in values if type(value) is int]
        bits.view(np.float64)[kinds == REAL] = [value for value in values if type(value) is float]
        return cls(kinds, bits, Slices.of([value.encode() if type(value) is str else None for value in values]))

    @classmethod
    def numbers(cls, member: Member) -> FieldColumn:
        """What of a member is a number."""
        kinds = np.where((member.kinds == WHOLE) | (member.kinds == REAL), member.kinds, np.uint8(MISSING))
        return cls(kinds, member.bits, member.written)

    @classmethod
    def strings(cls, member: Member) -> FieldColumn:
        """What of a member is a string, or an integer, by its digits."""
        texts = (member.kinds == TEXT) | (member.kinds == WHOLE)
        return cls(np.where(texts, np.uint8(TEXT), np.uint8(MISSING)), member.bits, member.written)

    @classmethod
    def presence(cls, there: NDArray[np.bool_]) -> FieldColumn:
        """1 where something is there."""
        kinds = np.where(there, np.uint8(WHOLE), np.uint8(MISSING))
        return cls(kinds, np.ones(len(kinds), np.int64), Slices.of([None]).where(np.zeros(len(kinds), np.int64)))

    def __len__(self) -> int:
        return len(self.kinds)

    @overload
    def __getitem__(self, row: int) -> FieldValue: ...
    @overload
    def __getitem__(self, row: slice) -> FieldColumn: ...
    def __getitem__(self, row: int | slice) -> FieldValue | FieldColumn:
        if isinstance(row, slice):
            return FieldColumn(self.kinds[row], self.bits[row], self.texts[row])
        kind = self.kinds[row]
        if kind == TEXT:
            return (self.texts[row] or b"").decode()
        if kind == REAL:
            return float(self.bits.view(np.float64)[row])
        return int(self.bits[row]) if kind == WHOLE else None

    def __iter__(self) -> Iterator[FieldValue]:
        """Makes every value, one after the other."""
        seen = np.flatnonzero(np.bincount(self.kinds, minlength=TEXT + 1)).tolist()
        if seen == [WHOLE]:
            return iter(self.bits.tolist())
        if seen == [REAL]:
            return iter(self.bits.view(np.float64).tolist())
        values: list[FieldValue] = [None] * len(self.kinds)
        for kind in seen:
            for row, value in zip(np.flatnonzero(self.kinds == kind).tolist(), self._all_of(kind), strict=True):
                values[row] = value
        return iter(values)

    def _all_of(self, kind: int) -> Sequence[FieldValue]:
        rows = self.kinds == kind
        if kind == TEXT:
            return [(text or b"").decode() for text in self.texts.where(rows)]
        values: list[FieldValue] = (self.bits.view(np.float64) if kind == REAL else self.bits)[rows].tolist()
        return values if kind != MISSING else [None] * len(values)

    def floats(self) -> NDArray[np.float64]:
        """The numbers, rounded as `float` does it; NaN where there is none."""
        real = np.where(self.kinds == REAL, self.bits.view(np.float64), np.nan)
        return np.where(self.kinds == WHOLE, self.bits.astype(np.float64), real)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> FieldColumn:
        """The chosen rows: a boolean for each of all, or their numbers."""
        return FieldColumn(self.kinds[chosen], self.bits[chosen], self.texts.where(chosen))

    def replaced(self, rows: NDArray[np.int64], values: Sequence[FieldValue]) -> FieldColumn:
        """The column with other values at these rows."""
        if not len(rows):
            return self
        given = FieldColumn.of(values)
        kinds, bits = self.kinds.copy(), self.bits.copy()
        kinds[rows], bits[rows] = given.kinds, given.bits
        if not (given.kinds == TEXT).any():
            return FieldColumn(kinds, bits, self.texts)
        both = self.texts.followed_by([given.texts])
        places = np.arange(len(kinds))
        places[rows] = len(kinds) + np.arange(len(rows))
        return FieldColumn(kinds, bits, both.where(places))


class Fields(Sequence[tuple[FieldValue, ...]]):
    """The fields of many events: `columns`, one for each, or a row for each event."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[FieldColumn]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, row: int) -> tuple[FieldValue, ...]: ...
    @overload
    def __getitem__(self, row: slice) -> Fields: ...
    def __getitem__(self, row: int | slice) -> tuple[FieldValue, ...] | Fields:
        if isinstance(row, slice):
            return Fields([column[row] for column in self.columns])
        return tuple(column[row] for column in self.columns)

    def __iter__(self) -> Iterator[tuple[FieldValue, ...]]:
        """Makes every row, one after the other."""
        return zip(*self.columns, strict=True)
