"""Compiled routing of level-fill; needs numba."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._splitmix import GAMMA, mix, unit
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.level_fill.state import BY_LEVEL, BY_SPILL, INLINE, LIGHT, MOST_TRACKED, WAYS
from keygrouping.grouping.protocol import Hashes, Weights, Workers

_HIGH = np.uint64(32)
_NONE = np.int64(0x7FF8000000000000)
"""Above the bits of any count."""
_FINENESS = 1024.0
"""The level rises by a 1024th at most, or by one event; with more workers than `_FEW` by more."""
_FEW = 45.0
"""Each level is looked for anew by every key: with many workers that happens too often, and unevenness matters less."""


@kernel
def set_of(hashed: np.int64, slots: int) -> Any:
    """The first slot of the set that a key belongs to; by other bits than its bucket."""
    return np.int64((np.uint64(hashed) >> _HIGH) & np.uint64(slots // WAYS - 1)) * WAYS


@kernel
def find(hashes: NDArray[np.int64], hashed: np.int64) -> Any:
    """The slot of a key, -1 if it has none."""
    first = set_of(hashed, len(hashes))
    for slot in range(first, first + WAYS):
        if hashes[slot] == hashed:
            return slot
    return np.int64(-1)


@kernel
def choice(hashed: np.int64, number: int, workers: int) -> Any:
    """The worker of a key by its hash of this number."""
    return home_of(np.int64(mix(np.uint64(hashed) + np.uint64(number) * GAMMA)), workers)


@kernel
def raise_level(state: Any, rules: Any, workers: int) -> None:
    """The level for the next W events, or several times as many when loads are high: the average that they lead to."""
    if state.squares > 0.0:
        state.unit = state.squares / state.mass
    average = (state.mass - state.aside_mass) / (workers - state.aside_workers)
    coarseness = max(1.0, workers / _FEW)
    step = 1 + int(average * coarseness / (_FINENESS * state.unit))
    state.until = step * workers
    state.number += 1
    state.level = average + step * state.unit
    noise = math.sqrt(state.level * state.unit)
    state.light_limit = (1.0 + rules.eps) * state.level + rules.noise * noise
    state.hot_limit = state.level + rules.hot_noise * noise


@kernel
def classify(key: Any, hashed: np.int64, share: float, workers: int, state: Any, rules: Any) -> None:
    """What follows from a key's share: heavier keys spill first and may be wider."""
    lightness = 1.0 / (workers * share) if share > 0.0 else 1e9
    key.share = share
    key.slack = rules.slack * lightness * (0.5 + unit(mix(np.uint64(hashed)))) * state.unit
    key.cap = workers
    for i in range(3):
        if lightness > LIGHT[i]:
            key.cap = min(workers, rules.caps[i])
            break
    key.hot = share > rules.hot_share
    if not (key.hot or rules.split_light):
        key.cap = 1


@kernel
def track(
    key: Any, slot: Any, hashed: np.int64, share: float, home: int, pool: Workers, workers: int, state: Any, rules: Any
) -> None:
    """Begin to know a key by itself: it stays at home until that is full."""
    key.since = state.now
    key.hot_since = key.widened = np.nan
    key.full = key.tried = -1
    key.start, key.room = slot * INLINE, min(INLINE, workers)
    key.width = key.known = 1
    key.at = key.cause = 0
    key.hot = key.planned = False
    classify(key, hashed, share, workers, state, rules)
    key.current = pool[key.start] = home


@kernel
def make_room(key: Any, pool: Workers, workers: int, state: Any) -> bool:
    """Room for one more member, twice as much as before if need be; False if the pool has none."""
    if key.known < key.room:
        return True
    room = min(2 * key.room, workers)
    if room == key.room or state.pool_used + room > len(pool):
        return False
    for i in range(key.known):
        pool[state.pool_used + i] = pool[key.start + i]
    key.start, key.room = state.pool_used, room
    state.pool_used += room
    return True


