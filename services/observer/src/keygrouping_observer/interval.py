"""What is collected of the open interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from keygrouping.hashing import hash_key, worker_of
from keygrouping.measure import Distribution, Measures
from keygrouping.partial import Partial

from keygrouping_observer.figures import Totals
from keygrouping_observer.latency import Samples, counts_of


class Interval:
    """The partials of one interval. Memory grows with its distinct keys, about 500 bytes each."""

    def __init__(self, latency_samples: int) -> None:
        self.samples = Samples(latency_samples)
        self.epoch = 0
        self.messages = 0
        self._distribution = Distribution(0)
        self._weights: dict[bytes, float] = {}
        self._events: Counter[int] = Counter()

    def add(self, key: bytes, partial: Partial, written: int) -> None:
        """Counts a partial that was written at a time (ms)."""
        self._distribution.add(partial.worker, key, partial.weight, partial.events)
        self._weights[key] = self._weights.get(key, 0) + partial.weight
        self._events[partial.worker] += partial.events
        self.epoch = max(self.epoch, partial.epoch)
        self.messages += 1
        self.samples.add(key, partial, written)

    def totals(self, workers: int, seconds: float, latencies: Sequence[float]) -> tuple[Totals, Measures]:
        """What adds up, and the library's measures; `workers` is how many are in use, if more than have events."""
        self._distribution.resize(workers)
        measures = self._distribution.interval()
        in_use = len(measures.loads)
        totals = Totals(
            seconds=seconds,
            worker_seconds=seconds * in_use,
            messages=self.messages,
            events=[float(self._events[worker]) for worker in range(in_use)],
            loads=list(measures.loads),
            loads_before=self._loads_before(in_use),
            samples=len(latencies),
            latency_counts=counts_of(latencies),
        )
        return totals, measures

    def _loads_before(self, workers: int) -> list[float]:
        loads = [0.0] * workers
        for key, weight in self._weights.items():
            loads[worker_of(hash_key(key), workers)] += weight
        return loads
