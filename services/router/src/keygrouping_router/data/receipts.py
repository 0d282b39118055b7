"""The receipt of each transaction: which offsets of the input it consumed, and what became of their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from aiokafka.errors import KafkaError
from keygrouping.identity import Offsets, Routed, partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_service.records.protocols import Written
from numpy.typing import NDArray

from keygrouping_router.data.extract import Usable

_MOST_WINDOWS = 5000
"""In one record: 300 kB."""

Windows = dict[int, Tally]
Packed = Mapping[int, Sequence[NDArray[np.int64]]]
"""By worker: rows of the usable records, in the order in which they were packed."""


class Ledger:
    """One session's receipts of one input partition; the ranges follow each other from `first` on."""

    def __init__(self, topic: str, partition: int, routed: tuple[str, str], job: JobSpec, first: int) -> None:
        self._topic = topic
        self._partition = partition
        self._seeds = partition_seeds(topic, partition)
        self._routed_topic, routed_id = routed
        self._routed = Routed(self._seeds, routed_id, job.window_ms, job.window_offset_ms)
        self._next = first

    def entry(self, after: int, skipped_to: int) -> Entry:
        """The account of the transaction that commits `after`. What lies before `skipped_to` unread stays out of it."""
        first, self._next = max(self._next, skipped_to), after
        return Entry(self, first, after)

    def tally(self, offsets: Sequence[int] | Offsets) -> Tally:
        """Number and sum of the events at these offsets of the input."""
        return tally(np.asarray(offsets, np.int64), self._seeds) if len(offsets) else NOTHING

    def routed(
        self, offsets: Offsets, times: NDArray[np.int64], packed: Packed, written: Written
    ) -> tuple[Tally, Windows]:
        """Number and sum of the routed events, by their places in the input; and by window, by those in the output.

        `offsets` and `times` are those of the usable records.
        """
        if not packed:
            return NOTHING, {}
        rows = np.concatenate([indexes for parts in packed.values() for indexes in parts])
        runs = [
            (worker, *batch)
            for worker, parts in packed.items()
            for batch in self._batches(worker, sum(map(len, parts)), written)
        ]
        return self._routed.tallies(offsets, times, rows, runs)

    def _batches(self, worker: int, events: int, written: Written) -> Sequence[tuple[int, int]]:
        batches = written.get((self._routed_topic, worker), [])
        if any(first < 0 for first, _ in batches) or sum(size for _, size in batches) != events:
            place = f"{self._routed_topic}[{worker}]"
            raise KafkaError(f"the offsets of {events} events in {place} are not known: {batches}")
        return batches

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
        self._times = self._offsets = np.empty(0, np.int64)
        self._packed: dict[int, list[NDArray[np.int64]]] = {}
        self.first = first
        self.after = after
        self.consumed = self.routed = self.late = self.dead = NOTHING

    def consume(self, offsets: Offsets) -> None:
        """The records at these offsets were read."""
        self.consumed = self._ledger.tally(offsets)

    def leave_out(self, offsets: Sequence[int]) -> None:
        """The records at these offsets were left out by the reader, which has made dead letters of them."""
        if offsets:
            left_out = self._ledger.tally(offsets)
            self.consumed, self.dead = self.consumed.plus(left_out), self.dead.plus(left_out)

    def set_late(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `late`."""
        self.late = self._ledger.tally(offsets)

    def dead_letter(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `dead-letters`."""
        self.dead = self.dead.plus(self._ledger.tally(offsets))

    def route(self, worker: int, usable: Usable, indexes: NDArray[np.int64]) -> None:
        """These of the usable records were packed for a worker, after those before."""
        if not self._packed:  # copied, as they would keep the whole batch
            self._times, self._offsets = usable.times.copy(), usable.batch.offsets.copy()
        self._packed.setdefault(worker, []).append(indexes)

    def records(self, written: Written) -> Iterator[bytes]:
        """The receipt, once it is known where the routed events were written."""
        shares = {worker: sum(map(len, parts)) for worker, parts in self._packed.items()}
        self.routed, windows = self._ledger.routed(self._offsets, self._times, self._packed, written)
        return self._ledger.receipts(self, shares, windows)
