"""The heaviest keys of a stream and bounds of their counts, in memory that doesn't grow with the number of keys.

Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT 2005)
for the counts and their errors; Agarwal, Cormode, Huang, Phillips, Wei, Yi, "Mergeable Summaries" (PODS 2012) for its
likeness to the algorithm of Misra and Gries and for merging; Anderson and others, "A High-Performance Algorithm for
Identifying Frequent Items in Data Streams" (IMC 2017) for dropping many counters at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.weights import check_weights

COUNTER = np.dtype(
    [("hash", np.int64), ("count", np.float64), ("error", np.float64), ("tag", np.int32), ("used", np.int32)],
    align=True,
)
"""One key: its hash, the upper bound of its weight and by how much that may be too high; a number that belongs to the
kernel which uses the sketch (zero for a new key, it goes along with the counter); whether the slot is in use."""

SKETCH = np.dtype(
    [
        ("total", np.float64),
        ("offset", np.float64),
        ("size", np.int64),
        ("capacity", np.int64),
        ("tags_dropped", np.int64),
    ],
    align=True,
)
"""All weight seen, the upper bound of any key without a counter, number of counters and capacity, and how many
counters with a tag other than zero were dropped so far."""

MAX_CAPACITY = 10_000_000
_NO_WEIGHTS: NDArray[np.float64] = np.empty(0)
_PLAIN = ("total", "offset", "tags_dropped")
_COLUMNS = ("hash", "count", "error", "tag")


class Bounds(NamedTuple):
    """What a sketch knows of one key's weight."""

    lower: float
    """Guaranteed: it has at least this weight."""
    upper: float
    """It has at most this weight."""


