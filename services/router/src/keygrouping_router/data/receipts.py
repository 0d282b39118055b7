"""The receipt of each transaction: which offsets of the input it consumed, and what became of their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from aiokafka.errors import KafkaError
from keygrouping.identity import (
    Hashes,
    Offsets,
    Seeds,
    hashes_in,
    hashes_of,
    partition_seeds,
    tallies,
    tally_of,
)
from keygrouping.job import JobSpec
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_service.records.protocols import Written
from numpy.typing import NDArray

from keygrouping_router.data.extract import Usable

_MOST_WINDOWS = 5000
"""In one record: 300 kB."""

Windows = dict[int, Tally]


class Ledger:
    """One session's receipts of one input partition; the ranges follow each other from `first` on."""

    def __init__(self, topic: str, partition: int, routed: tuple[str, str], job: JobSpec, first: int) -> None:
        self._topic = topic
        self._partition = partition
        self._seeds = partition_seeds(topic, partition)
        self._routed_topic, self._routed_id = routed
        self._routed_seeds: dict[int, Seeds] = {}
        self._job = job
        self._next = first

    def entry(self, after: int, skipped_to: int) -> Entry:
        """The account of the transaction that commits `after`. What lies before `skipped_to` unread stays out of it."""
        first, self._next = max(self._next, skipped_to), after
        return Entry(self, first, after)

    def hashes(self, offsets: Offsets) -> Hashes:
        """The hashes of the events at these offsets of the input."""
        return hashes_of(offsets, self._seeds)

    def windows(self, times: NDArray[np.int64], shares: Mapping[int, int], written: Written) -> Windows:
        """Number and sum of routed events by window.

        `times` are the events' by worker, and in the order of their offsets; `shares` says how many each worker has.
        """
        if not shares:
            return {}
        offsets = [self._offsets(worker, events, written) for worker, events in shares.items()]
        runs = [(self._seeds_of(worker), events) for worker, events in shares.items()]
        starts = times - (times - self._job.window_offset_ms) % self._job.window_ms
        return _by_window(starts, hashes_in(np.concatenate(offsets), runs))

    def _offsets(self, worker: int, events: int, written: Written) -> Offsets:
        batches = written.get((self._routed_topic, worker), [])
        if any(first < 0 for first, _ in batches) or sum(size for _, size in batches) != events:
            place = f"{self._routed_topic}[{worker}]"
            raise KafkaError(f"the offsets of {events} events in {place} are not known: {batches}")
        return np.concatenate([np.arange(first, first + size) for first, size in batches])

    def _seeds_of(self, worker: int) -> Seeds:
        if worker not in self._routed_seeds:
            self._routed_seeds[worker] = partition_seeds(self._routed_id, worker)
        return self._routed_seeds[worker]

    def receipts(self, entry: Entry, shares: Mapping[int, int], windows: Windows) -> Iterator[bytes]:
        """The records of an account; many windows take several."""
        rest = iter(windows.items())
        head, left = dict(islice(rest, _MOST_WINDOWS)), max(0, len(windows) - _MOST_WINDOWS)
        tallies_ = (entry.consumed, entry.routed, entry.late, entry.dead)
        place = (self._topic, self._partition)
        yield Receipt(*place, entry.first, entry.after, *tallies_, shares, head, left > 0).encode()
        while left > 0:
            head, left = dict(islice(rest, _MOST_WINDOWS)), left - _MOST_WINDOWS
            nothing = (NOTHING,) * 4
            yield Receipt(*place, entry.after, entry.after, *nothing, {}, head, left > 0).encode()


class Entry:
    """The account of one transaction, kept while its records are packed."""

    def __init__(self, ledger: Ledger, first: int, after: int) -> None:
        self._ledger = ledger
        self._read = 0
        self._hashes = Hashes(np.empty(0, np.uint64), np.empty(0, np.uint64))
        self._times = self._offsets = np.empty(0, np.int64)
        self._packed: dict[int, list[NDArray[np.int64]]] = {}
        self.first = first
        self.after = after
        self.consumed = self.routed = self.late = self.dead = NOTHING

    def consume(self, offsets: Offsets) -> None:
        """The records at these offsets were read."""
        self._read, self._hashes = len(offsets), self._ledger.hashes(offsets)
        self.consumed = tally_of(self._hashes)

    def leave_out(self, offsets: Sequence[int]) -> None:
        """The records at these offsets were left out by the reader, which has made dead letters of them."""
        if offsets:
            left_out = self._tally(offsets)
            self.consumed, self.dead = self.consumed.plus(left_out), self.dead.plus(left_out)

    def set_late(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `late`."""
        self.late = self._tally(offsets)

    def dead_letter(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `dead-letters`."""
        self.dead = self.dead.plus(self._tally(offsets))

    def _tally(self, offsets: Sequence[int] | Offsets) -> Tally:
        return tally_of(self._ledger.hashes(np.asarray(offsets, np.int64))) if len(offsets) else NOTHING

    def route(self, worker: int, usable: Usable, indexes: NDArray[np.int64]) -> None:
        """These of the usable records were packed for a worker, after those before."""
        if not self._packed:  # copied, as they would keep the whole batch
            self._times, self._offsets = usable.times.copy(), usable.batch.offsets.copy()
        self._packed.setdefault(worker, []).append(indexes)

    def records(self, written: Written) -> Iterator[bytes]:
        """The receipt, once it is known where the routed events were written."""
        shares = {worker: sum(map(len, parts)) for worker, parts in self._packed.items()}
        times = self._times
        if self._packed:
            order = np.concatenate([indexes for parts in self._packed.values() for indexes in parts])
            high, low = self._hashes_of(self._offsets)
            self.routed = tally_of(Hashes(high[order], low[order]))
            times = times[order]
        return self._ledger.receipts(self, shares, self._ledger.windows(times, shares, written))

    def _hashes_of(self, offsets: Offsets) -> Hashes:
        return self._hashes if len(offsets) == self._read else self._ledger.hashes(offsets)


def _by_window(starts: NDArray[np.int64], hashes: Hashes) -> Windows:
    first = int(starts[0])
    if (starts == first).all():
        return {first: tallies(hashes, [len(starts)])[0]}
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(begins, append=len(ordered)).tolist()
    sums = tallies(Hashes(hashes.high[order], hashes.low[order]), sizes)
    return dict(zip(ordered[begins].tolist(), sums, strict=True))
