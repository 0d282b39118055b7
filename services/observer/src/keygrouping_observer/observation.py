"""The observer's mind: partials and offsets in, snapshots and state out; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from keygrouping.partial import RecordError
from keygrouping_service.records.record import DeadLetter, Record

from keygrouping_observer import metrics
from keygrouping_observer.counting import Counting
from keygrouping_observer.figures import figures_of
from keygrouping_observer.interval import Interval
from keygrouping_observer.latency import Sample
from keygrouping_observer.offsets import Look
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import describe_latency, moment
from keygrouping_observer.state import RUN_KEY, LaneState, RunState
from keygrouping_observer.timeline import Lane, Timeline
from keygrouping_observer.widths import Row, Widths


class Unusable(NamedTuple):
    """A record of `partials` that is no partial, and what is wrong with it."""

    record: Record
    detail: str


class Observation:
    """All that is known of one run, from the state that was written last.

    What comes out depends only on the records, their order within their partitions, the partitions that were given
    up as silent, and the number of workers; never on when or in what pieces they were read.
    """

    def __init__(
        self,
        settings: ObserverSettings,
        state: RunState,
        rows: Iterable[tuple[bytes, bytes]],
        partitions: Sequence[int],
    ) -> None:
        self._combines = settings.stages == "combine"
        self.workers = 0 if self._combines else state.workers
        """Workers in use, as far as the router tells, or partitions of the input, as each is a worker where these are
        combined; 0: as many as have events."""
        self.capacities: Sequence[float] = () if self._combines else state.capacities
        """Of the first workers in use, as far as the router tells; the others have 1."""
        self.lags: list[int] = []
        self.topics: Mapping[str, str] = {}
        """The names of the topics that events of partials may be in, by their ids."""
        self.unusable: list[Unusable] = []
        self._settings = settings
        self._state = state
        for partition in partitions:
            state.lanes.setdefault(partition, LaneState())
        lanes = [Lane(p, lane.next, lane.again) for p, lane in state.lanes.items()]
        self.timeline = Timeline(lanes, state.closed, settings.interval_ms, round(settings.idle_timeout * 1000))
        self._counting = Counting(settings.job, state.floors)
        self._widths = Widths(settings.run_keys, state.halvings)
        self._widths.restore(rows)
        self._interval = Interval(settings.latency_samples)
        self._counted = self._repeated = 0
        self._events: Counter[int] = Counter()
        self._left_out: dict[tuple[int, int], DeadLetter] = {}
        """What can't be read or is too large and is not counted yet, by partition and last offset."""

    def read(self, partition: int, found: Sequence[Record | DeadLetter], position: int, now: int) -> None:
        """Takes in what was read of a partition of `partials`, and what was left out; see `Timeline.offer`."""
        following = self.timeline.lanes[partition].next
        coming = []
        for each in found:
            record = each if isinstance(each, Record) else each.record._replace(offset=each.after - 1)
            if record.offset >= following:
                coming.append(record)
                if isinstance(each, DeadLetter):
                    self._left_out[partition, record.offset] = each
            elif isinstance(each, Record):
                with suppress(RecordError):
                    self._counting.count(record)
        self.timeline.offer(partition, coming, position, now)

    def look(self, look: Look) -> None:
        """Takes in a look at offsets."""
        self.lags, self.topics = look.lags, look.names
        if self._combines:
            self.workers = len(look.lags)
        self.timeline.look(look.ends, look.at)
        self._counting.look(look)

    def take(self) -> Iterator[None]:
        """Counts what belongs to the open interval, record by record."""
        for _, record in self.timeline.take():
            letter = self._left_out.pop((record.partition, record.offset), None)
            try:
                if letter is None:
                    self._count(record)
                else:
                    self._refuse(letter.record, record.offset, letter.detail)
            except RecordError as error:
                self._refuse(record, record.offset, str(error))
            yield
        self._tell()
        self._counting.forget(self.timeline.has_counted)

    def _count(self, record: Record) -> None:
        counted = self._counting.count(record)
        if counted is None:
            self._repeated += 1
            return
        key, partial = counted
        self._interval.add(key, partial, record.timestamp)
        self._widths.add(key, partial.worker)
        self._counted += 1
        self._events[partial.worker] += partial.events

    def _tell(self) -> None:
        """Passes on what has been counted since the last time: the metrics are too slow for every record."""
        metrics.PARTIALS.labels("repeated").inc(self._repeated)
        metrics.PARTIALS.labels("counted").inc(self._counted)
        for worker in range(self.workers):
            metrics.EVENTS.labels(str(worker))
        for worker, events in self._events.items():
            metrics.EVENTS.labels(str(worker)).inc(events)
        self._repeated = self._counted = 0
        self._events.clear()

    def _refuse(self, record: Record, last: int, detail: str) -> None:
        if last >= self._state.lanes[record.partition].dead_lettered:
            self.unusable.append(Unusable(record, detail))

    def take_unusable(self) -> list[Unusable]:
        """What can't be used and is not in the dead letters yet; to be written with the `state` of now."""
        unusable, self.unusable = self.unusable, []
        for partition, lane in self.timeline.lanes.items():
            kept = self._state.lanes[partition]
            kept.dead_lettered = max(kept.dead_lettered, lane.next)
        return unusable

    @property
    def samples(self) -> Mapping[int, Sequence[Sample]]:
        """The events of the open interval whose latency is to be looked up, by worker."""
        return self._interval.samples.by_worker

    def close(self, latencies: Sequence[float]) -> dict[str, Any] | None:
        """Ends the open interval; its snapshot, or None if no partial was counted in it."""
        span = self.timeline.open
        assert span is not None
        state, interval = self._state, self._interval
        snapshot = None
        if interval.messages:
            totals, measures = interval.totals(self.workers, (span.end - span.start) / 1000, latencies)
            state.totals.add(totals)
            state.since = state.since or span.start
            state.intervals += 1
            snapshot = {
                "v": 1,
                "observer": self._settings.group("observer"),
                "start": moment(span.start),
                "end": moment(span.end),
                **figures_of(totals, measures.keys, measures.pairs, self._settings.service_rate, self.capacities),
                "keys": measures.keys,
                "replication": measures.replication,
                "epoch": interval.epoch,
                "latency": describe_latency(totals, latencies),
                "lags": self.lags,
                "offsets": {p: [state.lanes[p].next, lane.next] for p, lane in self.timeline.lanes.items()},
                "run": self._run(),
            }
        self.timeline.close()
        self._interval = Interval(self._settings.latency_samples)
        self._keep()
        return snapshot

    def _run(self) -> dict[str, Any]:
        state, widths = self._state, self._widths
        return {
            "since": moment(state.since),
            "intervals": state.intervals,
            **figures_of(state.totals, widths.keys, widths.pairs, self._settings.service_rate, self.capacities),
            "keys": round(widths.keys / widths.sample),
            "key_sample": widths.sample,
            "latency": describe_latency(state.totals),
        }

    def _keep(self) -> None:
        state, oldest = self._state, self._counting.oldest()
        state.closed = self.timeline.closed
        # What a router has told is not known any more when there is one again.
        state.workers = 0 if self._combines else self.workers
        state.capacities = list(self.capacities)
        state.halvings = self._widths.halvings
        state.floors = self._counting.floors
        for partition, lane in self.timeline.lanes.items():
            kept = state.lanes[partition]
            kept.next = lane.next
            kept.again = min(lane.next, oldest.get(partition, lane.next))

    def rows(self) -> Iterator[Row]:
        """State records after an interval; to be written in one transaction with its snapshot."""
        yield from self._widths.changes()
        yield self.state

    @property
    def needed(self) -> dict[int, int]:
        """By partition of `partials`: the offset from which on a restart reads; what is before it may be deleted."""
        return {partition: lane.again for partition, lane in self._state.lanes.items()}

    @property
    def state(self) -> Row:
        """The state record of the run: up to the last interval that ended."""
        return RUN_KEY, self._state.encode()
