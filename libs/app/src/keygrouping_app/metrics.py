"""An app's metrics, in a registry of its own: what is counted is read when it is asked for, and costs nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate
from typing import Any, Protocol

from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from keygrouping_app.kafka.changelog import Restoring
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.lanes import Lanes
from keygrouping_app.moves import Done
from keygrouping_app.overview import RANKS, HandsOver, Held, Moving, Shares, Work, keys_at_work
from keygrouping_app.planning import Balance
from keygrouping_app.states import States
from keygrouping_app.tally import BUCKETS, Tally

Kind = Callable[..., Any]

PREFIX = "keygrouping_app_"
"""How the names begin of what an app alone has."""

SEEN = "keygrouping_input_seen_timestamp_seconds"
"""The same of an app as of the services: so the alerts on an outage of Kafka are about both."""

DEFINITIONS: dict[str, tuple[Kind, str, tuple[str, ...]]] = {
    "ready": (
        GaugeMetricFamily,
        "1 if the group has given the member its partitions; `until` is where the app ends, empty if it runs on.",
        ("until",),
    ),
    "events_total": (CounterMetricFamily, "Events that have ended: handled, or dead letters.", ("topic",)),
    "handler_seconds": (HistogramMetricFamily, "How long calls of the handler took.", ("topic", "outcome")),
    "lanes": (GaugeMetricFamily, "Lanes of the handler.", ("topic",)),
    "busy_lanes": (GaugeMetricFamily, "Lanes in which a call runs now.", ("topic",)),
    "held_events": (GaugeMetricFamily, "Events in memory that have not ended.", ("topic",)),
    "held_bytes": (GaugeMetricFamily, "Bytes of keys and values in memory that have not ended.", ("topic",)),
    "lag_records": (
        GaugeMetricFamily,
        "Records of the member's partitions that have not ended: those in memory and those still to be read.",
        ("topic",),
    ),
    "paused_partitions": (
        GaugeMetricFamily,
        "Partitions of the member that are not read any further, because memory or their gap is full.",
        ("topic",),
    ),
    "oldest_event_age_seconds": (
        GaugeMetricFamily,
        "Age of the oldest event that waits in memory, by its own time; 0 if none waits.",
        ("topic",),
    ),
    "key_wait_seconds": (
        GaugeMetricFamily,
        "How long the first event of the key has waited in memory, of the keys that wait longest.",
        ("topic", "rank"),
    ),
    "key_load_ratio": (
        GaugeMetricFamily,
        "Seconds of the key's calls per second, in the last 30 to 60 s, of the keys with most: 1 is all that a key can "
        "have while order holds.",
        ("topic", "rank"),
    ),
    "gap_offsets": (
        GaugeMetricFamily,
        "Offsets between the first event that has not ended, which is committed, and the last that was read.",
        ("topic", "partition"),
    ),
    "gap_room_offsets": (
        GaugeMetricFamily,
        "How many further events may be read before the gap in the commit's metadata is full.",
        ("topic", "partition"),
    ),
    "refused_partitions": (
        GaugeMetricFamily,
        "Partitions of which nothing is committed, as a broker refuses for good what belongs to it, or of which it "
        "refuses a state that no event has made.",
        ("topic",),
    ),
    "retries_total": (CounterMetricFamily, "Further tries of events that failed.", ("topic",)),
    "dead_letters_total": (CounterMetricFamily, "Events that failed for good.", ("topic", "reason")),
    "processes_replaced_total": (
        CounterMetricFamily,
        "Processes of a handler with `processes` that were replaced: one died, or its call was late.",
        ("topic", "why"),
    ),
    "states": (GaugeMetricFamily, "Keys of the member's partitions that have a state.", ("topic",)),
    "state_bytes": (GaugeMetricFamily, "Bytes of these states and their keys.", ("topic",)),
    "largest_state_bytes": (
        GaugeMetricFamily,
        "Bytes of the largest state that was kept or restored since the member has its partition.",
        ("topic",),
    ),
    "restoring_partitions": (
        GaugeMetricFamily,
        "Partitions of the member that wait for their states; nothing of them is handled until then.",
        ("topic",),
    ),
    "restore_left_offsets": (
        GaugeMetricFamily,
        "Offsets of the changelog that are still to be read by these partitions.",
        ("topic",),
    ),
    "standby_partitions": (
        GaugeMetricFamily,
        "Partitions of other members of whose states this one keeps a copy.",
        ("topic",),
    ),
    "standby_left_offsets": (
        GaugeMetricFamily,
        "Offsets of the changelog that are still to be read by these copies.",
        ("topic",),
    ),
    "moved_keys": (
        GaugeMetricFamily,
        "Keys of the member's inputs that are at slots, with their states.",
        ("topic",),
    ),
    "moving_keys": (
        GaugeMetricFamily,
        "Keys of the member's inputs that are being handed over.",
        ("topic",),
    ),
    "move_held_events": (
        GaugeMetricFamily,
        "Events that wait until the state of their key is where it is to be.",
        ("topic",),
    ),
    "move_oldest_seconds": (
        GaugeMetricFamily,
        "For how long the key is held that is held longest; 0 if none is.",
        ("topic",),
    ),
    "moves_total": (CounterMetricFamily, "Keys of the member's inputs that were handed over.", ("topic",)),
    "move_held_seconds_total": (
        CounterMetricFamily,
        "For how long these keys were held, from the order to what was committed, all together.",
        ("topic",),
    ),
    "moved_bytes_total": (CounterMetricFamily, "Bytes of states that the member has sent elsewhere.", ("topic",)),
    "surplus_events_total": (
        CounterMetricFamily,
        "Events of hot keys that the member gave to others, by its handler with `split`.",
        ("topic",),
    ),
    "slot_load_seconds": (
        GaugeMetricFamily,
        "Seconds of calls that events need which others gave to the member and which have not ended.",
        ("topic",),
    ),
    "imbalance_ratio": (
        GaugeMetricFamily,
        "λ, the largest load of a member over the mean: with `whole` keys, as they come, and with hot ones `shared` as "
        "planned; of keys that move, `before` the last plan, as `planned`, and as it is `now`.",
        ("topic", "keys"),
    ),
    "breaker_state": (GaugeMetricFamily, "1 for the state that the handler's breaker is in.", ("topic", "state")),
}
"""Kind, meaning and labels by name, without prefix; all have the label `group` besides."""

_STATES = ("closed", "open", "probing")


class Member(Protocol):
    """Whose metrics are told."""

    @property
    def name(self) -> str: ...
    @property
    def until(self) -> str: ...
    @property
    def joined(self) -> bool: ...
    @property
    def seen(self) -> float: ...
    @property
    def lanes(self) -> Sequence[Lanes]: ...
    @property
    def held(self) -> Sequence[Held]: ...
    @property
    def restoring(self) -> Mapping[TopicPartition, Restoring]: ...
    @property
    def standbys(self) -> Standbys: ...
    @property
    def sharing(self) -> Shares | None: ...
    @property
    def moving(self) -> HandsOver: ...


class Metrics(Collector):
    """Of one member; those of its process among them, by their usual names."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def collect(self) -> Iterator[Metric]:
        """All metrics at this moment; to be called where nothing else runs, on the event loop."""
        found = _Found(self._member.name)
        now = asyncio.get_running_loop().time()
        found.add("ready", float(self._member.joined), self._member.until)
        held = self._member.held
        for lanes in self._member.lanes:
            topic = lanes.handler.topic.name
            _of_lanes(found, topic, Work.of(lanes, now, RANKS), now)
            _of_partitions(found, topic, [each for each in held if each.topic.name == topic])
            _of_states(found, topic, [each.states for each in held if each.topic.name == topic])
            left = [each.left for each in self._member.restoring.values() if each.topic == topic]
            found.add("restoring_partitions", len(left), topic)
            found.add("restore_left_offsets", sum(left), topic)
            behind = self._member.standbys.left_of(topic)
            found.add("standby_partitions", len(behind), topic)
            found.add("standby_left_offsets", sum(behind), topic)
            _of_shares(found, topic, self._member.sharing)
            mine = [each for each in held if each.topic.name == topic]
            _of_moves(found, topic, Moving.of(mine), self._member.moving.done.get(topic) or Done())
            _of_balance(found, topic, self._member.moving.balances.get(topic, Balance()))
        yield from found.families.values()
        seen = GaugeMetricFamily(
            SEEN, "When the member last saw its partitions in Kafka, s since 1970.", labels=["group"]
        )
        seen.add_metric([self._member.name], self._member.seen)
        yield seen

    def text(self) -> bytes:
        """In Prometheus's text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Now(list(self.collect())))
        ProcessCollector(registry=registry)
        return generate_latest(registry)


class _Found:
    """All families, to which values are added."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.families = {
            name: kind(PREFIX + name, meaning, labels=("group", *labels))
            for name, (kind, meaning, labels) in DEFINITIONS.items()
        }

    def add(self, name: str, value: Any, *labels: str, **more: Any) -> None:
        self.families[name].add_metric([self._group, *labels], value, **more)


