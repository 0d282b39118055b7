"""The plan of level-fill: which workers own the cold hashes and the rocks, and where the hot keys are poured.

1. Buckets leave a worker whose cold load alone is too high, to the roomiest, and all are at home again as soon as that
   may be no worse. What is too high for certain, a second interval tells: one alone doesn't know of runs of a key.
2. A rock, a tracked key that fits on one worker, stays on its primary; a worker over its limit gives some up.
3. A rock that was given up goes to a worker that it has been on, else to the first in its ring that has room, else to
   several.
4. Hot keys are poured up to one common water level above the rocks: first where they already are.

While keys drift (see `shares.Estimates`), after an interval that was far from level (see `strain`), and where the
stream comes from now this source and now that one (see `exchange.parts_swing`), keys keep all workers that they have
got. Where no key is hot then, a worker that is a member of too few of them gets more.

So few keys change their workers, and K keys on W workers need at most K + W - 1 pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.level_fill.keys import Keys, Members, Numbers, Wanted
from keygrouping.grouping.level_fill.state import LIGHT, above_level
from keygrouping.grouping.protocol import Weights, Workers

_Scalar = TypeVar("_Scalar", bound=np.generic)

ROCK = 1.1
"""A rock may exceed a worker's limit by a tenth, as its share is an estimate."""
_LEAST_ROCK = 0.1
_IDLE = 0.05
"""How far below the average a worker may be for want of keys."""
_FEW_HOT = 0.1
"""Of all weight."""
_NOISE = 3.0
_MARGIN = 3.0
_LEAST_ROOM = 0.5
"""Of the mean room: what is less is left to chance, as long as few events make shares uncertain, too."""


@dataclass(frozen=True)
class Shares:
    """What a plan is made of."""

    keys: Keys
    cold: Weights
    """Share of each bucket of cold hashes."""
    events: float
    """How many typical events the shares were estimated from: how exact they are."""
    interval: float
    """How many of them there are in an interval: how much loads vary by chance."""
    outside: Weights
    """Share of each worker that others have routed there, such as that of a pinned key."""
    bursts: float
    """See `shares.Estimates.bursts`; while it is 0, buckets stay where they are."""
    keep: bool
    """Whether keys keep all workers that they have, as fewer have been too few."""


@dataclass(frozen=True)
class Placement:
    """What a plan says."""

    owners: Workers
    """The worker of each bucket."""
    home: Workers
    """The one that it has while nothing tells against it."""
    keys: Keys
    heaviest_rock: float
    """Heavier keys are hot."""
    loads: Weights
    """Planned share of each worker."""
    room: Weights
    """Share that each worker has for hot keys, above its rocks and cold hashes and below its limit."""
    level: float | None
    """The water level, in fair shares; None without hot keys."""
    moved_buckets: int

    @property
    def few_hot(self) -> bool:
        """Whether hot keys are too few to fill up all workers, so that balance is up to the others."""
        return float(self.keys.shares[self.keys.shares > self.heaviest_rock].sum()) < _FEW_HOT

    @property
    def fixed(self) -> Weights:
        """Planned share of each worker that has no other one: of its buckets and of the keys that have but this one."""
        several = np.repeat(~self._single, self.keys.known)
        shared = np.bincount(self.keys.members[several], self.keys.taken[several], len(self.loads))
        fixed: Weights = np.maximum(0.0, self.loads - shared)
        return fixed

    def fixed_of(self, hashes: Numbers, weights: Weights, cold: Weights) -> Weights:
        """As `fixed`, of the weights of keys, by hash, and of buckets."""
        at = np.minimum(np.searchsorted(hashes, self.keys.hashes), max(0, len(hashes) - 1))
        known = self._single & (hashes[at] == self.keys.hashes) if len(hashes) else np.zeros(len(at), np.bool_)
        first = np.cumsum(self.keys.known) - self.keys.known
        counted = np.bincount(self.keys.members[first[known]], weights[at[known]], len(self.loads))
        fixed: Weights = np.bincount(self.owners, cold, len(self.loads)).astype(np.float64) + counted
        return fixed

    @property
    def _single(self) -> NDArray[np.bool_]:
        single: NDArray[np.bool_] = (self.keys.width == 1) & (self.keys.shares <= self.heaviest_rock)
        return single