class SpaceSaving:
    """Counts the heaviest keys: a key is known by its 64-bit hash.

    For every key lower <= true weight <= upper, and upper - lower <= offset <= total / (capacity + 1), whatever was
    added, merged and faded: any key above that share has a counter. A new key's count starts at the offset, its error;
    when 2 x capacity keys have a counter the offset rises to the (capacity + 1)-th largest count, and counters not
    above it are dropped. So an event costs amortised constant time. Weights are finite and not negative.

    Kernels update `counters` and `sketch` themselves, by the functions in `_space_saving_kernel`.
    Memory: 32 bytes x 4 to 8 x capacity.
    """

    def __init__(self, capacity: int) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= MAX_CAPACITY:
            raise ValueError(f"capacity must be an integer from 1 to {MAX_CAPACITY}, not {capacity!r}")
        self.counters: NDArray[Any] = np.zeros(1 << (4 * capacity).bit_length(), COUNTER)
        """A hash table, see `keygrouping._probing`, of COUNTER."""
        self.sketch: NDArray[Any] = np.zeros(1, SKETCH)
        """One record; see SKETCH."""
        self.sketch["capacity"] = capacity

    def __len__(self) -> int:
        """Number of keys that have a counter."""
        return int(self.sketch["size"][0])

    @property
    def capacity(self) -> int:
        return int(self.sketch["capacity"][0])

    @property
    def total(self) -> float:
        """The weight of all keys together; exact but for the rounding of sums."""
        return float(self.sketch["total"][0])

    @property
    def offset(self) -> float:
        """The upper bound of every key without a counter, and of every error."""
        return float(self.sketch["offset"][0])

    @property
    def tags_dropped(self) -> int:
        """How many counters with a tag other than zero were dropped so far."""
        return int(self.sketch["tags_dropped"][0])

    @property
    def tagged_hashes(self) -> NDArray[np.int64]:
        """The keys that have a counter with a tag other than zero."""
        tagged = (self.counters["used"] != 0) & (self.counters["tag"] != 0)
        hashes: NDArray[np.int64] = self.counters["hash"][tagged]
        return hashes

    def update(self, hashes: NDArray[np.int64], weights: NDArray[np.float64] | None = None) -> None:
        """Count n events by their keys' hashes, shape (n,); weights (n,), None stands for ones.

        ValueError if a weight is NaN, infinite or negative.
        """
        from keygrouping.keyspace._space_saving_kernel import update_all

        hashes = np.require(hashes, np.int64, ["C", "W"])
        weights = _NO_WEIGHTS if weights is None else np.require(weights, np.float64, ["C", "W"])
        if hashes.ndim != 1 or (weights is not _NO_WEIGHTS and weights.shape != hashes.shape):
            raise ValueError(
                f"hashes and weights must have the same shape (n,), not {hashes.shape} and {weights.shape}"
            )
        check_weights(weights)
        update_all(self.counters, self.sketch, hashes, weights)

    @property
    def hashes(self) -> NDArray[np.int64]:
        """The keys that have a counter."""
        hashes: NDArray[np.int64] = self.counters["hash"][self.counters["used"] != 0]
        return hashes

    def find(self, hashed: int) -> Any | None:
        """A view of a key's counter, or None; it holds until the next update."""
        from keygrouping._probing import find

        counter = self.counters[find(self.counters, hashed)]
        return counter if counter["used"] else None

    def bounds(self, hashed: int) -> Bounds:
        """Between which limits a key's weight lies."""
        counter = self.find(hashed)
        if counter is None:
            return Bounds(0.0, self.offset)
        count = float(counter["count"])
        return Bounds(count - float(counter["error"]), count)

    def known(self) -> NDArray[Any]:
        """A copy of all counters, the largest count first, equal ones by hash."""
        used: NDArray[Any] = self.counters[self.counters["used"] != 0]
        return used[np.lexsort((used["hash"], -used["count"]))]

    def decay(self, factor: float) -> None:
        """Multiply all weights by a factor from 0 to 1, so that the past weighs less."""
        if not 0 <= factor <= 1:
            raise ValueError(f"factor must be from 0 to 1, not {factor!r}")
        self.counters["count"] *= factor
        self.counters["error"] *= factor
        self.sketch["total"] *= factor
        self.sketch["offset"] *= factor

    def merge(self, other: "SpaceSaving") -> None:
        """Count all that another sketch of the same capacity has seen; tags stay as they are here."""
        from keygrouping.keyspace._space_saving_kernel import merge

        if other.capacity != self.capacity:
            raise ValueError(f"can't merge a sketch of capacity {other.capacity} into one of {self.capacity}")
        merge(self.counters, self.sketch, other.counters.copy(), other.sketch.copy())

    def copy(self) -> "SpaceSaving":
        """A sketch that goes on by itself."""
        twin = SpaceSaving(self.capacity)
        twin.counters, twin.sketch = self.counters.copy(), self.sketch.copy()
        return twin

    def with_capacity(self, capacity: int) -> "SpaceSaving":
        """A new sketch of another capacity that goes on with these counts.

        All bounds stay true. With more capacity than before, what was counted so far keeps the errors it has.
        """
        known, sketch = self.known(), self.sketch.copy()
        if len(known) > 2 * capacity:
            sketch["offset"] = known["count"][capacity]
            kept = known["count"] > sketch["offset"]
            sketch["tags_dropped"] += np.count_nonzero(known["tag"][~kept])
            known = known[kept]
        return SpaceSaving(capacity)._filled(sketch, known)

    def _filled(self, sketch: NDArray[Any], counters: NDArray[Any]) -> "SpaceSaving":
        """This empty sketch, filled."""
        from keygrouping._probing import lay_out

        lay_out(self.counters, counters)
        sketch["size"], sketch["capacity"] = len(counters), self.capacity
        self.sketch = sketch
        return self

    def to_data(self) -> dict[str, Any]:
        """All state as plain JSON data."""
        known = self.known()
        plain = {name: self.sketch[name][0].item() for name in _PLAIN}
        return {**plain, **{name: known[name].tolist() for name in _COLUMNS}}

    @classmethod
    def from_data(cls, capacity: int, data: Mapping[str, Any]) -> "SpaceSaving":
        """The sketch of this capacity that gave `to_data`; a KeyError, TypeError or ValueError if there is none."""
        made, sketch = cls(capacity), np.zeros(1, SKETCH)
        counters = np.zeros(len(data["hash"]), COUNTER)
        try:
            for name in _PLAIN:
                sketch[name] = data[name]
            for name in _COLUMNS:
                counters[name] = data[name]
        except OverflowError as error:
            raise ValueError(f"{name} is out of range") from error
        counters["used"] = 1
        _check(capacity, sketch, counters)
        return made._filled(sketch, counters)

    @classmethod
    def fitted(cls, capacity: int, data: Mapping[str, Any]) -> dict[str, Any]:
        """What the `to_data` of a sketch of another capacity gave, fit for this one; see `with_capacity`."""
        return cls.from_data(max(1, len(data["hash"])), data).with_capacity(capacity).to_data()


