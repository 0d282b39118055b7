"""A set of keys in a few counters, from which keys can be removed again.

Source: Fan, Cao, Almeida, Broder, "Summary Cache: A Scalable Wide-Area Web Cache Sharing Protocol" (IEEE/ACM
Transactions on Networking 8(3), 2000); Kirsch and Mitzenmacher, "Less Hashing, Same Performance: Building a Better
Bloom Filter" (ESA 2006) for its hashes.
"""

import math

import numpy as np
from numpy.typing import NDArray

MAX_EXPECTED = 10_000_000


class CountingBloomFilter:
    """A key is known by its 64-bit hash; a key that was added is always found, another one rarely.

    With up to `expected` keys a key that was not added is found with at most about the given probability. The
    size follows: log2(1 / rate) hashes into expected x log2(1 / rate) / ln 2 counters, rounded up to a power of two,
    4 bytes each: 2 KB for 32 keys and 0.001, 128 KB for 2,000.

    Kernels use `counters` and `hashes` themselves, by the functions in `_counting_bloom_kernel`.
    """

    def __init__(self, expected: int, false_positive_rate: float) -> None:
        if isinstance(expected, bool) or not isinstance(expected, int) or not 1 <= expected <= MAX_EXPECTED:
            raise ValueError(f"expected must be an integer from 1 to {MAX_EXPECTED}, not {expected!r}")
        if not 1e-9 <= false_positive_rate <= 0.5:
            raise ValueError(f"false_positive_rate must be from 1e-9 to 0.5, not {false_positive_rate!r}")
        bits = -math.log2(false_positive_rate)
        self.hashes = math.ceil(bits)
        """Number of counters that a key touches, all different."""
        least = max(self.hashes, math.ceil(expected * bits / math.log(2)))
        self.counters: NDArray[np.int32] = np.zeros(1 << (least - 1).bit_length(), np.int32)
        """How many of the keys touch each counter."""

    def add(self, hashed: int) -> None:
        """Add a key; it counts twice if it is added twice."""
        self._change(hashed, 1)

    def remove(self, hashed: int) -> None:
        """Take back one `add` of this key.

        Only for keys that were added: removing another one that happens to be found makes keys disappear. One that is
        not even found is a KeyError.
        """
        if hashed not in self:
            raise KeyError(hashed)
        self._change(hashed, -1)

    def __contains__(self, hashed: int) -> bool:
        from keygrouping.keyspace._counting_bloom_kernel import contains

        return bool(contains(self.counters, self.hashes, np.int64(hashed)))

    def _change(self, hashed: int, by: int) -> None:
        from keygrouping.keyspace._counting_bloom_kernel import change

        change(self.counters, self.hashes, np.int64(hashed), by)