class _Now(Collector):
    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def _of_lanes(found: _Found, topic: str, work: Work, now: float) -> None:
    lanes = work.lanes
    scheduler = lanes.scheduler
    _of_tally(found, topic, lanes.tally)
    found.add("lanes", lanes.handler.concurrency, topic)
    found.add("busy_lanes", work.busy, topic)
    found.add("oldest_event_age_seconds", work.oldest, topic)
    found.add("retries_total", scheduler.retried, topic)
    for rank, each in enumerate(work.waiting, 1):
        found.add("key_wait_seconds", now - each.first.since, topic, str(rank))
    span = max(1.0, lanes.costs.span(now))
    done = nlargest(RANKS, (each.done for each in keys_at_work(lanes, now) if each.key is not None))
    for rank, seconds in enumerate(done, 1):
        found.add("key_load_ratio", seconds / span, topic, str(rank))
    if scheduler.circuit is not None:
        for state in _STATES:
            found.add("breaker_state", float(scheduler.circuit.state == state), topic, state)


def _of_partitions(found: _Found, topic: str, held: Sequence[Held]) -> None:
    found.add("held_events", sum(each.events for each in held), topic)
    found.add("held_bytes", sum(each.bytes for each in held), topic)
    found.add("lag_records", sum(each.lag for each in held), topic)
    found.add("refused_partitions", sum(bool(each.refusal) for each in held), topic)
    found.add("paused_partitions", sum(each.paused for each in held), topic)
    for each in held:
        found.add("gap_offsets", each.span, each.place[0], str(each.place[1]))
        found.add("gap_room_offsets", each.gap_room, each.place[0], str(each.place[1]))