class WindowedSpaceSaving:
    """SpaceSaving over a window that slides by panes: the current one and as many before as the window has.

    For every key lower <= its weight within the window <= upper, with upper - lower <= total / (capacity + 1).
    Memory: that of one SpaceSaving per pane.
    """

    def __init__(self, capacity: int, panes: int) -> None:
        if isinstance(panes, bool) or not isinstance(panes, int) or panes < 1:
            raise ValueError(f"panes must be a positive integer, not {panes!r}")
        self.panes = [SpaceSaving(capacity) for _ in range(panes)]
        """The oldest first; the last is the current one, which kernels update."""

    @property
    def total(self) -> float:
        """The weight of all keys within the window."""
        return sum(pane.total for pane in self.panes)

    def update(self, hashes: NDArray[np.int64], weights: NDArray[np.float64] | None = None) -> None:
        """Count n events in the current pane, as SpaceSaving does."""
        self.panes[-1].update(hashes, weights)

    def slide(self) -> None:
        """Begin a new pane and forget the oldest."""
        self.panes = [*self.panes[1:], SpaceSaving(self.panes[-1].capacity)]

    def bounds(self, hashed: int) -> Bounds:
        """Between which limits a key's weight within the window lies."""
        lower, upper = zip(*(pane.bounds(hashed) for pane in self.panes), strict=True)
        return Bounds(sum(lower), sum(upper))

    def merged(self) -> SpaceSaving:
        """The whole window as one new sketch, without tags."""
        window = SpaceSaving(self.panes[-1].capacity)
        for pane in self.panes:
            window.merge(pane)
        return window

    def to_data(self) -> list[dict[str, Any]]:
        """All state as plain JSON data."""
        return [pane.to_data() for pane in self.panes]

    @classmethod
    def from_data(cls, capacity: int, panes: int, data: Iterable[Mapping[str, Any]]) -> "WindowedSpaceSaving":
        """The window that gave `to_data`; a KeyError, TypeError or ValueError if there is none."""
        made = cls(capacity, panes)
        restored = [SpaceSaving.from_data(capacity, pane) for pane in data]
        if len(restored) != panes:
            raise ValueError(f"needs {panes} panes, not {len(restored)}")
        made.panes = restored
        return made


def _check(capacity: int, sketch: NDArray[Any], counters: NDArray[Any]) -> None:
    """A ValueError if a sketch of this capacity can't hold these counters."""
    if len(counters) > 2 * capacity or len(np.unique(counters["hash"])) != len(counters):
        raise ValueError("too many counters, or one key twice")
    limits = np.concatenate((counters["count"], counters["error"], sketch["total"], sketch["offset"]))
    if not np.all(np.isfinite(limits)) or np.any(limits < 0) or np.any(counters["count"] < counters["error"]):
        raise ValueError("counts, errors, total and offset must be numbers from 0 on, and no count below its error")
