"""The arrays that level-fill's kernels work on, and their snapshots."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Weights, Workers

WAYS = 8
"""Counters of a set of the sketch: a key can be in any of one set."""

MOST_TRACKED = WAYS - 1
"""Of the keys of a set: so that one that is new and hot finds a counter. It is tracked, too, until the next plan."""

INLINE = 8
"""Members that a tracked key has room for at first."""

LIGHT = (1.5, 1.05, 0.6)
"""Fair shares over the share of a key from which on each of the three widths is the most for it."""

KEY = np.dtype(
    [
        ("current", np.int32),
        ("width", np.int32),
        ("at", np.int32),
        ("hot", np.bool_),
        ("planned", np.bool_),
        ("full", np.int64),
        ("start", np.int32),
        ("cap", np.int32),
        ("tried", np.int64),
        ("slack", np.float64),
        ("share", np.float64),
        ("since", np.float64),
        ("hot_since", np.float64),
        ("widened", np.float64),
        ("room", np.int32),
        ("known", np.int32),
        ("cause", np.int64),
    ],
    align=True,
)
"""A tracked key; what is needed for every event comes first.

`current`, `at`: the member in use and its position; `width`, `known`, `cap`: members that it has, remembers including
these, and may have; `hot`, `planned`: whether it is too heavy for one worker, and known to a plan; `full`, `tried`: the
level at which all members were full, and that at which no other worker was found; `start`, `room`: its part of the pool
of members; `slack`: by how much its workers are filled over the limit before it spills; `share`; `since`, `hot_since`,
`widened`: when it was tracked, got a second worker, and was widened last (NaN: not); `cause`: why, see CAUSES."""

CAUSES = ("", "the plan", "its workers were full", "its workers were at the level and it is hot")
BY_PLAN, BY_SPILL, BY_LEVEL = 1, 2, 3

STATE = np.dtype(
    [
        ("mass", np.float64),
        ("squares", np.float64),
        ("unit", np.float64),
        ("level", np.float64),
        ("light_limit", np.float64),
        ("hot_limit", np.float64),
        ("now", np.float64),
        ("number", np.int64),
        ("until", np.int64),
        ("changes", np.int64),
        ("pool_used", np.int64),
        ("aside_mass", np.float64),
        ("aside_workers", np.float64),
        ("others", np.float64),
        ("scope", np.float64),
        ("deaf_from", np.float64),
        ("deaf_after", np.float64),
        ("expected_at", np.float64),
        ("flexible", np.bool_),
        ("held", np.float64),
        ("run_limit", np.float64),
        ("run_most", np.float64),
        ("last", np.int64),
        ("in_row", np.int64),
    ],
    align=True,
)
"""Of this interval: weight and sum of squared weights; the weight of a typical event; the level, and the loads from
which on light and hot keys are widened; the present time; number of the level and events until the next one; changes of
any key's workers since the grouping was made; places of the pool in use; weight and capacity of the workers that others
have filled above the level, which goes by the rest; weight that other sources have brought, if all of them level the
whole stream, and all weight over that of this source at the last exchange; own weight from which on a source levels its
own part if it hears nothing, how much there is from one exchange to that, and up to which the loads include what is
expected of others; whether flexible cold keys may spill; by how much a run may fill a worker above the level, the load
up to which it may now, and the most weight of a key that is in one; hash of the last event, and how many have had that
one after the other. Snapshots of versions that knew less end before what is last."""

RULES = np.dtype(
    [
        ("eps", np.float64),
        ("noise", np.float64),
        ("hot_noise", np.float64),
        ("slack", np.float64),
        ("evidence", np.float64),
        ("threshold", np.float64),
        ("hot_share", np.float64),
        ("flexible", np.float64),
        ("caps", np.int32, (3,)),
        ("split_light", np.bool_),
    ],
    align=True,
)
"""Tolerance of the level, its allowance for noise for light and for hot keys, slack of a fair share; typical events and
share from which on a key is tracked; share above which it is hot; part of the cold hashes that may spill; most workers
of keys lighter than 1/1.5, 1/1.05 and 1/.6 of a fair share; whether light keys are split at all."""

MOST_NOISE = 0.02
"""Of the last interval's average, the most that is allowed for chance: with few events that would be uneven."""
_RUN_EXCESS = 4.7
"""Times `eps`, the part of an average load that a run may fill a worker above the level."""
_MOST_WIDE = 1024
"""Places per worker for the members of wide keys: with thousands of workers all that could be needed were gigabytes."""
_ROUNDING = 1e-9
DEAF = 1 / 8
"""Of an interval's weight, after so much a source that hears nothing of others levels its own part."""
_NEVER = 2.0**60
_COUNTERS = ("hashes", "counts", "errors", "begun")
_TIMES = ("since", "hot_since", "widened")


