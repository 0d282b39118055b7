"""Groups, a key in a window each, into which partials are merged by whole batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate
from keygrouping.folds import reaching
from keygrouping.grouped import Groups
from keygrouping.merges import Members, merges_of
from keygrouping.partial_columns import PartialColumns
from keygrouping.slices import Slices

_FIRST_SLOTS = 64
_SOME = 1000


class Group(NamedTuple):
    """What is merged of one key in the window that starts there; `hashes` is the receipt."""

    key: bytes
    start: int
    events: int
    weight: int | float
    hashes: int
    states: tuple[Any, ...]


class OpenGroups:
    """The groups of all partials so far, in the order in which they came; a partial counts once in its group.

    States are merged in the order of the partials, as `Aggregate.merge` does it.
    """

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = aggregates
        self._groups = Groups()
        self._identities = _Identities()
        self._members = Members()
        self._receipts = np.zeros((0, 2), np.uint64)
        self._merges = [merges_of(aggregate) for aggregate in aggregates]
        self._foreign = [place for place, merges in enumerate(self._merges) if merges is None]
        self._own: list[list[Any]] = []
        """By group: the states that only their aggregates can merge."""

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def windows(self) -> NDArray[np.int64]:
        """By group: the start of its window."""
        return self._groups.windows

    def add(
        self, partials: PartialColumns, rows: NDArray[np.int64], keys: Slices, identities: NDArray[np.int64]
    ) -> tuple[int, dict[int, str]]:
        """Merges these rows, unless their group has a partial of the same identity; both are given for each row.

        Gives how many were merged, and what is wrong with the rows whose states their aggregates can't merge: no result
        is changed by these.
        """
        from keygrouping._merge_kernel import Rows, add_receipts

        runs = self._groups.add(keys, partials.start[rows])
        groups, rows = np.repeat(runs.groups, runs.sizes), rows[runs.rows]
        fresh = self._identities.note(groups, identities[runs.rows])
        refused = self._merge_own(partials, rows, groups, fresh) if self._foreign else {}
        given, total = Rows(rows[fresh], groups[fresh], partials.sure), len(self)
        self._receipts = reaching(self._receipts, total)
        add_receipts(given, partials.receipt, self._receipts)
        self._members.merge(given, total, partials.members, partials.events_and_weight)
        for place, merges in enumerate(self._merges):
            if merges is not None:
                cells, states = partials.cells_of(self._aggregates[place]), partials.states_of(place)
                merges.merge(given, total, cells, states)
        return len(given.rows), refused

    def _merge_own(
        self,
        partials: PartialColumns,
        rows: NDArray[np.int64],
        groups: NDArray[np.int64],
        fresh: NDArray[np.bool_],
    ) -> dict[int, str]:
        """Merges the states that are not in columns; what is refused is no longer `fresh`."""
        refused: dict[int, str] = {}
        self._own += [[] for _ in range(len(self) - len(self._own))]
        columns = [partials.states_of(place) for place in self._foreign]
        for at in np.flatnonzero(fresh).tolist():
            row, group = int(rows[at]), int(groups[at])
            given = [state_of(row) for state_of in columns]
            try:
                self._own[group] = self._joined(self._own[group], given) if self._own[group] else given
            except _MergeError as error:
                refused[row], fresh[at] = str(error), False
        return refused

    def _joined(self, held: list[Any], given: list[Any]) -> list[Any]:
        found = []
        for place, left, right in zip(self._foreign, held, given, strict=True):
            aggregate = self._aggregates[place]
            try:
                found.append(aggregate.merge(left, right))
            except Exception as error:
                raise _MergeError(aggregate.failed(error)) from error
        return found

    def cut(self, chosen: NDArray[np.int64]) -> Self:
        """A copy of these groups alone, in their order."""
        found = copy.copy(self)
        numbers = np.full(len(self), -1)
        numbers[chosen] = np.arange(len(chosen))
        found._groups = self._groups.cut(chosen)
        found._identities = self._identities.cut(numbers)
        found._members = self._members.cut(chosen)
        found._receipts = self._receipts[chosen]
        found._merges = [merges and merges.cut(chosen) for merges in self._merges]
        found._own = [self._own[group] for group in chosen.tolist()] if self._foreign else []
        return found

    def release(self, chosen: NDArray[np.int64]) -> None:
        """Nobody asks for these any more: the states that are Python objects go at once, the columns with `cut`."""
        if self._foreign:
            for group in chosen.tolist():
                self._own[group] = []

    def taken(self, chosen: NDArray[np.int64]) -> Iterator[Group]:
        """These groups as they are now, in their order, whatever is merged until they are asked for."""
        keys, windows = self._groups.keys.where(chosen), self.windows[chosen]
        members, receipts = self._members.cut(chosen), self._receipts[chosen]
        merges = [merges and merges.cut(chosen) for merges in self._merges]
        own = [self._own[group] for group in chosen.tolist()] if self._foreign else []

        def some(start: int, stop: int) -> Iterator[Group]:
            foreign = iter(zip(*own[start:stop], strict=True))
            states = [each.states(start, stop) if each else next(foreign) for each in merges]
            for key, window, (events, weight), (high, low), *mine in zip(
                keys[start:stop],
                windows[start:stop].tolist(),
                members.states(start, stop),
                receipts[start:stop].tolist(),
                *states,
                strict=True,
            ):
                yield Group(key or b"", window, events, weight, (high << 64) + low, tuple(mine))

        return chain.from_iterable(
            some(start, min(start + _SOME, len(chosen))) for start in range(0, len(chosen), _SOME)
        )


class _MergeError(Exception):
    """The code of an aggregate has raised an error; the message says which."""


class _Identities:
    """Which partials are in which group: 12 bytes in a table that is a quarter to half full."""

    def __init__(self, slots: int = _FIRST_SLOTS) -> None:
        self._owners = np.full(slots, -1, np.int32)
        self._marks = np.empty(slots, np.int64)
        self._held = 0

    def note(self, groups: NDArray[np.int64], identities: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Notes them; gives which ones were not there, be it earlier in the same batch."""
        from keygrouping._merge_kernel import note

        if 2 * (self._held + len(groups)) > len(self._owners):
            last = max(int(groups.max()), int(self._owners.max()))  # The batch may have none of the newest.
            larger = self._moved(np.arange(last + 1), self._held + len(groups))
            self._owners, self._marks = larger._owners, larger._marks
        fresh = np.empty(len(groups), np.bool_)
        self._held += note(groups, identities, self._owners, self._marks, fresh)
        return fresh

    def cut(self, numbers: NDArray[np.int64]) -> _Identities:
        """Those of some groups, by the new numbers of all; -1 is one that goes."""
        owners = self._owners[self._owners >= 0]
        return self._moved(numbers, int(np.count_nonzero(numbers[owners] >= 0)))

    def _moved(self, numbers: NDArray[np.int64], room: int) -> _Identities:
        from keygrouping._merge_kernel import lay_out

        found = _Identities(max(_FIRST_SLOTS, 1 << (2 * room).bit_length()))
        found._held = lay_out(self._owners, self._marks, numbers, found._owners, found._marks)
        return found
