"""128-bit hashes of events by their place in a topic, and their sums.

An event's identity is (topic id, partition, offset). Its hash is two times XXH64 of the offset, with seeds that are
XXH64 of topic and partition: Spark's own `xxhash64` computes the same in compiled code. Sums are modulo 2^128, so they
depend neither on the order nor on how events were split, and an event that is there twice or not at all changes them.

Source: Collet, "xxHash fast digest algorithm" (specification of XXH64, for inputs of 8 bytes).
"""

from __future__ import annotations

import base64
from functools import cache, lru_cache
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import in_one_piece
from keygrouping.grouped import Runs
from keygrouping.partial import RECEIPT_DIGITS
from keygrouping.receipt import Tally

Seeds = tuple[int, int]
"""Seeds of the two halves of a hash, each in [0, 2^64)."""

Offsets = NDArray[np.int64]

_FIRST_SEEDS = (42, 43)
_M64 = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


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


def tally(offsets: Offsets, seeds: Seeds) -> Tally:
    """Number and sum of the events at these offsets of one partition."""
    sums = _kernels().sum_all(in_one_piece(offsets), _starts_of(seeds))
    return Tally(len(offsets), _number(*sums))


class Sums:
    """Adds up hashes of events of one partition, in a table of somebody else: a row for each sum, 0 at first.

    A row is the bits of both halves, the upper one first. They are columns of a wider table where another one is needed
    for each group anyway: a row that is not in the processor's caches costs more than to add to it.
    """

    def __init__(self, seeds: Seeds) -> None:
        self._starts = _starts_of(seeds)

    def add(self, offsets: Offsets, runs: Runs, sums: NDArray[np.int64]) -> None:
        """Adds the events at these offsets, each to the row of its run's group."""
        given = (in_one_piece(offsets), runs.rows, runs.sizes, runs.groups)
        _kernels().sum_runs(*given, self._starts, sums.view(np.uint64))

    def encoded(self, sums: NDArray[np.int64]) -> list[str]:
        """The sums as partials have them."""
        # All at once: one by one they would take five times as long.
        return sums.astype(">i8").tobytes().hex(" ", RECEIPT_DIGITS // 2).split()


class RoutedSums(NamedTuple):
    """Number and sum of routed events by their places in the input; rows of `Receipt.shares` and `Receipt.windows`.

    The latter sum them up by their places in the routed topic.
    """

    total: Tally
    shares: NDArray[np.int32]
    windows: NDArray[np.uint64]


class Routed:
    """Sums of the events of one partition of the input that are routed to partitions of another topic.

    `routed` is the id of that topic; windows have this length and offset in ms.
    """

    def __init__(self, seeds: Seeds, routed: str, window_ms: int, window_offset_ms: int) -> None:
        self._starts = _starts_of(seeds)
        self._topic = routed
        self._routed = np.zeros((0, 2), np.uint64)
        self._window = np.array([window_ms, window_offset_ms], np.int64)

    def account(
        self, offsets: Offsets, times: NDArray[np.int64], workers: NDArray[np.int32], runs: NDArray[np.int64]
    ) -> RoutedSums | None:
        """Sums over events with these offsets and times (ms) in the input, each routed to this partition of the topic.

        A row of `runs` is a partition, the first offset of some of its events there, and how many they are, in their
        order. None if these are not all of the events, or an offset is negative.
        """
        self._know(int(runs[:, 0].max(initial=0)))
        shares, windows = np.zeros((len(self._routed), 2), np.int32), np.empty((len(workers), 4), np.uint64)
        given = (in_one_piece(offsets), in_one_piece(times), in_one_piece(workers), runs)
        places, scratch = (self._starts, self._routed, self._window), np.empty((2, len(workers)), np.int64)
        filled, found, high, low = _kernels().account(*given, *places, scratch, shares, windows)
        if filled < 0:
            return None
        return RoutedSums(Tally(len(workers), _number(high, low)), shares[:filled], windows[:found])

    def _know(self, partition: int) -> None:
        if partition >= len(self._routed):
            seeds = [partition_seeds(self._topic, number) for number in range(partition + 1)]
            self._routed = np.stack([_starts_of(each) for each in seeds])


class WindowSums:
    """Numbers and sums of events of one partition by window; windows have this length and offset in ms."""

    def __init__(self, seeds: Seeds, window_ms: int, window_offset_ms: int) -> None:
        self._starts = _starts_of(seeds)
        self._window = np.array([window_ms, window_offset_ms], np.int64)

    def of(self, offsets: Offsets, times: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows of `Receipt.windows` for the events with these offsets and times (ms)."""
        windows = np.empty((len(offsets), 4), np.uint64)
        given = (in_one_piece(offsets), in_one_piece(times), self._starts, self._window)
        return windows[: _kernels().sum_by_window(*given, windows)]


@cache
def _kernels() -> ModuleType:
    """Imported late, as numba takes a second; to import them again in each call would take it 0.5 µs."""
    from keygrouping import _identity_kernel

    return _identity_kernel


@lru_cache(4096)
def _starts_of(seeds: Seeds) -> NDArray[np.uint64]:
    return np.array([(seed + _P5 + 8) & _M64 for seed in seeds], np.uint64)


def _number(high: int, low: int) -> int:
    return (high << 64) + low


def _xxh64(value: int, seed: int) -> int:
    """XXH64 of one number of 64 bits."""
    value = value * _P2 & _M64
    value = (value << 31 & _M64 | value >> 33) * _P1 & _M64
    value ^= (seed + _P5 + 8) & _M64
    value = ((value << 27 & _M64 | value >> 37) * _P1 + _P4) & _M64
    value = (value ^ value >> 33) * _P2 & _M64
    value = (value ^ value >> 29) * _P3 & _M64
    return value ^ value >> 32
