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

from keygrouping.slices import Slices, buffer_of

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
    """The signed 64-bit hash of one key; UnicodeEncodeError for a text that UTF-8 can't encode."""
    if type(key) is not bytes and isinstance(key, str):
        key = key.encode()  # mmh3 ends the process on lone surrogates.
    return mmh3.hash64(key, seed)[0]


def hash_keys(keys: Sequence[bytes], seeds: tuple[int, ...] = (SEED,)) -> NDArray[np.int64]:
    """The hashes of many keys, shape (len(keys), len(seeds)); the same numbers as hash_key."""
    hashes = np.empty((len(keys), len(seeds)), np.int64)
    if hashes.size:
        from keygrouping._murmur import hash_all

        data, starts, sizes = _lying(keys)
        hash_all(data, starts, sizes, np.array(seeds, np.int64), hashes)
    return hashes


def _lying(keys: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """A buffer that has these keys, where each begins, and its size."""
    if isinstance(keys, Slices):
        return keys.data, np.ascontiguousarray(keys.starts), np.ascontiguousarray(keys.sizes)
    sizes = np.fromiter(map(len, keys), np.int64, len(keys))
    return buffer_of(b"".join(keys)), np.cumsum(sizes) - sizes, sizes


def worker_of(hashed: int, workers: int) -> int:
    """The worker at home for a hash: its absolute value modulo the number of workers."""
    return abs(hashed) % workers


def fingerprint_of(secret: int) -> int:
    """16 bits, as a number, by which one secret seed is told from another; 0 for 0, which is no secret."""
    return hash_key(str(secret)) & 0xFFFF if secret else 0


def kafka_hashes(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """What Kafka's own partitioner goes by, shape (len(keys),): murmur2 of a key, as a number from 0 to 2^32 - 1."""
    hashes = np.empty(len(keys), np.uint32)
    if hashes.size:
        from keygrouping._murmur2 import hash_all

        data = np.frombuffer(bytearray(b"".join(keys)), np.uint8)
        hash_all(data, np.fromiter(map(len, keys), np.int64, len(keys)), hashes)
    return hashes


def kafka_partitions(hashes: NDArray[np.uint32], partitions: int) -> NDArray[np.int64]:
    """The partitions of keys with these `kafka_hashes`, among so many, as every client of Kafka's chooses them."""
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
