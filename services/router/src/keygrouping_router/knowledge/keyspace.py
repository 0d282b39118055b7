"""What the routers know of their keys: one replica's knowledge, and that of all merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from keygrouping.grouping import Explanation, Space
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import KeySample, lambda_, least_share, std_dev
from numpy.typing import NDArray

from keygrouping_router.knowledge.balance import Loads, capacities_of
from keygrouping_router.knowledge.tracker import Sighting

_SLICE = 100
"""Keys that are explained in one stretch."""

_STRETCH = 1000
"""Keys that are gone through in one stretch."""

Explain = Callable[[bytes], Explanation]

Sort = Literal["share", "width", "first_seen", "last_seen", "hot_since", "key"]


class KeyQuery(NamedTuple):
    """Which keys of the KeySpace are wanted, and in what order."""

    space: str | None = None
    limit: int = 20
    offset: int = 0
    sort: Sort = "share"
    prefix: bytes = b""
    replica: str | None = None


@dataclass(frozen=True)
class Knowledge:
    """What one replica knows: its keys in the last intervals, and who got what in the last whole one.

    Times are seconds since 1970. `before` holds the loads that key hashing would have given.
    """

    replica: str
    events: int
    counts: SpaceSaving
    distinct: KeySample
    sightings: Mapping[int, Sighting]
    last_seen: Callable[[int], float]
    """0 for keys that aren't counted."""
    hot_since: Mapping[int, float]
    widths: Mapping[int, int]
    loads: Loads
    before: Loads
    spread: KeySample


