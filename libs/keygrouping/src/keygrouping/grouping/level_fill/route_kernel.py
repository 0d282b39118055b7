"""Compiled routing of level-fill; needs numba.

`arrays` are those of a source. What has to do with a tracked key gets its record `key` of `arrays.keys`, too: a view,
so what is changed in it stays.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._splitmix import GAMMA, mix, unit
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.level_fill.scramble_kernel import scramble
from keygrouping.grouping.level_fill.state import (
    BY_LEVEL,
    BY_SPILL,
    DEAF,
    INLINE,
    LIGHT,
    MOST_NOISE,
    MOST_TRACKED,
    WAYS,
    Arrays,
)
from keygrouping.grouping.protocol import Hashes, Weights, Workers

_HIGH = np.uint64(32)
_NONE = np.int64(0x7FF8000000000000)
"""Above the bits of any count."""
_FINENESS = 1024.0
"""The level rises by a 1024th at most, or by one event; with more workers than `_FEW` by more."""
_CHOICES = 4
"""Hashes of a light key that are tried for one more worker: that of its next one may be among its workers."""
_DISPLACES = 2.0
"""So many times as heavy as another one a key must be to be tracked in its place: not that they change all the time."""
_FEW = 45.0
"""Every key looks for each level itself: with many workers that happens too often, and unevenness matters less."""
_RUN = 16
"""So many events of a key one after the other are a run, unless the key has most of all events anyway."""
_RUN_MOST = 0.25
"""Part of an interval; a key that has more by its plan, or has had more in this one, is in no runs, but hot."""
_REST = 0.7
"""Part of what is still to come to a worker in this interval, so that it evens out what runs have filled too far."""


@kernel
def set_of(hashed: np.int64, slots: int) -> Any:
    """The first slot of the set that a key belongs to; by other bits than its bucket."""
    return np.int64((np.uint64(hashed) >> _HIGH) & np.uint64(slots // WAYS - 1)) * WAYS


@kernel
def find(hashes: NDArray[np.int64], hashed: np.int64) -> Any:
    """The slot of a key, -1 if it has none."""
    first = set_of(hashed, len(hashes))
    found = np.int64(-1)
    for way in range(WAYS):  # All of them: eight comparisons at once cost less than a branch.
        found = first + way if hashes[first + way] == hashed else found
    return found


@kernel
def choice(hashed: np.int64, number: int, workers: int) -> Any:
    """The worker of a key by its hash of this number."""
    return home_of(np.int64(mix(np.uint64(hashed) + np.uint64(number) * GAMMA)), workers)


@kernel
def expect(loads: Weights, brought: Weights, expected: Weights, slowness: Weights, state: Any) -> None:
    """What other sources should have brought since the last level."""
    passed = state.mass - state.expected_at
    state.expected_at = state.mass
    for worker in range(len(loads)):
        more = passed * expected[worker]
        loads[worker] += more
        brought[worker] += more
        state.others += more / slowness[worker]


@kernel
def raise_level(state: Any, rules: Any, workers: int) -> None:
    """The level for the next W events, or several times as many when loads are high: the average that they lead to."""
    if state.squares > 0.0:
        state.unit = state.squares / state.mass
    leveled = max(0.0, state.mass + state.others - state.aside_mass)  # Less than nothing by rounding.
    average = leveled / (workers - state.aside_workers)
    coarseness = max(1.0, workers / _FEW)
    step = 1 + int(average * coarseness / (_FINENESS * state.unit))
    state.until = step * workers
    state.number += 1
    state.level = average + step * state.unit
    noise = math.sqrt(state.level * state.unit)
    most = MOST_NOISE * state.deaf_after / DEAF * state.scope / workers if state.deaf_after > 0.0 else math.inf
    state.light_limit = (1.0 + rules.eps) * state.level + min(rules.noise * noise, most)
    state.hot_limit = state.level + min(rules.hot_noise * noise, most)
    last = state.deaf_after / DEAF
    state.run_limit = state.level + min(state.held, _REST * max(0.0, last - state.mass) / workers)
    # Of a steady stream that all sources level together, a source that has but a hot key sees runs of it.
    state.run_most = _RUN_MOST * last if state.scope == 1.0 else 0.0


@kernel
def lightness_of(share: float, workers: int) -> Any:
    """A fair share over that of a key."""
    return 1.0 / (workers * share) if share > 0.0 else 1e9


@kernel
def cap_of(key: Any, workers: int, rules: Any) -> Any:
    """The most workers of a key: all for a hot one, one for a light one that may not be split."""
    if key.hot:
        return workers
    if not rules.split_light:
        return 1
    lightness = lightness_of(key.share, workers)
    for i in range(3):
        if lightness > LIGHT[i]:
            return min(workers, rules.caps[i])
    return workers


@kernel
def classify(key: Any, hashed: np.int64, share: float, workers: int, state: Any, rules: Any) -> None:
    """What follows from a key's share: heavier keys spill first and may be wider."""
    key.share = share
    key.slack = rules.slack * lightness_of(share, workers) * (0.5 + unit(mix(np.uint64(hashed)))) * state.unit
    key.hot = share > rules.hot_share
    key.cap = cap_of(key, workers, rules)