class Arrays(NamedTuple):
    """All that routing reads and changes; kernels take it as it is."""

    hashes: NDArray[np.int64]
    """The counters of the sketch, sets of WAYS one after the other: their keys, 0 where there is none."""
    counts: Weights
    errors: Weights
    """By how much a count may be too high: what its predecessor had."""
    begun: Weights
    """All weight of the interval before the key got its counter."""
    tracked: NDArray[np.bool_]
    keys: NDArray[Any]
    """KEY of each counter; of tracked keys only."""
    pool: Workers
    """Members of tracked keys; the first INLINE x counters places belong to the counters. With up to 512 workers the
    others are enough for as many keys on all workers as there are workers: a key takes twice as many each time."""
    owners: Workers
    """The worker of each bucket of hashes; their number is a power of two."""
    cold: Weights
    """Weight of each bucket in this interval, of keys that aren't tracked."""
    loads: Weights
    """Weight of each worker in this interval over its capacity, what other sources have `brought` included."""
    brought: Weights
    """What of the loads is theirs: what they have reported, less `left`."""
    left: Weights
    """How far each worker is above the level by what this source leaves to the others to even out."""
    expected: Weights
    """By how much each load, and what of it is `brought`, grows per weight of this source until it hears more."""
    room: Weights
    """Share that the plan leaves on each worker for hot keys."""
    slowness: Weights
    """1 over the capacity of each worker; capacities are 1 on average."""
    state: NDArray[Any]
    rules: NDArray[Any]

    @classmethod
    def empty(cls, slots: int, owners: Workers, capacities: Weights, rules: NDArray[Any]) -> "Arrays":
        """Nothing has been counted; `slots` is a power of two from WAYS on."""
        workers = len(capacities)
        state = np.zeros(1, STATE)
        state["unit"] = state["scope"] = 1.0
        state["pool_used"] = INLINE * slots
        return cls(
            np.zeros(slots, np.int64),
            np.zeros(slots),
            np.zeros(slots),
            np.zeros(slots),
            np.zeros(slots, np.bool_),
            np.zeros(slots, KEY),
            np.zeros(INLINE * slots + workers * min(2 * max(INLINE, workers), _MOST_WIDE), np.int32),
            owners,
            np.zeros(len(owners)),
            np.zeros(workers),
            np.zeros(workers),
            np.zeros(workers),
            np.zeros(workers),
            np.ones(workers),
            1 / capacities,
            state,
            rules,
        )

    @property
    def mass(self) -> float:
        """All weight of the interval."""
        return float(self.state["mass"][0])

    @property
    def average(self) -> float:
        """The load that each worker should have by now; those that others have filled above it are left out."""
        state = self.state[0]
        leveled = max(0.0, state["mass"] + state["others"] - state["aside_mass"])
        return float(leveled / (len(self.loads) - state["aside_workers"]))

    @property
    def most_noise(self) -> float:
        """The most of a load that is allowed for chance; in the first interval that is not known."""
        weight = float(self.state["deaf_after"][0] / DEAF * self.state["scope"][0])
        return MOST_NOISE * weight / len(self.loads) if weight else np.inf

    def run_excess(self, events: float) -> float:
        """By how much a run may fill a worker above the level, per `eps`; `events`: typical ones of the last interval.

        A part of its average load. Those of several sources partly even each other out, so each may be further off the
        level of its own part.
        """
        own, every = float(self.state["deaf_after"][0] / DEAF), events * float(self.state["unit"][0])
        return _RUN_EXCESS * float(np.cbrt(own * every**2)) / len(self.loads)

    def bear(self, outside: Weights, added: float) -> None:
        """`added` more weight was routed by others, `outside` is all of that in this interval, by worker."""
        self.state["mass"] += added
        self.state["squares"] += added * self.state["unit"]
        self._leave_out(outside)

    def _leave_out(self, outside: Weights) -> NDArray[np.bool_]:
        aside = above_level(outside, 1 / self.slowness, self.mass + float(self.state["others"][0]))
        self.state["aside_mass"], self.state["aside_workers"] = outside[aside].sum(), (1 / self.slowness[aside]).sum()
        return aside

    @property
    def own(self) -> Weights:
        """Weight that this source has brought to each worker."""
        return np.maximum(0.0, (self.loads - self.brought) / self.slowness)

    @property
    def fixed(self) -> Weights:
        """Of that, the weight of keys that have one worker, if their plan is as old as the interval."""
        rocks, workers = self.tracked & ~self._poured, len(self.loads)
        cold = np.bincount(self.owners, self.cold, workers)
        counted = np.bincount(self.keys["current"][rocks], (self.counts - self.errors)[rocks], workers)
        fixed: Weights = np.maximum(0.0, cold + counted)
        return fixed

    @property
    def movable(self) -> float:
        """Weight of the keys that have several workers, or need them."""
        return float((self.counts[self._poured] - self.errors[self._poured]).sum())

    @property
    def _poured(self) -> NDArray[np.bool_]:
        poured: NDArray[np.bool_] = self.tracked & ((self.keys["width"] > 1) | self.keys["hot"])
        return poured

    def beside(self, others: Weights, outside: Weights, part: Weights, gaps: Weights) -> None:
        """Other sources have brought so much to each worker: from now on the whole stream is leveled.

        `outside`: see `bear`, of all sources; `part`: of how far each worker is off the level, this source evens out as
        much, so that all of them together hardly do it twice. `gaps`: its part of what all sources have brought
        of keys that have one worker, less what it has brought of them itself. That goes on as before, so it is expected
        before it is heard of.
        """
        own = self.loads - self.brought
        filled = own + others * self.slowness
        self.state["others"] = others.sum()
        if self.mass:
            self.state["scope"] = 1.0 + others.sum() / self.mass
        aside = self._leave_out(outside)
        off = filled - self.average
        self.left[:] = off * (1 - part)
        self.brought[:] = others * self.slowness - self.left
        self.loads[:] = own + self.brought
        self.state["expected_at"] = self.mass
        self.state["deaf_from"] = self.mass + self.state["deaf_after"]
        if self.mass:
            self.expected[:] = np.where(aside, 0.0, gaps) * self.slowness / self.mass
        self.state["until"] = 0

    def expect(self, gaps: Weights, scope: float) -> None:
        """Others should bring so much to each worker per weight of this source; less than nothing fills gaps of it.

        `scope`: all weight over that of this source.
        """
        self.expected[:] = gaps * self.slowness
        self.state["scope"] = scope
        self.state["until"] = 0

    def alone(self, outside: Weights) -> None:
        """From now on the source levels its own part; `outside`: see `bear`, of this source only."""
        if self.state["scope"][0] == 1.0 and self.state["others"][0] <= 0.0:
            return
        self.loads[:] -= self.brought
        self.brought[:] = self.left[:] = self.expected[:] = 0.0
        self.state["others"], self.state["scope"] = 0.0, 1.0
        self._leave_out(outside)
        self.state["until"] = 0

    def go_deaf(self, outside: Weights, *, levels: bool) -> None:
        """Nothing has been heard for a part of an interval: from now on the source levels its own part.

        `outside`: see `bear`, of this source; where there is any, no level can begin here: it is no part of one.
        `levels`: whether the source has keys of several workers, so that what it has brought was evened out with what
        others were expected to bring. Nobody is deaf before an interval has told how long that takes.
        """
        if not self.state["deaf_after"][0] or self.mass <= self.state["deaf_from"][0]:
            return
        if (levels or self.state["others"][0] > 0.0) and not (self.state["aside_mass"][0] or outside.any()):
            self._start_level()
        else:
            self.alone(outside)
        self.state["deaf_from"] = _NEVER

    def _start_level(self) -> None:
        """Take what has come to each worker so far for even; its own part isn't, if it has filled gaps of others."""
        self.brought[:] -= self.loads
        self.loads[:] = self.left[:] = self.expected[:] = 0.0
        self.state["others"], self.state["scope"] = -self.mass, 1.0
        self.state["until"] = 0

    def copied(self) -> "Arrays":
        """The same arrays once more."""
        copies: Any = (array.copy() for array in self)
        return Arrays(*copies)

    def begin_interval(self) -> None:
        """Count from zero; tracked keys stay."""
        self.state["deaf_from"] = self.state["deaf_after"] = DEAF * self.state["mass"]
        for column in (self.counts, self.errors, self.begun, self.cold, self.loads, self.brought, self.left):
            column[:] = 0.0
        self.hashes[~self.tracked] = 0
        self.state["mass"] = self.state["squares"] = self.state["others"] = self.state["expected_at"] = 0.0
        self.state["aside_mass"] = self.state["aside_workers"] = 0.0
        self.state["until"] = 0

    def to_data(self) -> dict[str, Any]:
        """What was counted and which keys are tracked, as plain JSON data."""
        used, tracked = np.flatnonzero(self.hashes), np.flatnonzero(self.tracked)
        keys = self.keys[tracked]
        return {
            "numbers": list(self.state[0].tolist()),
            "owners": self.owners.tolist(),
            "cold": self.cold.tolist(),
            "loads": self.loads.tolist(),
            "brought": self.brought.tolist(),
            "left": self.left.tolist(),
            "expected": self.expected.tolist(),
            "slots": used.tolist(),
            **{name: getattr(self, name)[used].tolist() for name in _COUNTERS},
            "tracked": tracked.tolist(),
            "keys": [[None if value != value else value for value in key] for key in keys.tolist()],
            "members": [self.pool[key["start"] : key["start"] + key["known"]].tolist() for key in keys],
        }

    def filled(self, data: Mapping[str, Any], shift: float) -> "Arrays":
        """These empty arrays with what `to_data` gave, its times moved by `shift` seconds.

        A KeyError, TypeError or ValueError if that doesn't fit.
        """
        slots, workers = len(self.hashes), len(self.loads)
        numbers = data["numbers"]
        self.state[0] = (*numbers, *self.state[0].tolist()[len(numbers) :])
        self.state["now"] += shift
        self.owners[:] = numbers_from(data["owners"], len(self.owners), workers)
        self.cold[:] = loads_of_any_sign(data["cold"], len(self.cold))
        self.loads[:] = loads_of_any_sign(data["loads"], workers)
        self.brought[:] = loads_of_any_sign(data["brought"], workers)
        self.left[:] = loads_of_any_sign(data["left"], workers)
        self.expected[:] = loads_of_any_sign(data["expected"], workers)
        used = numbers_from(data["slots"], None, slots)
        for name in _COUNTERS:
            getattr(self, name)[used] = data[name]
        tracked = numbers_from(data["tracked"], None, slots)
        self.tracked[tracked] = True
        for slot, key, members in zip(tracked.tolist(), data["keys"], data["members"], strict=True):
            self.keys[slot] = tuple(np.nan if value is None else value for value in key)
            self._fill_key(self.keys[slot], numbers_from(members, None, workers), shift)
        if not 0 <= self.state["pool_used"][0] <= len(self.pool):
            raise ValueError("members out of place")
        return self

    def _fill_key(self, key: Any, members: NDArray[np.int64], shift: float) -> None:
        for name in _TIMES:
            key[name] += shift
        if not 1 <= key["width"] <= key["known"] == len(members) <= key["room"]:
            raise ValueError("a key whose members don't match")
        start = int(key["start"])
        inside = 0 <= start <= len(self.pool) - int(key["room"])
        if not (inside and 0 <= key["at"] < key["width"] and key["current"] in members):
            raise ValueError("a key out of place")
        self.pool[start : start + len(members)] = members