@kernel
def knows(key: Any, pool: Workers, worker: int) -> bool:
    """Whether a worker is or was a member."""
    found = False
    for i in range(key.known):
        found |= pool[key.start + i] == worker
    return found


@kernel
def newcomer(key: Any, hashed: np.int64, pool: Workers, loads: Weights, room: Weights, state: Any) -> Any:
    """The position in the pool of the next worker for a key whose members are full, -1 if there is none."""
    workers = len(loads)
    for i in range(key.width, key.known):
        if loads[pool[key.start + i]] < state.level:
            return key.start + i
    found = -1
    if not key.hot:
        worker = choice(hashed, key.width, workers)
        if loads[worker] < loads[pool[key.start]] and not knows(key, pool, worker):
            found = worker
    else:
        first = home_of(hashed, workers)
        for planned in (True, False):
            for i in range(workers):
                worker = first + i if first + i < workers else first + i - workers
                if loads[worker] < state.level and (room[worker] > 0.0) == planned and not knows(key, pool, worker):
                    found = worker
                    break
            if found >= 0:
                break
    if found < 0:
        return -1
    if make_room(key, pool, workers, state):
        key.known += 1
    elif key.known == key.width:
        return -1
    pool[key.start + key.known - 1] = found
    return key.start + key.known - 1


@kernel
def widen(key: Any, hashed: np.int64, pool: Workers, loads: Weights, room: Weights, state: Any) -> bool:
    """Give a key one more member, and use that."""
    place = newcomer(key, hashed, pool, loads, room, state)
    if place < 0:
        return False
    end = key.start + key.width
    pool[end], pool[place] = pool[place], pool[end]
    key.at = key.width
    key.current = pool[end]
    if key.width == 1:
        key.hot_since = state.now
    key.width += 1
    key.widened = state.now
    key.cause = BY_LEVEL if key.hot else BY_SPILL
    state.changes += 1
    return True


@kernel
def reestimate(key: Any, hashed: np.int64, certain: float, mass: float, workers: int, state: Any, rules: Any) -> None:
    """A key's share by this interval, if no plan knows it or that is far above the planned one."""
    if mass <= 0.0 or certain < rules.evidence * state.unit:
        return
    share = certain / mass
    if not key.planned or share * (1.0 - 4.0 * math.sqrt(state.unit / certain)) > key.share:
        classify(key, hashed, share, workers, state, rules)


@kernel
def rank(bits: np.int64, tracked: bool, way: int) -> Any:
    """Orders the counters of a set, those of tracked keys last; the last bits are the position in the set.

    Without branches, which nobody could predict: positive floats are in the order of their bits.
    """
    return (bits & ~np.int64(WAYS - 1)) | np.int64(way) | (-np.int64(tracked) & _NONE)


@kernel
def enter(
    hashes: NDArray[np.int64],
    counts: Weights,
    errors: Weights,
    begun: Weights,
    tracked: NDArray[np.bool_],
    hashed: np.int64,
    mass: float,
) -> Any:
    """Let a key take over the smallest counter of its set that no tracked key has; its slot, -1 if there is none."""
    first = set_of(hashed, len(hashes))
    bits = counts.view(np.int64)
    least = rank(bits[first], tracked[first], 0)
    for way in range(1, WAYS):
        least = min(least, rank(bits[first + way], tracked[first + way], way))
    slot = first + (least & np.int64(WAYS - 1))
    if tracked[slot]:
        return np.int64(-1)
    errors[slot] = counts[slot]
    hashes[slot] = hashed
    begun[slot] = mass
    return slot


@kernel
def crowded(tracked: NDArray[np.bool_], slot: Any) -> bool:
    """Whether the set of this slot has as many tracked keys as it may have."""
    first = slot - slot % WAYS
    count = 0
    for way in range(WAYS):
        count += tracked[first + way]
    return count >= MOST_TRACKED