@kernel
def track(key: Any, slot: Any, hashed: np.int64, share: float, home: int, arrays: Arrays) -> None:
    """Begin to know a key by itself: it stays at home until that is full."""
    state, workers = arrays.state[0], len(arrays.loads)
    key.since = state.now
    key.hot_since = key.widened = np.nan
    key.full = key.tried = -1
    key.start, key.room = slot * INLINE, min(INLINE, workers)
    key.width = key.known = 1
    key.at = key.cause = 0
    key.hot = key.planned = False
    classify(key, hashed, share, workers, state, arrays.rules[0])
    key.current = arrays.pool[key.start] = home


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
def is_among(first: int, key: Any, pool: Workers, worker: int) -> bool:
    """Whether a worker is one of a key's first known ones: those up to its width are members, the others were."""
    found = False
    for i in range(first):
        found |= pool[key.start + i] == worker
    return found


@kernel
def stranger(key: Any, hashed: np.int64, pool: Workers, loads: Weights, room: Weights, level: float) -> Any:
    """A worker that never was a member of a key and takes it now; -1: there is none.

    For a light key the one of its next hash that is no member's, if that has less than its primary. For a hot one the
    first in its ring, which begins at its home, that is below the level: of those where the plan has seen room, else of
    all others.
    """
    workers = len(loads)
    if not key.hot:
        for number in range(key.width, key.width + _CHOICES):
            worker = choice(hashed, number, workers)
            if not is_among(key.width, key, pool, worker):
                less = loads[worker] < loads[pool[key.start]]
                return worker if less and not is_among(key.known, key, pool, worker) else -1
        return -1
    first = home_of(hashed, workers)
    for planned in (True, False):
        for i in range(workers):
            worker = first + i if first + i < workers else first + i - workers
            if loads[worker] < level and (room[worker] > 0.0) == planned and not is_among(key.known, key, pool, worker):
                return worker
    return -1


@kernel
def remember(key: Any, pool: Workers, worker: int, workers: int, state: Any) -> Any:
    """The position in the pool of a worker that a key gets to know, -1 if there is no room for it."""
    if make_room(key, pool, workers, state):
        key.known += 1
    elif key.known == key.width:
        return -1
    pool[key.start + key.known - 1] = worker  # Without room it takes the place of the one remembered last.
    return key.start + key.known - 1


@kernel
def newcomer(key: Any, hashed: np.int64, pool: Workers, loads: Weights, room: Weights, state: Any) -> Any:
    """The position in the pool of the next worker for a key whose members are full, -1 if there is none."""
    for i in range(key.width, key.known):  # Those that it has had before come first: they hold its state already.
        if loads[pool[key.start + i]] < state.level:
            return key.start + i
    worker = stranger(key, hashed, pool, loads, room, state.level)
    if worker < 0:
        return -1
    return remember(key, pool, worker, len(loads), state)