def above_level(outside: Weights, capacities: Weights, mass: float) -> NDArray[np.bool_]:
    """The workers that have more from `outside` than is due to them when the others share the rest of all weight.

    Never all of them: where there is no other weight, that one of them seems to have more is rounding.
    """
    filled, aside = outside / capacities, np.zeros(len(outside), np.bool_)
    for worker in np.argsort(-filled, kind="stable")[:-1].tolist():
        level = (mass - outside[aside].sum()) / capacities[~aside].sum()
        if filled[worker] <= level * (1 + _ROUNDING):
            break
        aside[worker] = True
    return aside


def numbers_from(data: Any, size: int | None, limit: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to below a limit out of a snapshot, or a ValueError."""
    numbers = np.array(data, np.int64)
    if numbers.ndim != 1 or size not in (None, len(numbers)) or np.any((numbers < 0) | (numbers >= limit)):
        raise ValueError(f"needs numbers below {limit}")
    return numbers


def loads_of_any_sign(data: Any, size: int) -> Weights:
    """Finite numbers out of a snapshot, or a ValueError; rounding may have left some just below 0."""
    numbers = np.array(data, np.float64)
    if numbers.shape != (size,) or not np.all(np.isfinite(numbers)):
        raise ValueError(f"needs {size} numbers")
    return numbers
