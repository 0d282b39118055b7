"""The receipt of each transaction: which offsets of the input it consumed, and what became of their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

import numpy as np
from aiokafka.errors import KafkaError
from keygrouping.identity import Hashes, Offsets, Seeds, hashes_of, offsets_of, partition_seeds, tallies, tally
from keygrouping.job import JobSpec
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_service.batches import Written
from numpy.typing import NDArray

from keygrouping_router.routing import Record, Usable

_MOST_WINDOWS = 5000
"""In one record: 300 kB."""

Windows = dict[int, Tally]


class Ledger:
    """One incarnation's receipts of one input partition; the ranges follow each other from `first` on."""

    def __init__(self, topic: UUID, partition: int, routed: tuple[str, UUID], job: JobSpec, first: int) -> None:
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

    def tally(self, offsets: Offsets) -> Tally:
        """Number and sum of events of the input."""
        return tally(offsets, self._seeds)

    def windows(self, routed: dict[int, list[NDArray[np.int64]]], written: Written) -> Windows:
        """Number and sum of routed events by window, given their times by worker, in the order of their offsets."""
        if not routed:
            return {}
        times = np.concatenate([part for parts in routed.values() for part in parts])
        starts = times - (times - self._job.window_offset_ms) % self._job.window_ms
        hashes = [self._routed_hashes(worker, sum(map(len, parts)), written) for worker, parts in routed.items()]
        return _by_window(starts, Hashes(*(np.concatenate(halves) for halves in zip(*hashes, strict=True))))

    def _routed_hashes(self, worker: int, events: int, written: Written) -> Hashes:
        batches = written.get((self._routed_topic, worker), [])
        if any(first < 0 for first, _ in batches) or sum(size for _, size in batches) != events:
            place = f"{self._routed_topic}[{worker}]"
            raise KafkaError(f"the offsets of {events} events in {place} are not known: {batches}")
        if worker not in self._routed_seeds:
            self._routed_seeds[worker] = partition_seeds(self._routed_id, worker)
        offsets = np.concatenate([np.arange(first, first + size) for first, size in batches])
        return hashes_of(offsets, self._routed_seeds[worker])

    def receipts(self, entry: Entry, windows: Windows) -> Iterator[bytes]:
        """The records of an account; many windows take several."""
        rest = iter(windows.items())
        head, left = dict(islice(rest, _MOST_WINDOWS)), max(0, len(windows) - _MOST_WINDOWS)
        workers = {worker: sum(map(len, parts)) for worker, parts in entry.routed_times.items()}
        tallies_ = (entry.consumed, entry.routed, entry.late, entry.dead)
        place = (self._topic, self._partition)
        yield Receipt(*place, entry.first, entry.after, *tallies_, workers, head, left > 0).encode()
        while left > 0:
            head, left = dict(islice(rest, _MOST_WINDOWS)), left - _MOST_WINDOWS
            nothing = (NOTHING,) * 4
            yield Receipt(*place, entry.after, entry.after, *nothing, {}, head, left > 0).encode()


class Entry:
    """The account of one transaction, kept while its records are packed."""

    def __init__(self, ledger: Ledger, first: int, after: int) -> None:
        self._ledger = ledger
        self._usable: Usable | None = None
        self._offsets: Offsets = np.empty(0, np.int64)
        self.first = first
        self.after = after
        self.consumed = self.routed = self.late = self.dead = NOTHING
        self.routed_times: dict[int, list[NDArray[np.int64]]] = {}

    def consume(self, records: Sequence[Record]) -> None:
        """These records were read."""
        self.consumed = self._ledger.tally(offsets_of(records))

    def set_late(self, records: Sequence[Record]) -> None:
        """These were packed for `late`."""
        self.late = self.late.plus(self._ledger.tally(offsets_of(records)))

    def bury(self, records: Sequence[Record]) -> None:
        """These were packed for `dead-letters`."""
        self.dead = self.dead.plus(self._ledger.tally(offsets_of(records)))

    def route(self, worker: int, usable: Usable, indexes: NDArray[np.int64]) -> None:
        """These of the usable records were packed for a worker, after those before."""
        if self._usable is not usable:
            self._usable, self._offsets = usable, offsets_of(usable.records)
        self.routed = self.routed.plus(self._ledger.tally(self._offsets[indexes]))
        self.routed_times.setdefault(worker, []).append(usable.times[indexes])

    def records(self, written: Written) -> Iterator[bytes]:
        """The receipt, once it is known where the routed events were written."""
        return self._ledger.receipts(self, self._ledger.windows(self.routed_times, written))


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