@kernel
def route_levels(
    events: Hashes,
    weights: Weights,
    hashes: NDArray[np.int64],
    counts: Weights,
    errors: Weights,
    begun: Weights,
    tracked: NDArray[np.bool_],
    keys: NDArray[Any],
    pool: Workers,
    owners: Workers,
    cold: Weights,
    loads: Weights,
    room: Weights,
    slowness: Weights,
    states: NDArray[Any],
    all_rules: NDArray[Any],
) -> Workers:
    """Route events one after the other; all but the owners, the room, the slowness and the rules goes on with them."""
    routed = np.empty(len(events), np.int32)
    weighted = len(weights) > 0
    workers = len(loads)
    buckets, sets = len(owners) - 1, np.uint64(len(hashes) // WAYS - 1)
    bits = counts.view(np.int64)
    state, rules = states[0], all_rules[0]
    mass, squares, until = state.mass, state.squares, state.until
    level, light_limit = state.level, state.light_limit
    for i in range(len(events)):
        if until == 0:
            state.mass, state.squares = mass, squares
            raise_level(state, rules, workers)
            until, level, light_limit = state.until, state.level, state.light_limit
        until -= 1
        hashed = events[i, 0]
        weight = weights[i] if weighted else 1.0
        bucket = hashed & buckets
        first = np.int64((np.uint64(hashed) >> _HIGH) & sets) * WAYS
        slot = np.int64(-1)
        for j in range(WAYS):
            slot = first + j if hashes[first + j] == hashed else slot
        if slot < 0:
            least = rank(bits[first], tracked[first], 0)
            for j in range(1, WAYS):
                least = min(least, rank(bits[first + j], tracked[first + j], j))
            slot = first + (least & np.int64(WAYS - 1))
            if tracked[slot]:
                slot = np.int64(-1)
            else:
                errors[slot] = counts[slot]
                hashes[slot] = hashed
                begun[slot] = mass
        known = False
        if slot >= 0:
            counts[slot] += weight
            known = tracked[slot]
            if not known:
                certain = counts[slot] - errors[slot]
                if certain >= rules.evidence * state.unit and certain >= rules.threshold * mass:
                    share = certain / (mass + weight - begun[slot])
                    known = share > rules.hot_share or not crowded(tracked, slot)
                    if known:
                        tracked[slot] = True
                        cold[bucket] -= certain - weight
                        track(keys[slot], slot, hashed, share, owners[bucket], pool, workers, state, rules)
        if known:
            key = keys[slot]
            worker = key.current
            if loads[worker] >= (light_limit if key.width == 1 and not key.hot else level):
                full = True
                if key.full != state.number:
                    at = key.at + 1
                    for _ in range(1, key.width):
                        if at == key.width:
                            at = 0
                        if loads[pool[key.start + at]] < level:
                            key.at = at
                            key.current = worker = pool[key.start + at]
                            full = False
                            break
                        at += 1
                if full and key.full != state.number:
                    key.full = state.number
                    certain, counted = counts[slot] - errors[slot], mass + weight - begun[slot]
                    reestimate(key, hashed, certain, counted, workers, state, rules)
                if (
                    full
                    and loads[worker] >= (state.hot_limit if key.hot else light_limit + key.slack)
                    and key.width < key.cap
                    and key.tried != state.number
                ):
                    full = not widen(key, hashed, pool, loads, room, state)
                    key.tried = state.number if full else key.tried
                    worker = key.current
                if full and key.width > 1:
                    at = key.at + 1 if key.at + 1 < key.width else 0
                    if loads[pool[key.start + at]] < loads[worker]:
                        key.at = at
                        key.current = worker = pool[key.start + at]
        else:
            worker = owners[bucket]
            cold[bucket] += weight
            if state.flexible and loads[worker] >= level and unit(mix(np.uint64(hashed))) <= rules.flexible:
                second = choice(hashed, 1, workers)
                if loads[second] < loads[worker]:
                    worker = second
        loads[worker] += weight * slowness[worker]
        mass += weight
        squares += weight * weight
        routed[i] = worker
    state.mass, state.squares, state.until = mass, squares, until
    return routed
