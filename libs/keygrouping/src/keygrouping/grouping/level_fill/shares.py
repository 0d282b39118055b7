"""What level-fill knows of shares: counts of an interval out of all sources, and estimates that outlast it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.base import loads_from
from keygrouping.grouping.level_fill.keys import Keys, Numbers
from keygrouping.grouping.level_fill.plan import Shares
from keygrouping.grouping.level_fill.state import MOST_TRACKED
from keygrouping.grouping.level_fill.strain import Strains
from keygrouping.grouping.protocol import Weights, Workers

_JUMP = 4.0
"""Standard deviations from which on an estimate restarts."""
_HEAVIEST = 1e150
"""Weight whose square is still a number."""
_NUMBERS = ("events", "interval", "intervals", "bursts", "compared", "chance", "drift", "usual_drift")
_DRIFTING = 1.4
"""Drift from which on keys keep their workers."""
_LATE = 0.15
"""See `Seen.late`: 0.12 at most where keys come at all times; 0.2 to 0.5 from a backlog, in runs and sorted by key."""
_FEW = 500.0
"""Typical events per worker and interval: fewer don't tell how many workers are enough for a key."""
_LULL = 0.25
"""Of the events of the interval before."""
_MOST_DRIFT = 3.0
"""Of one interval, so that a stream that changes once, and much, counts as steady again soon."""
_STEADY_KEYS = 10
"""So many keys whose shares change as by chance are added, as one or two alone tell nothing."""
_TELLING = 16.0
"""Events that a key must have in an interval to tell anything of drift."""
_REGULAR = 0.95
"""Part of the buckets that tells how bursty a stream is: the others have keys that are tracked since, or no more."""
_REGULAR_SQUARES = 0.759
"""Mean square of normal deviations without the 5 % that are largest."""


