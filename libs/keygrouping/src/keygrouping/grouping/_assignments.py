"""The worker of each key that was seen lately, in memory that doesn't grow with the number of keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ASSIGNMENT = np.dtype([("hash", np.int64), ("worker", np.int32), ("used", np.int32)], align=True)
"""One key: its hash, its worker, whether the slot is in use."""

GENERATIONS = np.dtype(
    [("young", np.int64), ("size", np.int64), ("limit", np.int64), ("forgotten", np.int64)], align=True
)
"""Which of two tables is the young one, its number of keys, how many each may hold, how often keys were forgotten."""

MAX_KEYS = 10_000_000
"""The most keys that a table of assignments may be asked to remember."""

Table = NDArray[Any]


def empty_table(keys: int) -> Table:
    """A hash table (see `keygrouping._probing`) for this many assignments, at most half full."""
    return np.zeros(_slots(keys), ASSIGNMENT)


def _slots(keys: int) -> int:
    return 1 << max(1, 2 * keys - 1).bit_length()


def find_worker(table: Table, hashed: int) -> int | None:
    """The worker of a key in a table, or None."""
    from keygrouping._probing import find

    item = table[find(table, hashed)]
    return int(item["worker"]) if item["used"] else None


class Assignments:
    """Remembers the workers of at least the last `keys` keys; those not seen for longer are forgotten.

    Keys are in two generations. Each event makes its key a young one; when there are `keys` young ones they
    become the old generation, and what was old until then and has had no event since is forgotten at once. So a
    lookup is one or two probes, and no order has to be kept. Memory: 16 bytes x 4 to 8 x keys.
    """

    def __init__(self, keys: int) -> None:
        self.tables: Table = np.zeros((2, _slots(keys)), ASSIGNMENT)
        """The two generations, shape (2, slots); kernels fill them."""
        self.generations: NDArray[Any] = np.zeros(1, GENERATIONS)
        """One record; see GENERATIONS."""
        self.generations["limit"] = keys

    @property
    def forgotten(self) -> int:
        """How often keys were forgotten so far."""
        return int(self.generations["forgotten"][0])

    def __len__(self) -> int:
        """Number of keys whose worker it knows."""
        return len(np.unique(np.concatenate([known["hash"] for known in self._known()])))

    def find(self, hashed: int) -> int | None:
        """The worker of a key, or None; it gets no younger by that."""
        young = int(self.generations["young"][0])
        worker = find_worker(self.tables[young], hashed)
        return find_worker(self.tables[1 - young], hashed) if worker is None else worker

    def hashes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The young and the old keys; those seen in both generations are in both."""
        young, old = (known["hash"] for known in self._known())
        return young, old

    def is_young(self, hashed: int) -> bool:
        """Whether the key was seen in this generation."""
        return find_worker(self.tables[int(self.generations["young"][0])], hashed) is not None

    def keep_workers(self, workers: int) -> None:
        """Forget the keys of all workers that are not below this number."""
        self._fill([known[known["worker"] < workers] for known in self._known()])

    def to_data(self) -> dict[str, Any]:
        """All state as plain JSON data."""
        young, old = ({name: known[name].tolist() for name in ("hash", "worker")} for known in self._known())
        return {"young": young, "old": old, "forgotten": self.forgotten}

    @classmethod
    def from_data(cls, keys: int, workers: int, data: Mapping[str, Any]) -> "Assignments":
        """What gave `to_data`; a KeyError, TypeError or ValueError if it can't be that of so many keys and workers."""
        made = cls(keys)
        known = [_checked(data[generation], keys, workers) for generation in ("young", "old")]
        made.generations["forgotten"] = int(data["forgotten"])
        made._fill(known)
        return made

    def _known(self) -> list[Table]:
        """The young and the old assignments, each in the order of hashes."""
        young = int(self.generations["young"][0])
        used = [self.tables[at][self.tables[at]["used"] != 0] for at in (young, 1 - young)]
        return [table[np.argsort(table["hash"])] for table in used]

    def _fill(self, known: list[Table]) -> None:
        from keygrouping._probing import lay_out

        self.tables["used"] = 0
        self.generations["young"] = 0
        self.generations["size"] = len(known[0])
        for table, assignments in zip(self.tables, known, strict=True):
            lay_out(table, assignments)


def _checked(data: Mapping[str, Any], keys: int, workers: int) -> Table:
    assignments = np.zeros(len(data["hash"]), ASSIGNMENT)
    try:
        assignments["hash"], assignments["worker"] = data["hash"], data["worker"]
    except OverflowError as error:
        raise ValueError("hash or worker out of range") from error
    assignments["used"] = 1
    if len(assignments) > keys or len(np.unique(assignments["hash"])) != len(assignments):
        raise ValueError("too many assignments, or a key twice")
    if np.any((assignments["worker"] < 0) | (assignments["worker"] >= workers)):
        raise ValueError("assignment to a worker that isn't there")
    return assignments
