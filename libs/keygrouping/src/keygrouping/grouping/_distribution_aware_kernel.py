"""Compiled routing of Distribution-aware Key Grouping; needs numba."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._space_saving_kernel import update


class Arrays(NamedTuple):
    """Where keys, ascending by hash, and buckets are placed, and what has been counted of both."""

    keys: NDArray[np.int64]
    key_workers: Workers
    bucket_workers: Workers
    buckets: Weights
    counters: NDArray[Any]
    sketch: NDArray[Any]


@kernel
def route_distribution_aware(hashes: Hashes, weights: Weights, arrays: Arrays) -> Workers:
    """Each placed key to its worker, others to that of their bucket; the counts go along."""
    keys, key_workers, bucket_workers = arrays.keys, arrays.key_workers, arrays.bucket_workers
    buckets, counters, sketch = arrays.buckets, arrays.counters, arrays.sketch[0]
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        weight = weights[i] if weighted else 1.0
        update(counters, sketch, hashed, weight)
        bucket = home_of(hashed, len(buckets))
        buckets[bucket] += weight
        at = np.searchsorted(keys, hashed)
        routed[i] = key_workers[at] if at < len(keys) and keys[at] == hashed else bucket_workers[bucket]
    return routed


@kernel
def each_by_distribution(event: Hashes, weights: Weights, arrays: Arrays) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_distribution_aware(event, weights, arrays)[0]
