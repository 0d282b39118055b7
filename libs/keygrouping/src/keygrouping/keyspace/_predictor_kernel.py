"""Compiled coin flips and synopsis of the hot-key predictor, to be called from the kernels of groupings; needs numba.

`synopsis` is the array of `predictor.CANDIDATE`, `rules` the one record of an array of `predictor.RULES`, `counters`
those of the counting Bloom filter.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._splitmix import draw, unit
from keygrouping.compiled import kernel
from keygrouping.keyspace._counting_bloom_kernel import change

_NONE = np.uint64(0)
_ONE = np.uint64(1)


@kernel
def update(
    synopsis: NDArray[Any],
    rules: Any,
    random: NDArray[np.uint64],
    counters: NDArray[np.int32],
    hashed: np.int64,
    flips: np.uint64,
) -> int:
    """Update the synopsis by an event whose drawn bits `flips` include all of `rules.few`: it had enough heads.

    How many keys entered or left the filter by it.
    """
    return record(synopsis, rules, counters, hashed, flips) + decline(synopsis, rules, random, counters)


@kernel
def record(synopsis: NDArray[Any], rules: Any, counters: NDArray[np.int32], hashed: np.int64, flips: np.uint64) -> int:
    """Set the bit of this number of heads; 1 if the key has two bits by now and is thus announced as hot, else 0."""
    bit = _ONE
    heads = rules.threshold + 1
    while heads < rules.threshold + rules.length and (flips >> np.uint64(heads)) & _ONE:
        bit <<= _ONE
        heads += 1
    place = 0
    while place < rules.size and synopsis[place].hash != hashed:
        place += 1
    candidate = synopsis[min(place, len(synopsis) - 1)]
    if place == rules.size:
        if place == len(synopsis):
            return 0
        rules.size += 1
        candidate.hash = hashed
        candidate.bits = _NONE
        candidate.announced = 0
    candidate.bits |= bit
    if candidate.announced or candidate.bits & (candidate.bits - _ONE) == _NONE:
        return 0
    candidate.announced = 1
    change(counters, rules.hashes, hashed, 1)
    return 1


@kernel
def decline(synopsis: NDArray[Any], rules: Any, random: NDArray[np.uint64], counters: NDArray[np.int32]) -> int:
    """Shift each candidate's bits with the same probability; those without any are evicted, and no longer hot.

    What is drawn is how many candidates are skipped until the next shift, a geometrically distributed number.
    """
    withdrawn = 0
    place = rules.size
    while True:
        skipped = math.log(unit(draw(random))) / rules.log_stay
        if skipped >= place:
            return withdrawn
        place -= 1 + int(skipped)
        candidate = synopsis[place]
        candidate.bits >>= _ONE
        if candidate.bits == _NONE:
            if candidate.announced:
                change(counters, rules.hashes, candidate.hash, -1)
                withdrawn += 1
            rules.size -= 1
            synopsis[place] = synopsis[rules.size]


@kernel
def observe_all(
    synopsis: NDArray[Any],
    rules: NDArray[Any],
    random: NDArray[np.uint64],
    counters: NDArray[np.int32],
    hashes: NDArray[np.int64],
) -> int:
    """Flip the coins of many events, shape (n,); how many keys entered or left the filter."""
    changes = 0
    few = rules[0].few
    for i in range(len(hashes)):
        flips = draw(random)
        if flips & few == few:
            changes += update(synopsis, rules[0], random, counters, hashes[i], flips)
    return changes