@kernel
def widen(key: Any, hashed: np.int64, pool: Workers, loads: Weights, room: Weights, state: Any) -> bool:
    """Give a key one more member, and use that."""
    place = newcomer(key, hashed, pool, loads, room, state)
    if place < 0:
        return False
    join(key, place, pool, state)
    return True


@kernel
def join(key: Any, place: Any, pool: Workers, state: Any) -> None:
    """Make the worker at this place of the pool a key's last member, and use it."""
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


@kernel
def emptiest(hashed: np.int64, loads: Weights) -> Any:
    """The worker with the least load, of several the first in a key's ring: that is not the same one in each source."""
    workers = len(loads)
    first = home_of(hashed, workers)
    found = first
    for i in range(1, workers):
        worker = first + i if first + i < workers else first + i - workers
        if loads[worker] < loads[found]:
            found = worker
    return found


@kernel
def run_on(key: Any, hashed: np.int64, pool: Workers, loads: Weights, state: Any) -> None:
    """Let a run go on at a worker with much room, so that it has to change again as late as can be.

    The emptiest of those that the key has, or has had, if it is at least half as far below the level as the emptiest of
    all.
    """
    worker, place = emptiest(hashed, loads), np.int64(-1)
    enough = (loads[worker] + state.level) / 2.0
    for i in range(key.known):
        load = loads[pool[key.start + i]]
        if load <= enough:
            place, enough = key.start + i, load
    if place < 0:
        place = remember(key, pool, worker, len(loads), state)
    if place >= key.start + key.width:
        join(key, place, pool, state)
    elif place >= 0:
        key.at = place - key.start
        key.current = pool[place]


@kernel
def may_run(key: Any, rules: Any) -> bool:
    """Whether many events in a row are a run: not of a key that is known to have much, or that may not be split."""
    return (key.hot or rules.split_light) and not (key.planned and key.share > _RUN_MOST)


@kernel
def in_a_row(events: Hashes, at: int, state: Any) -> Any:
    """How many events of the same key have come one after the other up to this one; looks for no more than a run."""
    hashed, first = events[at, 0], at
    while first > 0 and at - first < _RUN and events[first - 1, 0] == hashed:
        first -= 1
    before = state.in_row if first == 0 and state.last == hashed else 0
    return before + at - first + 1


@kernel
def reestimate(key: Any, hashed: np.int64, certain: float, mass: float, workers: int, state: Any, rules: Any) -> None:
    """A key's share by this interval, if no plan knows it or that is far above the planned one."""
    every = mass * state.scope
    if mass <= 0.0 or certain < rules.evidence * state.unit or (key.planned and certain <= key.share * every):
        return
    share = certain / every
    if not key.planned or share * (1.0 - 4.0 * math.sqrt(state.unit / certain)) > key.share:
        classify(key, hashed, share, workers, state, rules)


@kernel
def rank(bits: np.int64, tracked: bool, way: int) -> Any:
    """Orders the counters of a set, those of tracked keys last; the last bits are the position in the set.

    Without branches, which nobody could predict: positive floats are in the order of their bits.
    """
    return (bits & ~np.int64(WAYS - 1)) | np.int64(way) | (-np.int64(tracked) & _NONE)


@kernel
def smallest(bits: NDArray[np.int64], tracked: NDArray[np.bool_], hashed: np.int64) -> Any:
    """The slot of the smallest counter in a key's set that no tracked key has, -1: there is none; bits of counts."""
    first = set_of(hashed, len(bits))  # Were it given, the compiler would check eight times whether it is negative.
    least = rank(bits[first], tracked[first], 0)
    for way in range(1, WAYS):
        least = min(least, rank(bits[first + way], tracked[first + way], way))
    slot = first + (least & np.int64(WAYS - 1))
    return np.int64(-1) if tracked[slot] else slot


