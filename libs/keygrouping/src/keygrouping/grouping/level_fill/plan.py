"""The plan of level-fill: which workers own the cold hashes and the rocks, and where the hot keys are poured.

1. Buckets leave a worker whose cold load alone is too high, to the roomiest.
2. A rock, a tracked key that fits on one worker, stays on its primary; a worker over its limit gives some up.
3. A rock that was given up goes to a worker that it has been on, else to the first in its ring that has room, else to
   several.
4. Hot keys are poured up to one common water level above the rocks: first where they already are.

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
    """How many of them a source has in an interval: how much its loads vary by chance."""
    outside: Weights
    """Share of each worker that others have routed there, such as that of a pinned key."""


@dataclass(frozen=True)
class Placement:
    """What a plan says."""

    owners: Workers
    """The worker of each bucket."""
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


def place(
    shares: Shares,
    owners: Workers,
    fair: Weights,
    eps: float,
    *,
    split_light: bool,
    widths: Sequence[int],
    move_buckets: bool = True,
) -> Placement:
    """The next placement; `fair`: share that each worker should have; `eps`: how much more, relatively, it may have.

    `split_light`: rocks that fit nowhere are split, and keys that don't fit beside cold hashes are hot; `move_buckets`:
    step 1 is done; `widths`: the most workers of rocks, see `caps_of`; hot keys have as many as even loads need.
    """
    from keygrouping.grouping.level_fill import plan_kernel as steps

    keys, workers = shares.keys, len(fair)
    heaviest_rock = rock_share(shares, fair, eps, split_light=split_light)
    hot = keys.shares > heaviest_rock
    tolerance = _NOISE * np.sqrt(1 / (workers * max(shares.events, 1.0)))
    aside, level_of_rest = _aside(shares, fair)
    limit = _limit(float(keys.shares[hot].sum()), shares.interval, level_of_rest * fair, eps)
    limit[aside] = shares.outside[aside] - tolerance
    owners, loads = owners.copy(), shares.outside.copy()
    width, known = keys.width.copy(), keys.known.copy()
    space = _space(keys, hot, workers)
    start = np.cumsum(space) - space
    size = int(space.sum())
    members = Members(_spread(keys.members, known, start, size), start, known, space, width, np.zeros(size))
    order = _heaviest_first(keys)

    moved_buckets = steps.relieve(owners, shares.cold, loads, limit, tolerance if move_buckets else np.inf)
    rocks, poured = order[~hot[order]], order[hot[order]]
    strictly = bool(len(poured))
    removed = steps.give_up(rocks, keys.shares, members, loads, limit, tolerance, strictly)
    width[~hot] = 1
    members.taken[start[~hot]] = keys.shares[~hot]
    wanted = Wanted(keys.hashes, keys.shares, caps_of(keys.shares, workers, widths))
    steps.place(removed, wanted, members, loads, limit, split_light)
    steps.pull(rocks, wanted, members, loads, limit, tolerance)
    room, level = np.maximum(0.0, limit - loads), None
    if len(poured):
        level = steps.water_level(loads, fair, float(keys.shares[hot].sum()))
        free = np.maximum(0.0, level * fair - loads)
        loads = loads + free
        least = min(tolerance, _LEAST_ROOM * float(free.mean()))
        steps.pour(poured, wanted, members, free, least)
        loads = loads - free
    pool, taken = _gathered(members.pool, known, start), _gathered(members.taken, known, start)
    placed = Keys(keys.hashes, keys.shares, width, known, pool, taken)
    return Placement(owners, placed, heaviest_rock, loads, room, level, moved_buckets)


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


def _space(keys: Keys, hot: NDArray[np.bool_], workers: int) -> Numbers:
    """Places for the members of each key: what it has, and those that a plan may add."""
    return np.minimum(workers, keys.known + np.where(hot, workers, 4))


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
