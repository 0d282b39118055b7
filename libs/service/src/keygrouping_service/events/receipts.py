"""The receipt of each transaction: which offsets of the input it consumed, and what became of their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from aiokafka.errors import KafkaError
from keygrouping.identity import Offsets, Routed, RoutedSums, WindowSums, partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.receipt import NOTHING, SHARES, WINDOWS, Receipt, Tally
from numpy.typing import NDArray

from keygrouping_service.records.protocols import Written

_MOST_WINDOWS = 5000
"""In one record: 160 kB."""

_LOWER_HALF = (1 << 64) - 1

_NONE, _NO_WORKERS = np.empty(0, np.int64), np.empty(0, np.int32)


class Ledger:
    """One session's receipts of one input partition; the ranges follow each other from `first` on.

    `routed` is name and id of the topic that events are routed to; where they are combined it need not exist.
    """

    def __init__(self, topic: str, partition: int, routed: tuple[str, str], job: JobSpec, first: int) -> None:
        self._topic = topic
        self._partition = partition
        self._seeds = partition_seeds(topic, partition)
        self._routed_topic, routed_id = routed
        self._routed = Routed(self._seeds, routed_id, job.window_ms, job.window_offset_ms)
        self._windows = WindowSums(self._seeds, job.window_ms, job.window_offset_ms)
        self._next = first

    def entry(self, skipped_to: int) -> Entry:
        """The account of the next transaction. What lies before `skipped_to` unread stays out of it."""
        return Entry(self, max(self._next, skipped_to))

    def close(self, entry: Entry, after: int) -> None:
        """The entry's transaction commits `after`, where the next one begins."""
        entry.after = self._next = after

    def tally(self, offsets: Sequence[int] | Offsets) -> Tally:
        """Number and sum of the events at these offsets of the input."""
        return tally(np.asarray(offsets, np.int64), self._seeds) if len(offsets) else NOTHING

    def account(
        self, offsets: Offsets, times: NDArray[np.int64], workers: NDArray[np.int32], written: Written
    ) -> RoutedSums:
        """Sums over the routed events; KafkaError if it is not known where each of them was written."""
        topic = self._routed_topic
        runs: list[int] = []
        for (name, worker), batches in written.items():
            if name == topic:
                for first, size in batches:
                    runs += (worker, first, size)
        sums = self._routed.account(offsets, times, workers, np.array(runs, np.int64).reshape(-1, 3))
        if sums is None:
            raise KafkaError(f"the offsets of {len(workers)} events in {topic} are not known: {dict(written)}"[:1000])
        return sums

    def by_window(self, offsets: Offsets, times: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows of `Receipt.windows` for events of the input that are combined where they are."""
        return self._windows.of(offsets, times)

    def combined(self, windows: Mapping[int, Tally]) -> RoutedSums:
        """Sums over all events that were combined where they are, from those of their windows."""
        total, rows = NOTHING, np.zeros(len(windows), WINDOWS)
        for row, (start, window) in enumerate(windows.items()):
            total = total.plus(window)
            rows[row] = (start, window.events, window.hashes >> 64, window.hashes & _LOWER_HALF)
        shares = np.array([(self._partition, total.events)] if total.events else [], SHARES)
        return RoutedSums(total, shares.view(np.int32), rows.view(np.uint64).reshape(-1, 4))

    def receipts(self, entry: Entry, sums: RoutedSums) -> Iterator[bytes]:
        """The records of an account; many windows take several."""
        head, rest = sums.windows[:_MOST_WINDOWS], sums.windows[_MOST_WINDOWS:]
        tallies = (entry.consumed, sums.total, entry.late, entry.dead)
        place, shares = (self._topic, self._partition), sums.shares.tobytes()
        yield Receipt(*place, entry.first, entry.after, *tallies, shares, head.tobytes(), len(rest) > 0).encode()
        nothing = (NOTHING,) * 4
        while len(rest):
            head, rest = rest[:_MOST_WINDOWS], rest[_MOST_WINDOWS:]
            yield Receipt(*place, entry.after, entry.after, *nothing, b"", head.tobytes(), len(rest) > 0).encode()


class Entry:
    """The account of one transaction, kept while its records are packed.

    Events are routed, all at once, or combined, batch after batch: a ledger's entries are all of one kind.
    """

    def __init__(self, ledger: Ledger, first: int) -> None:
        self._ledger = ledger
        self._times = self._offsets = _NONE
        self._workers = _NO_WORKERS
        self._windows: dict[int, Tally] = {}
        self.first = self.after = first
        self.consumed = self.late = self.dead = NOTHING

    def consume(self, offsets: Offsets) -> None:
        """The records at these offsets were read."""
        self.consumed = self.consumed.plus(self._ledger.tally(offsets))

    def leave_out(self, offsets: Sequence[int]) -> None:
        """The records at these offsets were left out by the reader, which has made dead letters of them."""
        if offsets:
            left_out = self._ledger.tally(offsets)
            self.consumed, self.dead = self.consumed.plus(left_out), self.dead.plus(left_out)

    def set_late(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `late`."""
        self.late = self.late.plus(self._ledger.tally(offsets))

    def dead_letter(self, offsets: Sequence[int] | Offsets) -> None:
        """The records at these offsets were packed for `dead-letters`."""
        self.dead = self.dead.plus(self._ledger.tally(offsets))

    def route(self, offsets: Offsets, times: NDArray[np.int64], workers: NDArray[np.int32]) -> None:
        """The records at these offsets, with these times in ms, were all packed, each for this worker."""
        # Copied, as they would keep the whole batch.
        self._times, self._offsets, self._workers = times.copy(), offsets.copy(), workers

    def combine(self, offsets: Offsets, times: NDArray[np.int64]) -> None:
        """The records at these offsets, with these times in ms, are in the partials of their windows."""
        rows = self._ledger.by_window(offsets, times)
        starts = rows[:, 0].view(np.int64).tolist()
        for start, (events, high, low) in zip(starts, rows[:, 1:].tolist(), strict=True):
            self._windows[start] = self._windows.get(start, NOTHING).plus(Tally(events, (high << 64) + low))

    def records(self, written: Written) -> Iterator[bytes]:
        """The receipt, once it is known where the routed events were written."""
        if self._windows:
            return self._ledger.receipts(self, self._ledger.combined(self._windows))
        sums = self._ledger.account(self._offsets, self._times, self._workers, written)
        return self._ledger.receipts(self, sums)