@kernel
def crowded(tracked: NDArray[np.bool_], slot: Any) -> bool:
    """Whether the set of this slot has as many tracked keys as it may have."""
    first = slot - slot % WAYS
    count = 0
    for way in range(WAYS):
        count += tracked[first + way]
    return count >= MOST_TRACKED


@kernel
def lightest(slot: Any, mass: float, arrays: Arrays) -> Any:
    """The slot of the tracked key with the least share in the set of this slot, and that share.

    `mass`: the weight of all events so far. What no plan knows has the share that it has had of them.
    """
    first, every = slot - slot % WAYS, mass * arrays.state[0].scope
    found, least = first, math.inf
    for other in range(first, first + WAYS):
        if arrays.tracked[other]:
            key = arrays.keys[other]
            share = key.share if key.planned else (arrays.counts[other] - arrays.errors[other]) / every
            if share < least:
                found, least = other, share
    return found, least


@kernel
def promote(slot: Any, hashed: np.int64, weight: float, mass: float, arrays: Arrays) -> bool:
    """Track a key that is heavy for certain if there is room; `weight`: that of the event that has just been counted.

    `mass`: the weight of all events before that one. In a full set it takes the place of a key that is much lighter.
    """
    certain, scope = arrays.counts[slot] - arrays.errors[slot], arrays.state[0].scope
    last = len(arrays.owners) - 1
    if crowded(arrays.tracked, slot):
        other, least = lightest(slot, mass + weight, arrays)
        if certain <= _DISPLACES * least * (mass + weight) * scope:
            return False
        arrays.tracked[other] = False
        arrays.cold[arrays.hashes[other] & last] += arrays.counts[other] - arrays.errors[other]
    bucket = hashed & last
    arrays.tracked[slot] = True
    arrays.cold[bucket] -= certain - weight  # The event itself was not added there.
    share = certain / ((mass + weight - arrays.begun[slot]) * scope)
    track(arrays.keys[slot], slot, hashed, share, arrays.owners[bucket], arrays)
    return True


@kernel
def turn(key: Any, pool: Workers, loads: Weights, level: float) -> bool:
    """Use the next of the other members that is below the level; False if there is none."""
    at = key.at + 1
    for _ in range(1, key.width):
        if at == key.width:
            at = 0
        if loads[pool[key.start + at]] < level:
            key.at = at
            key.current = pool[key.start + at]
            return True
        at += 1
    return False


@kernel
def wants_more(key: Any, loads: Weights, left: Weights, state: Any) -> Any:
    """Whether a key whose members are all full is to get one more, if there is one that takes it."""
    limit = state.hot_limit if key.hot else state.light_limit + key.slack
    return loads[key.current] + left[key.current] >= limit and key.width < key.cap and key.tried != state.number


@kernel
def go_on(key: Any, pool: Workers, loads: Weights) -> None:
    """Use the next member where that has less: so all of them stay alike above the level.

    Without branches, which nobody could predict: a key with one worker has itself for the next. The compiler would make
    one of a conditional expression here.
    """
    at = key.at + 1 if key.at + 1 < key.width else 0
    worker, current = pool[np.uint32(key.start + at)], key.current
    changed = -np.int32(loads[np.uint32(worker)] < loads[np.uint32(current)])  # All bits or none.
    key.at ^= (key.at ^ at) & changed
    key.current = current ^ ((current ^ worker) & changed)


