"""The keys that a routing-table grouping knows: where each goes, and what it cost in this interval and those before."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.base import NO_WEIGHTS
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.grouping.table.interval import Numbers
from keygrouping.grouping.table.slot import EMPTY, ROUTED, SLOT, TRACKED

_FEWEST_SLOTS = 1024


def fitted_window(past: Weights, length: int) -> Weights:
    """The weights of so many intervals, in columns, the newest first; those that are not known are 0."""
    kept = past[:, :length]
    return np.pad(kept, ((0, 0), (0, length - kept.shape[1])))


def homes(hashes: NDArray[np.int64], workers: int) -> Numbers:
    """The workers at home for these hashes."""
    return (np.abs(hashes).view(np.uint64) % np.uint64(workers)).astype(np.int64)


class TrackedKeys:
    """A hash table of keys that grows up to its limit, and the weights of the intervals before.

    The limit is the size of the routing table plus `capacity` other keys. Between two intervals keys without weight
    in the window are let go, and of the others so many of the lightest that at least half of the capacity is free.
    Memory: 32 + 8 x (window - 1) bytes for each of 2 to 4 slots per key.

    For the search in it see `keygrouping._probing`.
    """

    def __init__(self, capacity: int, window: int) -> None:
        self._capacity = capacity
        self._known = np.zeros(1, np.int64)
        self._entries = 0
        self._slots: NDArray[np.void] = np.zeros(_FEWEST_SLOTS, SLOT)
        self._past: Weights = np.zeros((_FEWEST_SLOTS, window - 1))

    def __len__(self) -> int:
        """Number of keys that it knows."""
        return int(self._known[0])

    @property
    def cost(self) -> float:
        """The weight of all keys in this interval."""
        return float(self._slots["cost"].sum())

    def route(self, hashes: Hashes, weights: Weights, background: Weights, now: float) -> Workers:
        """The workers of these events; counts their weights, those of keys that can't be tracked in `background`."""
        from keygrouping.grouping.table.route_kernel import Arrays, route_by_table

        routed = np.empty(len(hashes), np.int32)
        done = 0
        while True:
            arrays = Arrays(self._slots, self._known, background)
            done = route_by_table(hashes, weights, done, routed, arrays, self._limit, now)
            if done == len(hashes):
                return routed
            self._grow()

    def each(self, event: Hashes, background: Weights, now: float) -> Iterator[int]:
        """As `route`, the worker of the event that stands in `event`, for as long as somebody asks."""
        from keygrouping.grouping.table.route_kernel import Arrays, each_by_table

        while True:
            arrays = Arrays(self._slots, self._known, background)
            yield from each_by_table(event, NO_WEIGHTS, arrays, self._limit, now)
            self._grow()

    @property
    def _limit(self) -> int:
        return self._entries + self._capacity

    def _grow(self) -> None:
        self._replace(*self._keys(), slots=2 * len(self._slots))

    def find(self, hashed: int) -> tuple[Any, float] | None:
        """The item of a key and its weight in the window, or None."""
        from keygrouping.grouping.table.route_kernel import find

        slot = find(self._slots, hashed)
        item = self._slots[slot]
        return None if item["kind"] == EMPTY else (item, float(item["cost"] + self._past[slot].sum()))

    def counted(self) -> tuple[NDArray[np.int64], Weights, Weights]:
        """Hash, weight in this interval and weight in the window of all keys that have some, by hash."""
        keys, past = self._keys()
        state = keys["cost"] + past.sum(axis=1)
        counted = np.flatnonzero(state > 0)
        counted = counted[np.argsort(keys["hash"][counted])]
        return keys["hash"][counted], keys["cost"][counted], state[counted]

    def entries(self) -> tuple[NDArray[np.int64], Numbers]:
        """Hash and worker of all keys in the routing table, by hash."""
        entries = self._slots[self._slots["kind"] == ROUTED]
        entries = entries[np.argsort(entries["hash"])]
        return entries["hash"], entries["worker"].astype(np.int64)

    def at_home(self) -> NDArray[np.int64]:
        """The hashes of all keys that are not in the routing table."""
        hashes: NDArray[np.int64] = self._slots["hash"][self._slots["kind"] == TRACKED]
        return hashes

    def roll(self) -> None:
        """Begin a new interval."""
        keys, past = self._keys()
        past = np.column_stack([keys["cost"], past])[:, : past.shape[1]]
        keys["cost"] = 0.0
        self._hold(keys, past, self._capacity // 2)

    def route_to(self, hashes: NDArray[np.int64], workers: Numbers, all_workers: int, now: float) -> None:
        """Make this the routing table: these (distinct) keys go to these workers, all others home."""
        keys, past = self._keys()
        new = np.setdiff1d(hashes, keys["hash"])
        added = np.zeros(len(new), SLOT)
        added["hash"] = new
        added["since"] = now
        keys = np.concatenate([keys, added])
        _send(keys, hashes, workers, all_workers)
        self._hold(keys, np.concatenate([past, np.zeros((len(new), past.shape[1]))]), self._capacity)

    def resize(self, all_workers: int) -> None:
        """There are this many workers now: entries for those that are gone, or that became homes, are dropped."""
        keys, past = self._keys()
        stay = (keys["kind"] == ROUTED) & (keys["worker"] < all_workers)
        _send(keys, keys["hash"][stay], keys["worker"][stay], all_workers)
        self._hold(keys, past, self._capacity)

    def take_over(self, other: "TrackedKeys", background: Weights) -> None:
        """Hold the other's keys for as many workers, the heaviest of those at home that there is room for.

        The weight in this interval of those that are not kept goes to the `background` of their workers.
        """
        keys, past = other._keys()
        past = fitted_window(past, self._past.shape[1])
        at_home = np.flatnonzero(keys["kind"] == TRACKED)
        if len(at_home) > self._capacity:
            state = keys["cost"][at_home] + past[at_home].sum(axis=1)
            ranked = at_home[np.lexsort((keys["hash"][at_home], -state))]
            dropped = ranked[self._capacity :]
            background += np.bincount(keys["worker"][dropped], keys["cost"][dropped], len(background))
            keys, past = np.delete(keys, dropped), np.delete(past, dropped, axis=0)
        self._replace(keys, past, _FEWEST_SLOTS)

    def to_data(self) -> list[list[Any]]:
        """All keys as plain JSON data, by hash."""
        keys, past = self._keys()
        order = np.argsort(keys["hash"])
        keys, past = keys[order], past[order]
        columns = [keys[name].tolist() for name in ("hash", "worker", "since", "cost")]
        return list(map(list, zip(*columns, past.tolist(), strict=True)))

    def checked(self, data: Iterable[Any], all_workers: int, shift: float) -> tuple[NDArray[np.void], Weights]:
        """The keys of `to_data`, their times moved by `shift` seconds; a ValueError if they can't be held."""
        items = list(data)
        keys = np.zeros(len(items), SLOT)
        for at, name in enumerate(("hash", "worker", "since", "cost")):
            keys[name] = [item[at] for item in items]
        past = np.array([item[4] for item in items], np.float64).reshape(len(items), self._past.shape[1])
        weights = np.append(past, keys["cost"])
        if len(np.unique(keys["hash"])) != len(keys):
            raise ValueError("a key twice")
        if np.any((keys["worker"] < 0) | (keys["worker"] >= all_workers)):
            raise ValueError("a key at an unknown worker")
        if not np.all(np.isfinite(weights)) or np.any(weights < 0):
            raise ValueError("a key with a weight that is none")
        keys["since"] += shift
        keys["kind"] = _kinds(keys, all_workers)
        if np.count_nonzero(keys["kind"] == TRACKED) > self._capacity:
            raise ValueError("more keys than can be tracked")
        return keys, past

    def replace(self, keys: NDArray[np.void], past: Weights) -> None:
        """Hold exactly these `checked` keys."""
        self._replace(keys, past, _FEWEST_SLOTS)

    def _keys(self) -> tuple[NDArray[np.void], Weights]:
        used = np.flatnonzero(self._slots["kind"] != EMPTY)
        return self._slots[used], self._past[used]

    def _hold(self, keys: NDArray[np.void], past: Weights, room: int) -> None:
        """Keep the routing table, and as many of the heaviest other keys as there is room for."""
        state = keys["cost"] + past.sum(axis=1)
        routed = keys["kind"] == ROUTED
        kept = routed | (state > 0)
        others = np.flatnonzero(kept & ~routed)
        if len(others) > room:
            kept[others[np.lexsort((keys["hash"][others], -state[others]))][room:]] = False
        self._replace(keys[kept], past[kept], len(self._slots))

    def _replace(self, keys: NDArray[np.void], past: Weights, slots: int) -> None:
        from keygrouping.grouping.table.route_kernel import lay_out

        while slots < 2 * len(keys):
            slots *= 2
        self._slots = np.zeros(slots, SLOT)
        self._past = np.zeros((slots, past.shape[1]))
        self._past[lay_out(self._slots, keys)] = past
        self._known[0] = len(keys)
        self._entries = int(np.count_nonzero(keys["kind"] == ROUTED))


def _send(keys: NDArray[np.void], hashes: NDArray[np.int64], workers: NDArray[np.integer], all_workers: int) -> None:
    """Give the keys the workers and kinds of this routing table; entries that point home are none."""
    order = np.argsort(keys["hash"])
    keys["worker"] = homes(keys["hash"], all_workers)
    keys["worker"][order[np.searchsorted(keys["hash"], hashes, sorter=order)]] = workers
    keys["kind"] = _kinds(keys, all_workers)


def _kinds(keys: NDArray[np.void], all_workers: int) -> NDArray[np.int64]:
    return np.where(keys["worker"] == homes(keys["hash"], all_workers), TRACKED, ROUTED)
