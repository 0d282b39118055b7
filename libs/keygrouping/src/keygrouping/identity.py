"""128-bit hashes of events by their place in a topic, and their sums.

An event's identity is (topic id, partition, offset). Its hash is two times XXH64 of the offset, with seeds that are
XXH64 of topic and partition: Spark's own `xxhash64` computes the same in compiled code. Sums are modulo 2^128, so they
depend neither on the order nor on how events were split, and an event that is there twice or not at all changes them.

Source: Collet, "xxHash fast digest algorithm" (specification of XXH64, for inputs of 8 bytes).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.receipt import MODULUS, Tally

Seeds = tuple[int, int]
"""Seeds of the two halves of a hash, each in [0, 2^64)."""

Offsets = NDArray[np.int64]

_FIRST_SEEDS = (42, 43)
_M64 = (1 << 64) - 1
_M32 = np.uint64((1 << 32) - 1)
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_Q1, _Q2, _Q3, _Q4 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4))
_S27, _S29, _S31, _S32, _S33, _S37 = (np.uint64(shift) for shift in (27, 29, 31, 32, 33, 37))


class Hashes(NamedTuple):
    """Upper and lower halves of hashes."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


def topic_seeds(topic_id: str) -> Seeds:
    """What stands for a topic in its partitions' seeds; its id as Kafka's tools show it (22 characters)."""
    number = int.from_bytes(base64.urlsafe_b64decode(topic_id + "=="))
    high, low = number >> 64, number & _M64
    first, second = (_xxh64(low, _xxh64(high, seed)) for seed in _FIRST_SEEDS)
    return first, second


def partition_seeds(topic_id: str, partition: int) -> Seeds:
    """The seeds for the offsets of one partition."""
    first, second = (_xxh64(partition, _xxh64(seed, _FIRST_SEEDS[0])) for seed in topic_seeds(topic_id))
    return first, second


def hashes_of(offsets: Offsets, seeds: Seeds) -> Hashes:
    """The hash of each offset of one partition."""
    return _hashes(offsets, [np.uint64((seed + _P5 + 8) & _M64) for seed in seeds])


def hashes_in(offsets: Offsets, runs: Sequence[tuple[Seeds, int]]) -> Hashes:
    """The hash of each offset of several partitions, one after the other: seeds and number of offsets of each."""
    sizes = [size for _, size in runs]
    halves = zip(*(seeds for seeds, _ in runs), strict=True)
    return _hashes(
        offsets, [np.repeat(np.array([(s + _P5 + 8) & _M64 for s in half], np.uint64), sizes) for half in halves]
    )


def _hashes(offsets: Offsets, starts: Sequence[Any]) -> Hashes:
    value = offsets.view(np.uint64) * _Q2
    value = (value << _S31) | (value >> _S33)
    value *= _Q1
    high, low = (_finish(value ^ start) for start in starts)
    return Hashes(high, low)


def tally(offsets: Offsets, seeds: Seeds) -> Tally:
    """Number and sum of these events."""
    return tally_of(hashes_of(offsets, seeds))


def tally_of(hashes: Hashes) -> Tally:
    """Number and sum of hashes."""
    high, low = hashes
    total = (int(high.sum()) << 64) + (int((low >> _S32).sum()) << 32) + int((low & _M32).sum())
    return Tally(len(high), total % MODULUS)


def tallies(hashes: Hashes, sizes: Sequence[int]) -> list[Tally]:
    """Number and sum of each run of hashes; `sizes` (all above 0) are the runs' lengths, one after the other."""
    if not sizes:
        return []
    high, low = hashes
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    sums = (np.add.reduceat(part, starts).tolist() for part in (high, low >> _S32, low & _M32))
    return [
        Tally(size, ((top << 64) + (middle << 32) + bottom) % MODULUS)
        for size, top, middle, bottom in zip(sizes, *sums, strict=True)
    ]


def _finish(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value << _S27) | (value >> _S37)
    value *= _Q1
    value += _Q4
    value ^= value >> _S33
    value *= _Q2
    value ^= value >> _S29
    value *= _Q3
    value ^= value >> _S32
    return value


def _xxh64(value: int, seed: int) -> int:
    """XXH64 of one number of 64 bits."""
    value = value * _P2 & _M64
    value = (value << 31 & _M64 | value >> 33) * _P1 & _M64
    value ^= (seed + _P5 + 8) & _M64
    value = ((value << 27 & _M64 | value >> 37) * _P1 + _P4) & _M64
    value = (value ^ value >> 33) * _P2 & _M64
    value = (value ^ value >> 29) * _P3 & _M64
    return value ^ value >> 32
