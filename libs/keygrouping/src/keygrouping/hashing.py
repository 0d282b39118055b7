"""The hash of a key and its way to a worker, so that every process on every machine agrees on them.

The hash is the first half of MurmurHash3 x64 128 of the key's bytes (str: UTF-8) as a signed 64-bit integer, with
the seeds of the papers' code, and further primes where more than two are wanted. The worker is abs(hash) % workers,
the absolute value taken in unsigned arithmetic: the smallest 64-bit integer has none among the signed ones.
"""

import math
from collections.abc import Sequence

import mmh3
import numpy as np
from numpy.typing import NDArray

SEED = 13
"""Seed of the home worker."""

SECOND_SEED = 17
"""Seed of the second choice."""


def choice_seeds(choices: int) -> tuple[int, ...]:
    """Seeds of this many choices of one key: the prime numbers from 13 on (13, 17, 19, 23, 29, 31, 37, 41, ...)."""
    seeds: list[int] = []
    candidate = SEED
    while len(seeds) < choices:
        if all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1)):
            seeds.append(candidate)
        candidate += 1
    return tuple(seeds)


def hash_key(key: bytes | str, seed: int = SEED) -> int:
    """The signed 64-bit hash of one key."""
    return mmh3.hash64(key, seed, signed=True)[0]


def hash_keys(keys: Sequence[bytes], seeds: tuple[int, ...] = (SEED,)) -> NDArray[np.int64]:
    """The hashes of many keys, shape (len(keys), len(seeds)); the same numbers as hash_key."""
    hashes = np.empty((len(keys), len(seeds)), np.int64)
    if hashes.size:
        from keygrouping._murmur import hash_all

        data = np.frombuffer(bytearray(b"".join(keys)), np.uint8)
        sizes = np.fromiter(map(len, keys), np.int64, len(keys))
        hash_all(data, sizes, np.array(seeds, np.int64), hashes)
    return hashes


def worker_of(hashed: int, workers: int) -> int:
    """The worker at home for a hash: its absolute value modulo the number of workers."""
    return abs(hashed) % workers
