"""Today's hot keys by flipping coins: little work per event, little memory, and yesterday's are forgotten.

Source: Chen, Zhang, Jin, "Popularity-aware Differentiated Distributed Stream Processing on Skewed Streams" (ICNP 2017),
sections III-B and IV.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.keyspace.counting_bloom import CountingBloomFilter

CANDIDATE = np.dtype([("hash", np.int64), ("bits", np.uint64), ("announced", np.int64)])
"""A key of the synopsis: its hash, bit vector, and whether it is in the filter of hot keys."""

RULES = np.dtype(
    [
        ("log_stay", np.float64),
        ("threshold", np.int64),
        ("length", np.int64),
        ("few", np.uint64),
        ("hashes", np.int64),
        ("size", np.int64),
    ]
)
"""log(1 - p), r and l of the paper, r + 1 set bits, number of the filter's hashes; number of candidates."""

LEAST_DECLINE = 1e-5


@dataclass(frozen=True)
class PredictorRules:
    """What a predictor goes by; the paper's symbols in brackets.

    Raises ValueError for values out of range.
    """

    decline: float
    """Probability with which each candidate's bits are shifted at an update of the synopsis (p), 1e-5 to 0.5. Keys
    with more than twice this share of the events stay hot."""
    threshold: int = 6
    """An event touches the synopsis after more heads in a row than this (r), 0 to 32: one event in 2 ** (r + 1)."""
    length: int = 16
    """Number of bits of a candidate (l), 2 to 32."""
    false_positive_rate: float = 0.001
    """Probability with which a key that is not hot is taken for one."""

    def __post_init__(self) -> None:
        if not LEAST_DECLINE <= self.decline <= 0.5:
            raise ValueError(f"decline must be from {LEAST_DECLINE} to 0.5, not {self.decline!r}")
        if not 0 <= self.threshold <= 32 or not 2 <= self.length <= 32:
            raise ValueError(f"threshold must be from 0 to 32 and length from 2 to 32, not {self!r}")

    @property
    def capacity(self) -> int:
        """The most candidates that are held; about half as many are expected, see HotKeyPredictor."""
        return math.ceil(4 / self.decline)