_UNSEEN = Sighting(None, 0.0)
_Weight = tuple[float | None, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class KeyState:
    """What is known of one key. Times are seconds since 1970, 0 where they are not known; shares lie in [0, 1].

    The counts are None for a key that isn't counted, the name for one of which only the hash is known.
    """

    name: bytes | None
    hash: int
    count: float | None
    error: float | None
    share: float | None
    share_low: float | None
    share_high: float | None
    width: int
    hot: bool
    first_seen: float
    last_seen: float
    hot_since: float
    explanation: Explanation | None
    """Why it goes where it goes, which nobody can say of a key without a name."""
    space: str | None
    """Name of the space that it is in."""


class SpaceState(NamedTuple):
    """One of the grouping's spaces: how many tracked keys are in it, and what the grouping itself has there."""

    name: str
    size: int
    kept: int
    capacity: int | None
    meaning: str


@dataclass(frozen=True)
class KeySpaceSummary:
    """The KeySpace as a whole: loads of the workers, how even they are, and how large it is.

    Loads are weights in the last whole interval; without any, how even they are is None. `at` is in seconds since 1970.
    """

    grouping: str
    workers: int
    epoch: int
    replicas: list[str]
    interval_seconds: float
    events: int
    total_keys: int
    tracked_keys: int
    spaces: Sequence[SpaceState]
    loads: list[float]
    lambda_: float | None
    least_share: float | None
    std_dev: float | None
    dist_cost: float
    lambda_before: float | None
    at: float


@dataclass(frozen=True)
class Interval:
    """The KeySpace at the end of an interval, with the keys of the largest share."""

    summary: KeySpaceSummary
    hot: list[KeyState]


class KeySpaceView:
    """The knowledge of several replicas as one, at one moment; the first of them is the one that explains.

    Replicas that route to another number of workers than the first, as while one changes, add their counts, but not
    their loads, which are judged by the capacities of the workers (1 where none is given). `explained_at` is the time
    (seconds since 1970) from which the ages in explanations count; `spaces` are those of the grouping that explains,
    which does not decide on the keys `outside` (hashes).
    """

    def __init__(
        self,
        parts: Sequence[Knowledge],
        explain: Explain,
        cold_width: int,
        capacities: Mapping[int, float],
        explained_at: Callable[[], float],
        spaces: Sequence[Space] = (),
        outside: Collection[int] = (),
    ) -> None:
        self._parts = parts
        self._explain = explain
        self._explained_at = explained_at
        self._cold_width = cold_width
        self._alike = [part for part in parts if len(part.loads) == len(parts[0].loads)]
        self.replicas = sorted(part.replica for part in parts)
        self.events = sum(part.events for part in parts)
        self._spaces = spaces
        self._outside = outside
        self.loads: Loads = np.sum([part.loads for part in self._alike], axis=0)
        given = capacities_of(capacities, len(self.loads))
        before = np.sum([part.before for part in self._alike], axis=0)
        self.lambda_ = lambda_(self.loads, given) if self.loads.any() else None
        self.least_share = least_share(self.loads, given) if self.loads.any() else None
        self.std_dev = std_dev(self.loads, given) if self.loads.any() else None
        self.lambda_before = lambda_(before, given) if before.any() else None

    @cached_property
    def counts(self) -> SpaceSaving:
        """The counts of all."""
        capacity = min(part.counts.capacity for part in self._parts)
        merged = SpaceSaving(capacity)
        for part in self._parts:
            merged.merge(part.counts if part.counts.capacity == capacity else part.counts.with_capacity(capacity))
        return merged

    @cached_property
    def total_keys(self) -> int:
        """Distinct keys of the last intervals, an estimate."""
        return _merged([part.distinct for part in self._parts]).keys

    @cached_property
    def dist_cost(self) -> float:
        """Distinct workers per key in the last whole interval."""
        return _merged([part.spread for part in self._alike]).dist_cost

    @cached_property
    def widths(self) -> dict[int, int]:
        """The width of each hot key by hash, the largest where replicas differ."""
        widths: dict[int, int] = {}
        for part in self._parts:
            for hashed, width in part.widths.items():
                widths[hashed] = max(width, widths.get(hashed, 0))
        return widths

    @cached_property
    def spaces(self) -> list[SpaceState]:
        """The spaces of the grouping, each with how many of the counted keys are in it."""
        sizes = np.bincount(self._places(self.counts.hashes) + 1, minlength=len(self._spaces) + 1)[1:].tolist()
        return [
            SpaceState(one.name, size, one.size, one.capacity, one.meaning)
            for one, size in zip(self._spaces, sizes, strict=True)
        ]

    def _places(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the space that each of these keys is in, -1 for none; of several it is the last one."""
        places = np.full(len(hashes), -1)
        for number, space in enumerate(self._spaces):
            places[... if space.hashes is None else np.isin(hashes, space.hashes)] = number
        places[np.isin(hashes, np.fromiter(self._outside, np.int64))] = -1
        return places

    async def page(self, query: KeyQuery) -> tuple[list[KeyState], int]:
        """The keys that were asked for, and how many match in all; lets other tasks run between slices."""
        rows = await self._matching(query)
        wanted = rows[query.offset : query.offset + query.limit]
        names = [*(space.name for space in self._spaces), None]
        spaces = [names[place] for place in self._places(np.array(wanted, np.int64)).tolist()]
        pairs = list(zip(wanted, spaces, strict=True))
        entries: list[KeyState] = []
        for start in range(0, len(pairs), _SLICE):
            entries += [self._entry(hashed, space) for hashed, space in pairs[start : start + _SLICE]]
            await asyncio.sleep(0)
        return entries, len(rows)

    def _entry(self, hashed: int, space: str | None) -> KeyState:
        name = self.name(hashed)
        return self._state(hashed, name, None if name is None else self._explain(name), space)

    def name(self, hashed: int) -> bytes | None:
        """The key of a hash; None if it is not known."""
        names = (part.sightings.get(hashed, _UNSEEN).name for part in self._parts)
        return next((name for name in names if name is not None), None)

    def state(self, key: bytes, hashed: int) -> KeyState:
        """What is known of any key, and why it goes where it goes."""
        explanation = self._explain(key)
        return self._state(hashed, key, explanation, explanation.space)

    def _state(self, hashed: int, name: bytes | None, explanation: Explanation | None, space: str | None) -> KeyState:
        width = self.widths.get(hashed, self._cold_width if explanation is None else explanation.width)
        hot = width > self._cold_width
        return KeyState(
            name,
            hashed,
            *self._weight(hashed),
            width,
            hot,
            self._first_seen(hashed),
            self._last_seen(hashed),
            self._hot_since(hashed, explanation) if hot else 0.0,
            explanation,
            space,
        )

    def _weight(self, hashed: int) -> _Weight:
        """Count, error and share, and the bounds of the share."""
        counter, total = self.counts.find(hashed), self.counts.total
        if counter is None or not total:
            return None, None, None, None, None
        count, error = float(counter["count"]), float(counter["error"])
        low, high = max(0.0, (count - error) / total), min(1.0, count / total)
        return count, error, (low + high) / 2, low, high

    def _first_seen(self, hashed: int) -> float:
        return min((part.sightings[hashed].first_seen for part in self._parts if hashed in part.sightings), default=0.0)

    def _last_seen(self, hashed: int) -> float:
        return max(part.last_seen(hashed) for part in self._parts)

    def _hot_since(self, hashed: int, explanation: Explanation | None = None) -> float:
        """Since when the grouping says that a key is hot, or else since when it has been seen to be."""
        if explanation is not None and explanation.hot_since is not None:
            return self._explained_at() - explanation.hot_since
        return min((part.hot_since[hashed] for part in self._parts if hashed in part.hot_since), default=0.0)

    async def _matching(self, query: KeyQuery) -> list[int]:
        """Hashes of the tracked keys that match, in the order that was asked for."""
        counts = self.counts
        await asyncio.sleep(0)
        known = counts.known()
        rows: list[int] = known["hash"][np.argsort(known["error"] / 2 - known["count"], kind="stable")].tolist()
        if query.prefix:
            names = await self._of_each(rows, self.name)
            rows = [hashed for hashed, name in zip(rows, names, strict=True) if (name or b"").startswith(query.prefix)]
        if query.space is not None:
            rows = self._in_space(rows, query.space)
        if query.sort != "share":
            rows = await self._ordered(rows, query.sort)
        return rows

    async def _of_each(self, rows: list[int], look: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = []
        for start in range(0, len(rows), _STRETCH):
            await asyncio.sleep(0)
            found += map(look, rows[start : start + _STRETCH])
        return found

    def _in_space(self, rows: list[int], name: str) -> list[int]:
        number = next((number for number, space in enumerate(self._spaces) if space.name == name), None)
        hashes = np.array(rows, np.int64)
        return [] if number is None else list(hashes[self._places(hashes) == number].tolist())

    async def _ordered(self, rows: list[int], sort: str) -> list[int]:
        """Widest first, newest first, or by name; what is not known comes last."""
        orders: dict[str, Callable[[int], Any]] = {
            "width": lambda hashed: -self.widths.get(hashed, self._cold_width),
            "first_seen": lambda hashed: -self._first_seen(hashed),
            "last_seen": lambda hashed: -self._last_seen(hashed),
            "hot_since": lambda hashed: -self._hot_since(hashed),
            "key": self.name,
        }
        ranks = dict(zip(rows, await self._of_each(rows, orders[sort]), strict=True))
        known = [hashed for hashed in rows if ranks[hashed] is not None]
        unknown = [hashed for hashed in rows if ranks[hashed] is None]
        await asyncio.sleep(0)
        return sorted(known, key=ranks.__getitem__) + unknown


def _merged(samples: Sequence[KeySample]) -> KeySample:
    merged = samples[0].copy()
    for sample in samples[1:]:
        merged.merge(sample)
    return merged
