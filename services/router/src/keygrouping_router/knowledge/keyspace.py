"""What the routers know of their keys: one replica's knowledge, that of all merged, and what is shown of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Annotated, Any

import numpy as np
from keygrouping.grouping import Explanation
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import MOST_PAIRS, KeySample, lambda_, std_dev
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keygrouping_router.api.shapes import MAX_TRACKED, MAX_WORKERS, KeyEntry, KeyQuery, KeyReport, Number, SpaceReport
from keygrouping_router.knowledge.balance import Loads, capacities_of
from keygrouping_router.knowledge.tracker import Sighting
from keygrouping_router.naming import named

_SLICE = 100
"""Keys that are explained in one stretch."""

_STRETCH = 1000
"""Keys that are gone through in one stretch."""

_COLUMNS: Mapping[str, Any] = {"hash": np.int64, "count": np.float64, "error": np.float64, "tag": np.int64}
"""Of what a sketch says of its keys: as JSON, numbers by the thousand would take too long to read."""

Explain = Callable[[bytes], Explanation]


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
    spaces: tuple[SpaceReport, ...]

    async def to_data(self) -> dict[str, Any]:
        """All of it as JSON data of bounded size; lets other tasks run between stretches."""
        counts = self.counts.to_data()
        hashes = counts["hash"]
        seen: list[Sighting] = []
        names: list[str | None] = []
        times: list[float] = []
        for start in range(0, len(hashes), _STRETCH):
            await asyncio.sleep(0)
            stretch = hashes[start : start + _STRETCH]
            times += map(self.last_seen, stretch)
            found = [self.sightings.get(hashed, _UNSEEN) for hashed in stretch]
            names += [None if one.name is None else base64.b64encode(one.name).decode() for one in found]
            seen += found
        await asyncio.sleep(0)
        return {
            "replica": self.replica,
            "events": self.events,
            "capacity": self.counts.capacity,
            "counts": {name: _packed(counts[name], kind) for name, kind in _COLUMNS.items()}
            | {name: value for name, value in counts.items() if name not in _COLUMNS},
            "distinct": self.distinct.to_data(),
            "names": names,
            "first_seen": _packed([one.first_seen for one in seen], np.float64),
            "last_seen": _packed(times, np.float64),
            "hot": [[hashed, width, self.hot_since.get(hashed)] for hashed, width in self.widths.items()],
            "loads": self.loads.tolist(),
            "before": self.before.tolist(),
            "spread": self.spread.to_data(),
            "spaces": [space.model_dump() for space in self.spaces],
        }

    @classmethod
    async def from_data(cls, data: Mapping[str, Any]) -> Knowledge:
        """The knowledge that gave `to_data`; raises if there is none. Lets other tasks run between stretches."""
        told = _Told.model_validate(data)
        counts = {**told.counts, **{name: _unpacked(told.counts[name], kind) for name, kind in _COLUMNS.items()}}
        hashes, first_seen = counts["hash"].tolist(), _times(told.first_seen)
        seen: dict[int, Sighting] = {}
        rows = zip(hashes, told.names, first_seen, strict=True)
        while stretch := list(islice(rows, _STRETCH)):
            seen |= {
                hashed: Sighting(None if name is None else base64.b64decode(name), first)
                for hashed, name, first in stretch
                if first
            }
            await asyncio.sleep(0)
        last_seen = dict(zip(hashes, _times(told.last_seen), strict=True))
        if len(told.loads) != len(told.before):
            raise ValueError("loads of different numbers of workers")
        return cls(
            replica=told.replica,
            events=told.events,
            counts=SpaceSaving.from_data(told.capacity, counts),
            distinct=KeySample.from_data(told.distinct),
            sightings=seen,
            last_seen=lambda hashed: last_seen.get(hashed, 0.0),
            hot_since={hashed: since for hashed, _, since in told.hot if since is not None},
            widths={hashed: width for hashed, width, _ in told.hot},
            loads=np.array(told.loads, np.float64),
            before=np.array(told.before, np.float64),
            spread=KeySample.from_data(told.spread, max(MOST_PAIRS, 4 * len(told.loads))),
            spaces=tuple(told.spaces),
        )


_LATEST = 253_402_300_799.0
"""The end of the last year that can be written as a time."""
_Time = Annotated[float, Field(ge=0, le=_LATEST)]
_Load = Annotated[float, Field(ge=0, le=1e150)]
_Loads = Annotated[list[_Load], Field(min_length=1, max_length=MAX_WORKERS)]
_Width = Annotated[int, Field(ge=0, le=MAX_WORKERS)]
_Hash = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Told(BaseModel):
    """What a replica tells of its knowledge, as it stands in the store."""

    model_config = ConfigDict(frozen=True)

    replica: str = Field(max_length=200)
    events: Number
    capacity: int = Field(ge=1, le=MAX_TRACKED)
    counts: dict[str, Any]
    distinct: dict[str, Any]
    names: list[str | None]
    first_seen: str
    last_seen: str
    hot: list[tuple[_Hash, _Width, _Time | None]]
    loads: _Loads
    before: _Loads
    spread: dict[str, Any]
    spaces: list[SpaceReport] = Field(max_length=20)


def _packed(values: Any, kind: Any) -> str:
    return base64.b64encode(np.array(values, kind).tobytes()).decode()


def _times(packed: str) -> list[float]:
    times = _unpacked(packed, np.float64)
    if not np.all((times >= 0) & (times <= _LATEST)):
        raise ValueError("times that are none")
    return list(times.tolist())


def _unpacked(packed: str, kind: Any) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(packed), kind)


_UNSEEN = Sighting(None, 0.0)


class KeySpaceView:
    """The knowledge of several replicas as one, at one moment; the first of them is the one that explains.

    Replicas that route to another number of workers than the first, as while one changes, add their counts, but not
    their loads, which are judged by the capacities of the workers (1 where none is given). `explained_at` is the time
    (seconds since 1970) from which the ages in explanations count.
    """

    def __init__(
        self,
        parts: Sequence[Knowledge],
        explain: Explain,
        cold_width: int,
        capacities: Mapping[int, float],
        explained_at: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._explain = explain
        self._explained_at = explained_at
        self._cold_width = cold_width
        self._alike = [part for part in parts if len(part.loads) == len(parts[0].loads)]
        self.replicas = sorted(part.replica for part in parts)
        self.events = sum(part.events for part in parts)
        self.spaces = list(parts[0].spaces)
        self.loads: Loads = np.sum([part.loads for part in self._alike], axis=0)
        given = capacities_of(capacities, len(self.loads))
        self.lambda_ = lambda_(self.loads, given)
        self.std_dev = std_dev(self.loads, given)
        self.lambda_before = lambda_(np.sum([part.before for part in self._alike], axis=0), given)

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

    async def page(self, query: KeyQuery) -> tuple[list[KeyEntry], int]:
        """The keys that were asked for, and how many match in all; lets other tasks run between slices."""
        rows = await self._matching(query)
        wanted = rows[query.offset : query.offset + query.limit]
        entries: list[KeyEntry] = []
        for start in range(0, len(wanted), _SLICE):
            entries += [self.entry(hashed) for hashed in wanted[start : start + _SLICE]]
            await asyncio.sleep(0)
        return entries, len(rows)

    def entry(self, hashed: int) -> KeyEntry:
        """What is known of a key that is counted."""
        name = self.name(hashed)
        explanation = None if name is None else self._explain(name)
        return KeyEntry.model_construct(**self._members(hashed, name, explanation))

    def name(self, hashed: int) -> bytes | None:
        """The key of a hash; None if it is not known."""
        names = (part.sightings.get(hashed, _UNSEEN).name for part in self._parts)
        return next((name for name in names if name is not None), None)

    def report(self, key: bytes, hashed: int) -> KeyReport:
        """What is known of any key, and why it goes where it goes."""
        explanation = self._explain(key)
        return KeyReport.model_validate(
            {
                **self._members(hashed, key, explanation),
                "home": explanation.home,
                "candidates": list(explanation.candidates),
                "age_seconds": explanation.age,
                "why": explanation.why,
            }
        )

    def _members(self, hashed: int, name: bytes | None, explanation: Explanation | None) -> dict[str, Any]:
        width = self.widths.get(hashed, self._cold_width if explanation is None else explanation.width)
        hot_since = self._hot_since(hashed, explanation)
        return {
            **named(name, hashed),
            **self._weight(hashed),
            "width": width,
            "hot": width > self._cold_width,
            "workers": [] if explanation is None else list(explanation.candidates),
            "space": None if explanation is None else explanation.space,
            "first_seen": moment(self._first_seen(hashed)),
            "last_seen": moment(self._last_seen(hashed)),
            "hot_since": moment(hot_since) if width > self._cold_width else None,
        }

    def _weight(self, hashed: int) -> dict[str, float | None]:
        counter, total = self.counts.find(hashed), self.counts.total
        if counter is None or not total:
            return dict.fromkeys(("count", "error", "share", "share_low", "share_high"))
        count, error = float(counter["count"]), float(counter["error"])
        low, high = max(0.0, (count - error) / total), min(1.0, count / total)
        return {"count": count, "error": error, "share": (low + high) / 2, "share_low": low, "share_high": high}

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
            rows = await self._in_space(rows, query.space)
        if query.sort != "share":
            rows = await self._ordered(rows, query.sort)
        return rows

    async def _of_each(self, rows: list[int], look: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = []
        for start in range(0, len(rows), _STRETCH):
            await asyncio.sleep(0)
            found += map(look, rows[start : start + _STRETCH])
        return found

    async def _in_space(self, rows: list[int], space: str) -> list[int]:
        found: list[int] = []
        for start in range(0, len(rows), _SLICE):
            named_rows = ((hashed, self.name(hashed)) for hashed in rows[start : start + _SLICE])
            found += [hashed for hashed, name in named_rows if name is not None and self._explain(name).space == space]
            await asyncio.sleep(0)
        return found

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


def moment(seconds: float) -> datetime | None:
    """A time in seconds since 1970 as models have it; 0 stands for one that is not known."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _merged(samples: Sequence[KeySample]) -> KeySample:
    merged = samples[0].copy()
    for sample in samples[1:]:
        merged.merge(sample)
    return merged