@dataclass(frozen=True)
class Counts:
    """What one source has counted in an interval, or in its part so far."""

    whole: bool
    """Whether the interval has ended."""
    mass: float
    """All weight."""
    squares: float
    """Sum of the squared weights of the events."""
    hashes: Numbers
    counts: Weights
    """Weight that each key has had for certain."""
    counted: Weights
    """Weight of all keys while this one was counted."""
    cold: Weights
    """Weight of each bucket, of the keys that weren't tracked."""
    tracked: NDArray[np.bool_]
    """Which keys the source tracks; the counts of others are part of `cold`, too."""
    known: Numbers
    width: Numbers
    members: Workers
    outside: Weights
    """Weight of each worker that others have routed there; a part of `mass`."""
    strain: float
    """See `strain.strain`."""
    swing: float | None
    """See `exchange.Swing.most`."""
    part: float | None
    """See `exchange.Swing.part`."""

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int, buckets: int, fingerprint: int) -> "Counts":
        """Out of JSON data; a ValueError if they are none, or for another number of workers, or another seed."""
        try:
            if data["workers"] != workers:
                raise ValueError(f"those of {data['workers']} workers")
            if data["fingerprint"] != fingerprint:
                raise ValueError("those of another seed")
            parts = cls(
                bool(data["whole"]),
                float(data["mass"]),
                float(data["squares"]),
                np.array(data["hashes"], np.int64),
                np.array(data["counts"], np.float64),
                np.array(data["counted"], np.float64),
                loads_from(data["cold"], buckets),
                np.array(data["tracked"], np.bool_),
                np.array(data["known"], np.int64),
                np.array(data["width"], np.int64),
                np.array(data["members"], np.int32),
                loads_from(data["outside"], workers),
                float(data["strain"]),
                _number_or_none(data["swing"]),
                _number_or_none(data["part"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not statistics for {workers} workers: {error}") from error
        columns = (parts.counts, parts.counted, parts.tracked, parts.known, parts.width)
        weights = np.concatenate([parts.counts, parts.counted, parts.cold, parts.outside])
        weights = np.append(weights, [parts.mass, parts.squares, parts.strain])
        flat = parts.hashes.ndim == parts.members.ndim == 1
        if not flat or any(column.shape != parts.hashes.shape for column in columns):
            raise ValueError("statistics whose columns don't match")
        if parts.known.sum() != len(parts.members):
            raise ValueError("statistics whose members don't match")
        if not np.all(np.isfinite(weights)) or np.any((weights < 0) | (weights > _HEAVIEST)):
            raise ValueError("statistics with a count that is no weight")
        if np.any((parts.members < 0) | (parts.members >= workers)) or np.any(parts.width > parts.known):
            raise ValueError(f"statistics with members that are not among {workers} workers")
        if np.any((parts.known < 0) | (parts.known > workers) | (parts.width < 0)):
            raise ValueError("statistics with a key of no, or too many, members")
        return parts

    def to_data(self, workers: int, fingerprint: int) -> dict[str, Any]:
        """As plain JSON data, for `parsed`."""
        return {
            "workers": workers,
            "fingerprint": fingerprint,
            "whole": self.whole,
            "mass": self.mass,
            "squares": self.squares,
            "hashes": self.hashes.tolist(),
            "counts": self.counts.tolist(),
            "counted": self.counted.tolist(),
            "tracked": self.tracked.tolist(),
            "known": self.known.tolist(),
            "width": self.width.tolist(),
            "members": self.members.tolist(),
            "cold": self.cold.tolist(),
            "outside": self.outside.tolist(),
            "strain": self.strain,
            "swing": self.swing,
            "part": self.part,
        }

    def order(self) -> tuple[object, ...]:
        """Sorts sources, so that their sums are the same whatever order they come in."""
        columns = (self.hashes, self.counts, self.cold, self.counted, self.members, self.outside)
        return (self.mass, self.squares, *(column.tobytes() for column in columns))


@dataclass(frozen=True)
class Seen:
    """What all sources have counted together; keys by hash, each once."""

    whole: bool
    mass: float
    events: float
    """Number of typical events."""
    keys: Keys
    sources: int
    tracked: NDArray[np.bool_]
    tracked_counts: NDArray[Any]
    """Weight of each key that is no part of `cold`."""
    untracked_counts: NDArray[Any]
    """Weight of each key that was counted as cold, too."""
    cold: Weights
    outside: Weights
    strain: float
    """The mean of the sources' by weight; see `strain.strain`."""
    late: float
    """Part of an interval that was over when a key's counter began, the mean by the weight of keys. In a first interval
    it tells of keys that come all at once; later ones begin with the keys that are tracked."""

    @classmethod
    def merged(cls, sources: Sequence[Counts], owners: Workers, workers: int) -> "Seen":
        """The sums of all sources; a key that none of them tracks is at its owner."""
        sources = sorted(sources, key=Counts.order)
        mass, squares = sum(source.mass for source in sources), sum(source.squares for source in sources)
        hashes, index = np.unique(_joined([source.hashes for source in sources], np.int64), return_inverse=True)
        counts = _joined([source.counts for source in sources], np.float64)
        tracked = _joined([source.tracked for source in sources], np.bool_)
        # What a source missed of a key while it didn't count it was as the rest of this source's part of the stream.
        counted = _joined([source.counted / (source.mass or 1.0) for source in sources], np.float64) * mass
        shares = np.bincount(
            index, np.divide(counts, counted, where=counted > 0, out=np.zeros(len(counts))), len(hashes)
        )
        return cls(
            all(source.whole for source in sources),
            mass,
            mass**2 / squares if squares else 0.0,
            _members(sources, index, hashes, np.minimum(shares, 1.0), owners, workers),
            len(sources),
            np.bincount(index, tracked, len(hashes)) > 0,
            np.bincount(index, np.where(tracked, counts, 0.0), len(hashes)),
            np.bincount(index, np.where(tracked, 0.0, counts), len(hashes)),
            np.sum([source.cold for source in sources], axis=0) if sources else np.zeros(len(owners)),
            np.sum([source.outside for source in sources], axis=0) if sources else np.zeros(workers),
            sum(source.strain * (source.mass / mass) for source in sources) if mass else 0.0,
            1.0 - float((counts * np.minimum(counted / mass, 1.0)).sum() / counts.sum()) if counts.any() else 0.0,
        )


@dataclass(frozen=True)
class Estimates:
    """Shares by several intervals: averages that restart where they are wrong for certain; keys by hash."""

    hashes: Numbers
    shares: Weights
    ages: Weights
    """Number of intervals that each estimate is made of."""
    cold: Weights
    cold_ages: Weights
    strains: Strains
    events: float
    """Typical events of these intervals."""
    interval: float
    """Typical events of the last of them."""
    intervals: float
    bursts: float
    """Variance of the buckets' shares from interval to interval over that of independent events: more than 1 where keys
    come in runs, or come and go; 0: not known yet."""
    compared: float
    """Intervals that `bursts` is the mean of: those whose buckets could be compared with the ones before."""
    chance: float
    """Mean of 1 over the typical events of these intervals: how much shares vary by chance."""
    drift: float
    """Variance of the tracked keys' shares from interval to interval over that of independent events, the last interval
    counting as much as all before it; 1: by chance only."""
    usual_drift: float
    """The same, a mean over as many intervals as are remembered: a stream whose keys change now and then, such as the
    words of a text, is not steady between two changes; one that changes once is."""

    @classmethod
    def none(cls, buckets: int) -> "Estimates":
        """Nothing is known yet."""
        nothing, cold = np.empty(0), np.zeros(buckets)
        numbers = dict.fromkeys(_NUMBERS, 0.0) | {"drift": 1.0, "usual_drift": 1.0}
        return cls(np.empty(0, np.int64), nothing, nothing, cold, cold, Strains(), **numbers)

    @classmethod
    def parsed(cls, data: Mapping[str, Any], buckets: int) -> "Estimates":
        """Out of JSON data; a KeyError, TypeError or ValueError if they are none for so many buckets."""
        hashes = np.array(data["hashes"], np.int64)
        if hashes.ndim != 1 or np.any(hashes[1:] <= hashes[:-1]):
            raise ValueError("estimates whose keys are not in order")
        shares, ages = loads_from(data["shares"], len(hashes)), loads_from(data["ages"], len(hashes))
        cold, cold_ages = loads_from(data["cold"], buckets), loads_from(data["cold_ages"], buckets)
        data = {"usual_drift": 1.0, **data}  # which a version before did not know
        numbers = loads_from([data[name] for name in _NUMBERS], len(_NUMBERS)).tolist()
        if np.any(np.concatenate([shares, ages, cold, cold_ages, numbers]) > _HEAVIEST):
            raise ValueError("estimates that are too large")
        return cls(hashes, shares, ages, cold, cold_ages, Strains.parsed(data["strains"]), *numbers)

    @property
    def drifts(self) -> bool:
        """Whether keys change from interval to interval by more than chance."""
        return _drifts(self.drift, self.usual_drift)

    def lulled(self, events: float) -> bool:
        """Whether an interval with so many typical events, or none, has too few to tell what the stream is like."""
        return events < _LULL * self.interval

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        columns = {name: getattr(self, name).tolist() for name in ("hashes", "shares", "ages", "cold", "cold_ages")}
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {**columns, **numbers, "strains": self.strains.to_data()}

    def next(self, seen: Seen, memory: int, threshold: float, evidence: float, sets: int) -> tuple["Estimates", Shares]:
        """The estimates after this interval, and the shares to plan by.

        `threshold`: share from which on a key is tracked (it stays down to half of it) if it has had `evidence` typical
        events; at most as many as fit into this many `sets` of counters. What is seen of a part of an interval is
        planned by, but no estimate is made of it, as it will be seen again; nor is one of an interval without events.
        """
        whole = seen.whole and seen.mass > 0
        buckets = len(self.cold) - 1
        shares, ages = self._looked_up(seen.keys.hashes)
        new, new_ages = _updated(shares, ages, seen.keys.shares, seen.events, memory)
        kept = _kept(seen, new, ages, threshold, evidence, sets)
        cold = seen.cold.copy()
        np.subtract.at(cold, seen.keys.hashes[kept] & buckets, seen.untracked_counts[kept])
        new_ones = ~kept & (ages == 0)
        np.add.at(cold, seen.keys.hashes[new_ones] & buckets, seen.tracked_counts[new_ones])
        cold_shares = np.maximum(cold, 0.0) / seen.mass if seen.mass else np.zeros(len(cold))
        bursts, compared = self._bursts(cold_shares, seen.events, memory)
        regular = seen.events / max(1.0, self.bursts)  # Before: a stream that changes once is no bursty one.
        new_cold, new_cold_ages = _updated(self.cold, self.cold_ages, cold_shares, regular, memory)
        dropped = ~kept & (ages > 0)
        np.add.at(new_cold, seen.keys.hashes[dropped] & buckets, new[dropped])
        intervals = min(self.intervals + 1, memory)
        events = seen.events * intervals if whole else max(self.events, seen.events)
        # The first interval tells nothing of plans: there was none before.
        strains = self.strains.next(seen.strain, memory) if whole and self.intervals else self.strains
        drift, usual = self._drifts_next(shares, ages, seen, intervals) if whole else (self.drift, self.usual_drift)
        planned = Shares(
            _selected(seen.keys, kept, new[kept]),
            new_cold,
            events,
            max(self.interval, seen.events / max(1, seen.sources)),
            np.minimum(seen.outside / seen.mass, 1.0) if seen.mass else np.zeros(len(seen.outside)),
            bursts,
            _drifts(drift, usual) or self._sees_few(seen) or strains.keeps(0.0 if whole else seen.strain),
        )
        if not whole:
            return self, planned
        hashes = seen.keys.hashes[kept]
        chance = self.chance + (1 / seen.events - self.chance) / intervals
        numbers = (events, seen.events, intervals, bursts, compared, chance, drift, usual)
        return Estimates(hashes, new[kept], new_ages[kept], new_cold, new_cold_ages, strains, *numbers), planned

    def folded(self, buckets: int) -> "Estimates":
        """The same for another number of buckets; both are powers of two."""
        now = len(self.cold)
        if buckets >= now:
            times = buckets // now
            cold, ages = np.tile(self.cold, times) / times, np.tile(self.cold_ages, times)
        else:
            cold = self.cold.reshape(-1, buckets).sum(axis=0)
            ages = self.cold_ages.reshape(-1, buckets).max(axis=0)
        return replace(self, cold=cold, cold_ages=ages)

    def _bursts(self, cold: Weights, events: float, memory: int) -> tuple[float, float]:
        """The mean over intervals, with one in which the buckets had these shares, and how many those are."""
        known = np.maximum(self.cold_ages, 1.0)
        chance = (self.cold * known + cold) / (known + 1) * (1 + 1 / known)
        told = np.flatnonzero((self.cold_ages > 0) & (chance > 0))
        if not events or not len(told):
            return self.bursts, self.compared
        squares, chance = (cold[told] - self.cold[told]) ** 2, chance[told] / events
        regular = np.argsort(squares / chance, kind="stable")[: math.ceil(_REGULAR * len(told))]
        seen = max(1.0, float(squares[regular].sum() / chance[regular].sum()) / _REGULAR_SQUARES)
        compared = min(self.compared + 1, memory)
        return self.bursts + (seen - self.bursts) / compared, compared

    def _drifts_next(self, shares: Weights, ages: Weights, seen: Seen, intervals: float) -> tuple[float, float]:
        """`drift` and `usual_drift` with another interval, which makes so many.

        There is nothing to compare a first one with: keys whose events come all at once are taken for such that drift.
        """
        if not self.intervals:
            return (_DRIFTING if seen.late > _LATE else self.drift), self.usual_drift
        latest = min(self._drift_in(shares, ages, seen), _MOST_DRIFT)
        return (self.drift + latest) / 2, self.usual_drift + (latest - self.usual_drift) / intervals

    def _drift_in(self, shares: Weights, ages: Weights, seen: Seen) -> float:
        """That of this interval alone; the `shares` of what was seen, as known before, and their `ages`."""
        told = (ages > 0) & (np.maximum(shares, seen.keys.shares) * seen.events >= _TELLING)
        before, age, now = shares[told], ages[told], seen.keys.shares[told]
        likely = np.maximum((before * age + now) / (age + 1), 1 / seen.events)
        squares = float(((now - before) ** 2 / (likely * (1 / seen.events + self.chance / age))).sum())
        return (squares + _STEADY_KEYS) / (len(now) + _STEADY_KEYS)

    def _sees_few(self, seen: Seen) -> bool:
        return max(self.interval, seen.events) <= _FEW * len(seen.outside)

    def _looked_up(self, hashes: Numbers) -> tuple[Weights, Weights]:
        if not len(self.hashes):
            return np.zeros(len(hashes)), np.zeros(len(hashes))
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found = self.hashes[at] == hashes
        return np.where(found, self.shares[at], 0.0), np.where(found, self.ages[at], 0.0)


def _drifts(drift: float, usual: float) -> bool:
    return max(drift, usual) >= _DRIFTING


def _updated(before: Weights, ages: Weights, seen: Weights, events: float, memory: int) -> tuple[Weights, Weights]:
    """Moving averages of `memory` intervals and their new ages."""
    if not events:
        return before.copy(), ages
    known = np.maximum(ages, 1.0)
    deviation = np.sqrt(np.maximum(np.maximum(before, seen), 1 / events) / events * (1 + 1 / known))
    restarted = (ages == 0) | (np.abs(seen - before) > _JUMP * deviation)
    new_ages = np.where(restarted, 1.0, np.minimum(ages + 1, memory))
    return np.where(restarted, seen, before + (seen - before) / new_ages), new_ages


def _kept(
    seen: Seen, shares: Weights, ages: Weights, threshold: float, evidence: float, sets: int
) -> NDArray[np.bool_]:
    """Which keys stay tracked or become so: the heaviest of each set of counters."""
    known = (ages > 0) | seen.tracked
    counts = seen.tracked_counts + seen.untracked_counts
    certain = counts * seen.events >= evidence * seen.mass
    kept = np.where(known, shares >= threshold / 2, (shares >= threshold) & certain)
    set_of = (seen.keys.hashes >> 32) & (sets - 1)
    heaviest_first = np.lexsort((seen.keys.hashes, -shares, ~kept, set_of))
    ordered = set_of[heaviest_first]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    kept[heaviest_first[rank >= MOST_TRACKED]] = False
    return kept


def _selected(keys: Keys, kept: NDArray[np.bool_], shares: Weights) -> Keys:
    of_members = np.repeat(kept, keys.known)
    columns = (keys.width[kept], keys.known[kept], keys.members[of_members], keys.taken[of_members])
    return Keys(keys.hashes[kept], shares, *columns)


def _members(
    sources: Sequence[Counts], index: NDArray[np.intp], hashes: Numbers, shares: Weights, owners: Workers, workers: int
) -> Keys:
    """The members of each key at any source, in the order of their best positions."""
    known = _joined([source.known for source in sources], np.int64)
    width = _joined([source.width for source in sources], np.int64)
    members = _joined([source.members for source in sources], np.int32)
    ends = np.cumsum(known)
    position = np.arange(len(members)) - np.repeat(ends - known, known)
    spare = position >= np.repeat(width, known)
    code = np.repeat(index, known) * np.int64(workers) + members
    rank = position + np.where(spare, workers, 0)
    order = np.lexsort((rank, code))
    first = np.ones(len(order), np.bool_)
    first[1:] = code[order][1:] != code[order][:-1]
    code, rank = code[order][first], rank[order][first]
    by_rank = np.lexsort((code, rank, code // workers))
    code, rank = code[by_rank], rank[by_rank]
    key_of = code // workers
    all_known = np.bincount(key_of, minlength=len(hashes))
    all_width = np.bincount(key_of, rank < workers, len(hashes)).astype(np.int64)
    homeless = np.flatnonzero(all_known == 0)
    at_home = owners[hashes[homeless] & (len(owners) - 1)]
    places = np.insert(code % workers, np.searchsorted(key_of, homeless), at_home).astype(np.int32)
    all_known[homeless] = 1
    all_width = np.maximum(all_width, 1)
    return Keys(hashes, shares, all_width, all_known, places, np.zeros(len(places)))


def _number_or_none(data: Any) -> float | None:
    return None if data is None else float(loads_from([data], 1)[0])


def _joined(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts]) if parts else np.empty(0, kind)