def _of_states(found: _Found, topic: str, held: Sequence[States | None]) -> None:
    states = [each for each in held if each is not None]
    found.add("states", sum(map(len, states)), topic)
    found.add("state_bytes", sum(each.size for each in states), topic)
    found.add("largest_state_bytes", max((each.largest for each in states), default=0), topic)


def _of_shares(found: _Found, topic: str, shares: Shares | None) -> None:
    mine = shares if shares is not None and shares.topic == topic else None
    found.add("surplus_events_total", mine.written if mine else 0, topic)
    found.add("slot_load_seconds", mine.waiting_seconds if mine else 0.0, topic)
    if mine is not None:
        found.add("imbalance_ratio", mine.plan.before, topic, "whole")
        found.add("imbalance_ratio", mine.plan.after, topic, "shared")


def _of_moves(found: _Found, topic: str, now: Moving, done: Done) -> None:
    found.add("moved_keys", now.away, topic)
    found.add("moving_keys", now.under_way, topic)
    found.add("move_held_events", now.held, topic)
    found.add("move_oldest_seconds", now.oldest, topic)
    found.add("moves_total", done.moves, topic)
    found.add("move_held_seconds_total", done.seconds, topic)
    found.add("moved_bytes_total", done.bytes, topic)


def _of_balance(found: _Found, topic: str, balance: Balance) -> None:
    if balance.promise.version:
        found.add("imbalance_ratio", balance.promise.before, topic, "before")
        found.add("imbalance_ratio", balance.promise.after, topic, "planned")
    if balance.now is not None:
        found.add("imbalance_ratio", balance.now, topic, "now")


def _of_tally(found: _Found, topic: str, tally: Tally) -> None:
    bounds = (*map(str, BUCKETS), "+Inf")
    for outcome, calls in tally.calls.items():
        buckets = list(zip(bounds, accumulate(calls), strict=True))
        found.add("handler_seconds", buckets, topic, outcome, sum_value=tally.seconds[outcome])
    found.add("events_total", tally.ended, topic)
    for reason, events in tally.dead.items():
        found.add("dead_letters_total", events, topic, reason)
    for why, processes in tally.replaced.items():
        found.add("processes_replaced_total", processes, topic, why)