def place(
    shares: Shares,
    owners: Workers,
    home: Workers,
    fair: Weights,
    eps: float,
    *,
    split_light: bool,
    widths: Sequence[int],
) -> Placement:
    """The next placement; `fair`: share that each worker should have; `eps`: how much more, relatively, it may have.

    `owners`, `home`: the worker of each bucket so far, and while nothing tells against it.
    `split_light`: rocks that fit nowhere are split, and keys that don't fit beside cold hashes are hot; `widths`: the
    most workers of rocks, see `caps_of`; hot keys have as many as even loads need.
    """
    from keygrouping.grouping.level_fill import plan_kernel as steps

    keys, workers = shares.keys, len(fair)
    heaviest_rock = rock_share(shares, fair, eps, split_light=split_light)
    hot = keys.shares > heaviest_rock
    tolerance = _NOISE * np.sqrt(1 / (workers * max(shares.events, 1.0)))
    aside, level_of_rest = _aside(shares, fair)
    usual = _limit(float(keys.shares[hot].sum()), shares.interval, level_of_rest * fair, eps)
    limit = np.where(aside, shares.outside - tolerance, usual)
    members, order = _spacious(keys, hot, workers), _heaviest_first(keys)
    start, known, width = members.start, members.known, members.width

    loads = shares.outside.copy()
    certain = usual + (tolerance * np.sqrt(shares.bursts) if shares.bursts else np.inf)
    relieved = _relieved(owners, home, shares, loads, limit, np.where(aside, shares.outside, certain))
    wanted = Wanted(keys.hashes, keys.shares, caps_of(keys.shares, workers, widths))
    stays = ~hot & (keys.width > 1) & (shares.keep and split_light)
    _keep_split(np.flatnonzero(stays), keys.shares, members, loads)
    rocks, poured = order[~(hot | stays)[order]], order[hot[order]]
    strictly = bool(len(poured))
    removed = steps.give_up(rocks, keys.shares, members, loads, limit, tolerance, strictly)
    width[rocks] = 1
    members.taken[start[rocks]] = keys.shares[rocks]
    steps.place(removed, wanted, members, loads, limit, split_light)
    steps.pull(rocks, wanted, members, loads, limit, tolerance)
    room, level = np.maximum(0.0, limit - loads), None
    if len(poured):
        level, loads = _poured(poured, wanted, members, loads, fair, tolerance)
    else:
        least = np.where(aside, 0.0, (1 - _IDLE) * level_of_rest * fair)
        steps.fill_up(np.flatnonzero(width > 1), order[stays[order]], members, loads, least)
    pool, taken = _gathered(members.pool, known, start), _gathered(members.taken, known, start)
    placed = _left_wide(keys, Keys(keys.hashes, keys.shares, width, known, pool, taken), hot & shares.keep)
    moved_buckets = int(np.count_nonzero(relieved != owners))
    return Placement(relieved, home, placed, heaviest_rock, loads, room, level, moved_buckets)


def _poured(
    hot: Numbers, wanted: Wanted, members: Members, loads: Weights, fair: Weights, tolerance: float
) -> tuple[float, Weights]:
    """Step 4: the water level of these keys, in fair shares, and the loads with them."""
    from keygrouping.grouping.level_fill import plan_kernel as steps

    level = steps.water_level(loads, fair, float(wanted.shares[hot].sum()))
    free = np.maximum(0.0, level * fair - loads)
    filled = loads + free
    steps.pour(hot, wanted, members, free, min(tolerance, _LEAST_ROOM * float(free.mean())))
    return level, filled - free


def _keep_split(rocks: NDArray[np.intp], shares: Weights, members: Members, loads: Weights) -> None:
    """These stay on all workers that they have, an equal part on each, which is added to `loads`."""
    width = members.width[rocks]
    places = _places(width, members.start[rocks])
    members.taken[places] = np.repeat(shares[rocks] / width, width)
    np.add.at(loads, members.pool[places], members.taken[places])


