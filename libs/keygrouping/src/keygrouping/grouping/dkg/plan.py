"""What several sources of Dynamic Key Grouping have counted, and the widths that it makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._wide_keys import WideKeys
from keygrouping.grouping.base import loads_from
from keygrouping.grouping.protocol import Weights
from keygrouping.keyspace import ITEM, OLD, TEENAGE


@dataclass(frozen=True, slots=True)
class Counted:
    """The sums over all sources; equal to the last bit whatever their order."""

    gathered: float
    """Seconds for which loads were gathered, by the source that has done so for longest."""
    loads: Weights
    mass: float
    """Weight of all keys."""
    keys: NDArray[Any]
    """Items (see ITEM) of the keys that are teenage or old with a source, by hash; times as seconds from now."""

    @staticmethod
    def rows(items: NDArray[Any], now: float) -> list[list[Any]]:
        """[hash, count, space, seconds since it was first seen] of items, as plain JSON data."""
        ages = (now - items["first_seen"]).tolist()
        columns = (items["hash"].tolist(), items["count"].tolist(), items["space"].tolist(), ages)
        return list(map(list, zip(*columns, strict=True)))

    @classmethod
    def parsed(cls, statistics: Sequence[Mapping[str, Any]], workers: int) -> "Counted":
        """Out of JSON data; a KeyError, TypeError, ValueError or OverflowError if it is none for so many workers."""
        loads = np.array([loads_from(source["loads"], workers) for source in statistics]).reshape(-1, workers)
        masses = loads_from([float(source["mass"]) for source in statistics], len(statistics))
        gathered = max((float(source["gathered"]) for source in statistics), default=0.0)
        keys = _merged([_items(source["keys"]) for source in statistics])
        return cls(gathered, np.sort(loads, axis=0).sum(axis=0), float(np.sort(masses).sum()), keys)

    def shares(self) -> dict[int, float]:
        """The parts that keys have of all weight."""
        return dict(zip(self.keys["hash"].tolist(), (self.keys["count"] / (self.mass or 1.0)).tolist(), strict=True))

    def widths(self, wide: WideKeys, rules: NDArray[Any], now: float, warm_up: float, old: int) -> dict[int, int]:
        """The next width of every key that is or was wide, by the rules of the kernel.

        `wide`: the plan in force; `old`: how many of the heaviest old keys may be widened.
        """
        from keygrouping.grouping.dkg.route_kernel import next_widths

        rules = rules.copy()
        rules["now"], rules["warm"] = now, self.gathered > warm_up
        items = self._items_for(wide, int(rules["min_width"][0]), now, old)
        widths = next_widths(items, self.loads, float(self.loads.sum()), rules[0])
        kept = widths > rules["min_width"]
        return dict(zip(items["hash"][kept].tolist(), widths[kept].tolist(), strict=True))

    def _items_for(self, wide: WideKeys, cold_width: int, now: float, old: int) -> NDArray[Any]:
        """The keys as one source would know them that had seen everything and had the widths of the plan."""
        items = self.keys.copy()
        items["changed"], items["width"] = items["first_seen"] + now, cold_width
        candidates = np.flatnonzero(items["space"] == OLD)
        ranked = candidates[np.lexsort((items["hash"][candidates], -items["count"][candidates]))]
        items["space"][ranked[old:]] = TEENAGE
        known = wide.known()
        _, at, of = np.intersect1d(items["hash"], known["hash"], assume_unique=True, return_indices=True)
        items["changed"][at], items["width"][at] = known["changed"][of], known["width"][of]
        return items


def _items(rows: Sequence[Sequence[Any]]) -> NDArray[Any]:
    """The items of `Counted.rows`."""
    items = np.zeros(len(rows), ITEM)
    for name, at in (("hash", 0), ("count", 1), ("space", 2)):
        items[name] = [row[at] for row in rows]
    items["first_seen"] = [-float(row[3]) for row in rows]
    if len(np.unique(items["hash"])) != len(items) or not np.all(np.isin(items["space"], (TEENAGE, OLD))):
        raise ValueError("a key twice, or in a space that isn't told of")
    if not np.all(np.isfinite(items["first_seen"])) or not np.all(np.isfinite(items["count"]) & (items["count"] >= 0)):
        raise ValueError("a key with a count or age that is none")
    return items


def _merged(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One item per key: counts summed, from the first time seen, in the furthest space."""
    items = np.concatenate([*parts, np.empty(0, ITEM)])
    items = items[np.lexsort((items["count"], items["hash"]))]
    hashes, first = np.unique(items["hash"], return_index=True)
    merged = np.zeros(len(hashes), ITEM)
    if len(hashes):
        merged["hash"] = hashes
        merged["count"] = np.add.reduceat(items["count"], first)
        merged["first_seen"] = np.minimum.reduceat(items["first_seen"], first)
        merged["space"] = np.maximum.reduceat(items["space"], first)
    return merged
