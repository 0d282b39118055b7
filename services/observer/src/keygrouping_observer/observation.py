"""The observer's mind: partials and offsets in, snapshots and state out; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keygrouping.partial import Partial, RecordError
from keygrouping_service.kafka.owned import Record
from keygrouping_service.kafka.partials import check
from keygrouping_service.observability import metrics

from keygrouping_observer.figures import figures_of
from keygrouping_observer.identities import Identities
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
    up as silent, and the number of workers that the router tells; never on when or in what pieces they were read.
    """

    def __init__(
        self,
        settings: ObserverSettings,
        state: RunState,
        rows: Iterable[tuple[bytes, bytes]],
        partitions: Sequence[int],
    ) -> None:
        self.workers = state.workers
        """Workers in use, as far as the router tells; 0: as many as have events."""
        self.capacities: Sequence[float] = state.capacities
        """Of the first workers in use, as far as the router tells; the others have 1."""
        self.lags: list[int] = []
        self.unusable: list[Unusable] = []
        self._settings = settings
        self._state = state
        for partition in partitions:
            state.lanes.setdefault(partition, LaneState())
        lanes = [Lane(p, lane.next, lane.again) for p, lane in state.lanes.items()]
        self.timeline = Timeline(lanes, state.closed, settings.interval_ms, round(settings.idle_timeout * 1000))
        self._identities = Identities(state.floors)
        self._widths = Widths(settings.run_keys, state.halvings)
        self._widths.restore(rows)
        self._interval = Interval(settings.latency_samples)
        self._ahead: Look | None = None
        self._counted = self._repeated = 0
        self._events: Counter[int] = Counter()

    def read(self, partition: int, records: Sequence[Record], position: int, now: int) -> None:
        """Takes in what was read of a partition of `partials`; see `Timeline.offer`."""
        following = self.timeline.lanes[partition].next
        for record in records:
            if record.offset < following:
                self._remember(record)
        self.timeline.offer(partition, (record for record in records if record.offset >= following), position, now)

    def _remember(self, record: Record) -> None:
        try:
            partial = self._partial_of(record)
        except RecordError:
            return
        assert record.key is not None
        self._identities.is_new(record.key, partial, record.partition, record.offset)

    def look(self, look: Look) -> None:
        """Takes in a look at offsets. One is followed at a time: a reader that lags would never reach the newest."""
        self.lags = look.lags
        self.timeline.look(look.ends, look.at)
        self._ahead = self._ahead or look

    def take(self) -> Iterator[None]:
        """Counts what belongs to the open interval, record by record."""
        for _, record in self.timeline.take():
            try:
                self._count(record)
            except RecordError as error:
                self._refuse(record, str(error))
            yield
        self._tell()
        if self._ahead is not None and self.timeline.has_counted(self._ahead.ends):
            self._identities.raise_floors(self._ahead.committed)
            self._ahead = None

    def _count(self, record: Record) -> None:
        partial = self._partial_of(record)
        key = record.key
        assert key is not None
        if not self._identities.is_new(key, partial, record.partition, record.offset):
            self._repeated += 1
            return
        self._interval.add(key, partial, record.timestamp)
        self._widths.add(key, partial.worker)
        self._counted += 1
        self._events[partial.worker] += partial.events

    def _partial_of(self, record: Record) -> Partial:
        partial = Partial.decode(record.value)
        check(record.key, partial, self._settings.job)
        return partial

    def _tell(self) -> None:
        """Passes on what has been counted since the last time: the metrics are too slow for every record."""
        metrics.OBSERVER_PARTIALS.labels("repeated").inc(self._repeated)
        metrics.OBSERVER_PARTIALS.labels("counted").inc(self._counted)
        for worker in range(self.workers):
            metrics.OBSERVER_EVENTS.labels(str(worker))
        for worker, events in self._events.items():
            metrics.OBSERVER_EVENTS.labels(str(worker)).inc(events)
        self._repeated = self._counted = 0
        self._events.clear()

    def _refuse(self, record: Record, detail: str) -> None:
        if record.offset >= self._state.lanes[record.partition].buried:
            self.unusable.append(Unusable(record, detail))

    def bury(self) -> list[Unusable]:
        """What can't be used and is not in the dead letters yet; to be written with the `state` of now."""
        unusable, self.unusable = self.unusable, []
        for partition, lane in self.timeline.lanes.items():
            kept = self._state.lanes[partition]
            kept.buried = max(kept.buried, lane.next)
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
        state, oldest = self._state, self._identities.oldest()
        state.closed = self.timeline.closed
        state.workers = self.workers
        state.capacities = list(self.capacities)
        state.halvings = self._widths.halvings
        state.floors = dict(self._identities.floors)
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