def _left_wide(before: Keys, placed: Keys, left: NDArray[np.bool_]) -> Keys:
    """Keys that are `left` keep the workers that they had before, behind those that are planned."""
    if not left.any():
        return placed
    workers = int(max(before.members.max(), placed.members.max())) + 1
    key_of = np.repeat(np.arange(len(placed.hashes)), placed.known)
    position = np.arange(len(key_of)) - np.repeat(np.cumsum(placed.known) - placed.known, placed.known)
    stays = np.isin(key_of * workers + placed.members, before.used(workers))
    ends = (position >= placed.width[key_of]) & ~stays
    width = placed.known.copy()
    np.minimum.at(width, key_of[ends], position[ends])
    return placed._replace(width=np.where(left, width, placed.width))


def rock_share(shares: Shares, fair: Weights, eps: float, *, split_light: bool) -> float:
    """The share of the heaviest rock; above it a key is hot.

    A rock fits on one worker, beside an even part of the cold hashes if light keys may be split.
    """
    (_, level), workers = _aside(shares, fair), len(fair)
    most = level * ROCK * (1 + eps)
    return (max(most - float(shares.cold.sum()), level * _LEAST_ROCK) if split_light else most) / workers


def _aside(shares: Shares, fair: Weights) -> tuple[NDArray[np.bool_], float]:
    """The workers that others have filled too far to get anything, and the level of the rest in fair shares."""
    aside = above_level(shares.outside, fair, 1.0)
    if not aside.any():
        return aside, 1.0
    return aside, max(0.0, 1.0 - float(shares.outside[aside].sum())) / float(fair[~aside].sum())


def caps_of(shares: Weights, workers: int, widths: Sequence[int]) -> Numbers:
    """The most workers that a plan gives rocks with these shares, see the setting `widths`.

    Those with a fair share or more may have all, as too few would cost balance.
    """
    lightness = 1 / np.maximum(workers * shares, 1e-9)
    caps: Numbers = np.select([lightness > max(1.0, least) for least in LIGHT], list(widths), workers)
    return np.minimum(caps, workers)


def _relieved(
    before: Workers, home: Workers, shares: Shares, loads: Weights, limit: Weights, certain: Weights
) -> Workers:
    """Step 1: the worker of each bucket, whose share is added to `loads`; more than `certain` is too much."""
    from keygrouping.grouping.level_fill import plan_kernel as steps

    fits = bool(np.all(loads + np.bincount(home, shares.cold, len(loads)) <= certain))
    owners = (home if shares.bursts and fits else before).copy()
    steps.relieve(owners, shares.cold, loads, limit, certain)
    return owners


def _limit(hot: float, interval: float, fair: Weights, eps: float) -> Weights:
    """The most that rocks and cold hashes may fill of each worker.

    Where there are hot keys, with this share, they are to fill up every worker, even one whose rocks have more
    events in an interval than expected.
    """
    if not hot:
        return (1 + eps) * fair
    return fair - np.minimum(hot * fair / 2, _MARGIN * np.sqrt(fair / max(interval, 1.0)))


def moved(before: Keys, after: Keys, workers: int) -> int:
    """How many of the same keys have other workers than before."""
    changed = np.setxor1d(before.used(workers), after.used(workers), assume_unique=True)
    return len(np.unique(changed // workers))


def _spacious(keys: Keys, hot: NDArray[np.bool_], workers: int) -> Members:
    """The members of each key, with places for what a plan may add."""
    space = np.minimum(workers, keys.known + np.where(hot, workers, 4))
    start, size = np.cumsum(space) - space, int(space.sum())
    pool = _spread(keys.members, keys.known, start, size)
    return Members(pool, start, keys.known.copy(), space, keys.width.copy(), np.zeros(size))


def _heaviest_first(keys: Keys) -> Numbers:
    """By classes of share a factor of sqrt 2 apart, so that noise doesn't change the order; then by hash."""
    classes = np.floor(2 * np.log2(np.maximum(keys.shares, 1e-300)))
    return np.lexsort((keys.hashes, -classes))


def _places(known: Numbers, start: Numbers) -> Numbers:
    """Where in the pool the members of all keys are."""
    ends = np.cumsum(known)
    return np.repeat(start - (ends - known), known) + np.arange(int(known.sum()))


def _spread(members: Workers, known: Numbers, start: Numbers, size: int) -> Workers:
    pool = np.zeros(size, np.int32)
    pool[_places(known, start)] = members
    return pool


def _gathered(pool: NDArray[_Scalar], known: Numbers, start: Numbers) -> NDArray[_Scalar]:
    return pool[_places(known, start)]