@kernel
def route_levels(  # noqa: C901, PLR0915 -- what one event needs stays in one loop
    events: Hashes, weights: Weights, arrays: Arrays
) -> Workers:
    """Route events one after the other; all arrays but owners, room, slowness and rules change as it goes along.

    What every event needs is in this one loop or in functions of few arrays: passing all of them on would take longer
    than to route. The words that every event changes are local variables, and so in registers; `state` has them
    whenever somebody else looks: at a new level and at the end. Indices are unsigned where every event needs them: else
    the compiler would look whether they are negative, and count from the end then.
    """
    routed = np.empty(len(events), np.int32)
    weighted = len(weights) > 0
    hashes, counts, errors, begun, tracked = arrays.hashes, arrays.counts, arrays.errors, arrays.begun, arrays.tracked
    keys, pool, owners, cold = arrays.keys, arrays.pool, arrays.owners, arrays.cold
    loads, left, room, slowness = arrays.loads, arrays.left, arrays.room, arrays.slowness
    workers, buckets, bits = len(loads), len(owners) - 1, counts.view(np.int64)
    state, rules = arrays.state[0], arrays.rules[0]
    mass, squares, until = state.mass, state.squares, state.until
    level, light_limit, threshold = state.level, state.light_limit, rules.threshold * state.scope
    run_most = state.run_most
    for i in range(len(events)):
        if until == 0:
            state.mass, state.squares = mass, squares
            if state.scope > 1.0:
                expect(loads, arrays.brought, arrays.expected, slowness, state)
            raise_level(state, rules, workers)
            threshold = rules.threshold * state.scope
            until, level, light_limit, run_most = state.until, state.level, state.light_limit, state.run_most
        until -= 1
        hashed = events[i, 0]
        weight = weights[i] if weighted else 1.0
        # Count the key. It gets no counter, and is cold, where all counters of its set belong to tracked keys.
        slot = find(hashes, hashed)
        if slot < 0:
            slot = smallest(bits, tracked, hashed)
            if slot >= 0:
                errors[slot], hashes[slot], begun[slot] = counts[slot], hashed, mass
        known = False
        if slot >= 0:
            counts[np.uint64(slot)] += weight
            known = tracked[np.uint64(slot)]
            if not known:
                certain = counts[slot] - errors[slot]
                if certain >= rules.evidence * state.unit and certain >= threshold * mass:
                    known = promote(slot, hashed, weight, mass, arrays)
        if known:
            # A tracked key fills one member after the other up to the level. That all are full holds until it rises.
            key = keys[np.uint64(slot)]
            current = np.uint32(key.current)
            whole, others = (key.width == 1) & (not key.hot), left[current]  # A choice of numbers, not of ways.
            if loads[current] >= (light_limit - others if whole else level):
                in_row, certain = 1, counts[np.uint64(slot)] - errors[np.uint64(slot)]
                if (certain <= run_most) & (events[np.uint64(max(i, 1) - 1), 0] == hashed):
                    in_row = in_a_row(events, i, state)
                if in_row >= _RUN and may_run(key, rules):
                    # At its begin a run leaves a full worker at once; then it may go on above the level for a while.
                    limit = level if in_row == _RUN else state.run_limit
                    if loads[current] + others >= limit:
                        run_on(key, hashed, pool, loads, state)
                else:
                    if key.full != state.number and not turn(key, pool, loads, level):
                        key.full = state.number
                        counted = mass + weight - begun[slot]
                        reestimate(key, hashed, certain, counted, workers, state, rules)
                    if key.full == state.number:
                        if wants_more(key, loads, left, state) and not widen(key, hashed, pool, loads, room, state):
                            key.tried = state.number
                        go_on(key, pool, loads)
            worker = key.current
        else:
            # A cold key follows its bucket; a part of the hashes may go to a second worker.
            bucket = hashed & buckets
            worker = owners[bucket]
            cold[bucket] += weight
            if state.flexible and loads[worker] >= level and unit(mix(np.uint64(hashed))) <= rules.flexible:
                second = choice(hashed, 1, workers)
                if loads[second] < loads[worker]:
                    worker = second
        used = np.uint32(worker)
        loads[used] += weight * slowness[used]
        mass += weight
        squares += weight * weight
        routed[i] = worker
    state.mass, state.squares, state.until = mass, squares, until
    if len(events):
        state.in_row = in_a_row(events, len(events) - 1, state)
        state.last = events[len(events) - 1, 0]
    return routed


@kernel
def each_by_level(event: Hashes, weights: Weights, arrays: Arrays, secret: np.uint64) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    used = np.empty((1, 1), np.int64)
    while True:
        used[0, 0] = scramble(event[0, 0], secret)
        yield route_levels(used, weights, arrays)[0]