class HotKeyPredictor:
    """Every event flips a coin until it shows tails, up to r + l times; t heads, if t > r, set bit t - r - 1 of its key
    in the synopsis. A key with two different bits is hot: it enters the filter of hot keys. At each of these updates
    every key's bits are shifted to the right with probability p; a key without bits is evicted from the synopsis and,
    if it was announced as hot, from the filter. So it takes more luck than a rare key has to become hot, and a key
    that isn't seen any more is soon forgotten.

    The paper's theorem 3 has fewer than 1 / p keys in the synopsis. What its rules give on streams of rare keys is
    2 / p: a new key's bit is number b with probability 2 ** -(b + 1), and it stays for (b + 1) / p updates. Here at
    most 4 / p are held; a new one that finds no place is not noted.

    Memory: 24 bytes x 4 / p, and a filter for 1 / p keys: 17 to 25 KB for p = 0.01. Drawing is by `random` alone, one
    integer of SplitMix64.
    """

    def __init__(self, rules: PredictorRules, seed: int = 0) -> None:
        self.filter = CountingBloomFilter(math.ceil(1 / rules.decline), rules.false_positive_rate)
        """The hot keys, for a quick look."""
        self.synopsis: NDArray[Any] = np.zeros(rules.capacity, CANDIDATE)
        """The candidates; the first `size` are in use."""
        self.rules: NDArray[Any] = np.zeros(1, RULES)
        """One record; see RULES."""
        self._decline = rules.decline
        self.rules["log_stay"] = math.log1p(-rules.decline)
        self.rules["threshold"] = rules.threshold
        self.rules["length"] = rules.length
        self.rules["few"] = (1 << (rules.threshold + 1)) - 1
        self.rules["hashes"] = self.filter.hashes
        self.random = np.array([seed], np.uint64)
        """The state of the random numbers."""

    def __len__(self) -> int:
        """Number of candidates in the synopsis."""
        return int(self.rules["size"][0])

    def observe(self, hashes: NDArray[np.int64]) -> int:
        """Flip the coins of n events by their keys' hashes, shape (n,); how many keys became hot or ceased to be."""
        from keygrouping.keyspace._predictor_kernel import observe_all

        hashes = np.require(hashes, np.int64, ["C", "W"])
        return int(observe_all(self.synopsis, self.rules, self.random, self.filter.counters, hashes))

    def find(self, hashed: int) -> Any | None:
        """A view of the candidate of this hash, or None."""
        places = np.flatnonzero(self.synopsis["hash"][: len(self)] == hashed)
        return self.synopsis[places[0]] if places.size else None

    def share(self, candidate: Any) -> float:
        """About which share of the events a candidate has, seldom wrong by more than a factor of 4.

        By n updates about the log2(n) lowest bits are set: Flajolet and Martin, "Probabilistic Counting
        Algorithms for Data Base Applications" (JCSS 1985). The highest bits are due to luck and linger.
        """
        return min(1.0, self._decline * float(lowest_unset(candidate["bits"])))

    def strongest(self) -> NDArray[Any]:
        """A copy of all candidates, hot ones first, then by share and bits; see CANDIDATE."""
        return strongest_first(self.synopsis[: len(self)])

    def to_data(self) -> dict[str, Any]:
        """All state as plain JSON data."""
        synopsis = [list(row) for row in self.synopsis[: len(self)].tolist()]
        return {"random": int(self.random[0]), "synopsis": synopsis}

    @classmethod
    def from_data(cls, rules: PredictorRules, data: Any) -> "HotKeyPredictor":
        """The predictor with these rules that gave `to_data`; a KeyError, TypeError or ValueError if there is none."""
        try:
            made = cls(rules, int(data["random"]))
            synopsis = np.array([tuple(row) for row in data["synopsis"]], CANDIDATE)
        except OverflowError as error:
            raise ValueError("a hash, bit vector or random state is out of range") from error
        made.replace(synopsis)
        return made

    def replace(self, candidates: NDArray[Any]) -> None:
        """Hold exactly these candidates; a ValueError if there are too many, one twice, or one without bits."""
        bits = candidates["bits"]
        if len(candidates) > len(self.synopsis) or len(np.unique(candidates["hash"])) != len(candidates):
            raise ValueError("too many candidates, or one twice")
        if np.any(bits == 0) or np.any(bits >> np.uint64(int(self.rules["length"][0]))):
            raise ValueError("a candidate without bits, or with too many")
        self.filter.counters[:] = 0
        for hashed in candidates["hash"][candidates["announced"] != 0].tolist():
            self.filter.add(hashed)
        self.synopsis[: len(candidates)] = candidates
        self.rules["size"] = len(candidates)


def fitted(data: Mapping[str, Any], rules: PredictorRules) -> dict[str, Any]:
    """What the `to_data` of a predictor with other rules gave, fit for these: the strongest for which there is room."""
    synopsis = np.array([tuple(row) for row in data["synopsis"]], CANDIDATE)
    synopsis["bits"] &= np.uint64((1 << rules.length) - 1)
    kept = strongest_first(synopsis[synopsis["bits"] != 0])[: rules.capacity]
    return {**data, "synopsis": [list(row) for row in kept.tolist()]}


def strongest_first(candidates: NDArray[Any]) -> NDArray[Any]:
    """A copy, hot ones first, then by share and bits."""
    bits = candidates["bits"]
    return candidates[np.lexsort((candidates["hash"], ~bits, ~lowest_unset(bits), -candidates["announced"]))]


def lowest_unset(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The lowest bit that is not set, by itself."""
    return ~bits & (bits + np.uint64(1))
