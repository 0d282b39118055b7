"""What an app is doing at this moment, for people and for metrics: lanes, memory, which keys wait, which are hot."""

from __future__ import annotations

import base64
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Protocol

import orjson

from keygrouping_app.codecs import Topic
from keygrouping_app.lanes import Lanes
from keygrouping_app.leveling import Plan
from keygrouping_app.moves import HOME, Done, Moves
from keygrouping_app.planning import Balance
from keygrouping_app.scheduler import Waiting
from keygrouping_app.split import Load, split_of, split_words
from keygrouping_app.states import InputKey, States

RANKS = 10
"""Keys that metrics tell of, by rank."""
_MOST_KEYS = 100


class Held(Protocol):
    """What is held of a partition."""

    events: int
    bytes: int
    states: States | None
    topic: Topic
    """Of its events: where they come from is its place, which is another topic if it is a slot."""
    moves: Moves | None

    @property
    def place(self) -> tuple[str, int]: ...
    @property
    def span(self) -> int: ...
    @property
    def gap_room(self) -> int: ...
    @property
    def lag(self) -> int: ...
    @property
    def refusal(self) -> str: ...
    @property
    def paused(self) -> bool: ...


class Restoring(Protocol):
    """A partition that waits for its states: offsets of the changelog. `left` is 0 until it is known.

    `topic`: of the handler whose states they are.
    """

    topic: str
    done: int
    left: int


class Shares(Protocol):
    """What is told of a handler with `split`. `written`: events that this member gave to slots."""

    written: int
    plan: Plan

    @property
    def topic(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def waiting_seconds(self) -> float: ...


class HandsOver(Protocol):
    """What a member does for keys that move, by topic: what it has done, what plans where they go, and how even the
    work of all members is, where something does."""

    done: dict[str, Done]

    @property
    def groupings(self) -> Mapping[str, str]: ...
    @property
    def balances(self) -> Mapping[str, Balance]: ...


@dataclass(frozen=True, slots=True)
class Moving:
    """Keys of a handler that are handed over. `held`: events that wait for the state of their key; `oldest`: seconds
    for which the key is held that is held longest."""

    away: int
    under_way: int
    held: int
    oldest: float

    @classmethod
    def of(cls, held: Iterable[Held]) -> Moving:
        """Of inputs in a member."""
        moves = [each.moves for each in held if each.moves is not None]
        return cls(
            sum(len(each.places) for each in moves),
            sum(len(each.asked) + len(each.called) for each in moves),
            sum(each.held for each in moves),
            max((each.oldest for each in moves), default=0.0),
        )


@dataclass(slots=True)
class Demand:
    """Of one key: `done` are the seconds of its calls of late, those that run included, `events` what has ended.

    `ahead` are the seconds that its calls need still, by the mean of those that have ended: of what runs and waits.
    """

    key: Hashable
    done: float = 0.0
    events: int = 0
    running: bool = False
    ahead: float = 0.0
    waiting: Waiting | None = None

    @property
    def needs(self) -> float:
        """Seconds, one call after another."""
        return self.done + self.ahead


@dataclass(frozen=True, slots=True)
class Work:
    """Of one handler. `oldest` is the age in seconds of the oldest event that waits, by its own time; 0: none waits."""

    lanes: Lanes
    waiting: list[Waiting]
    """The keys whose first event has waited longest, that one first."""
    oldest: float

    @property
    def busy(self) -> int:
        """Lanes in which a call runs; calls that wait for a thread are in none."""
        return min(self.lanes.handler.concurrency, len(self.lanes.scheduler.running))

    @classmethod
    def of(cls, lanes: Lanes, now: float, keys: int) -> Work:
        """At this moment; `now` is the event loop's time."""
        waiting = list(lanes.scheduler.waiting())
        times = [each.first.time for each in waiting if each.first.time >= 0]
        oldest = max(0.0, time.time() - min(times) / 1000) if times else 0.0
        return cls(lanes, nlargest(keys, waiting, key=lambda each: now - each.first.since), oldest)


def keys_at_work(lanes: Lanes, now: float) -> list[Demand]:
    """The keys that have had calls of late, or have events: what they need, most first; None is what has no order."""
    costs = lanes.costs
    mean = costs.seconds / costs.events if costs.events else 0.0
    found = {key: Demand(key, seconds, events) for key, seconds, events in costs.by_key()}
    means = {key: each.done / each.events for key, each in found.items() if each.events}
    for call in lanes.scheduler.running:
        key, took = call.queue.key, now - call.started
        each = found.setdefault(key, Demand(key))
        each.running = True
        each.done += took
        each.ahead += max(0.0, len(call.events) * means.get(key, mean) - took)
    for waiting in lanes.scheduler.waiting():
        each = found.setdefault(waiting.key, Demand(waiting.key))
        each.waiting = waiting if each.waiting is None else _together(each.waiting, waiting)
        each.ahead += waiting.events * means.get(waiting.key, mean)
    return sorted(found.values(), key=lambda each: -each.needs)


def load_of(lanes: Lanes, keys: Iterable[Demand], now: float) -> Load:
    """All that a handler has to do: what it did of late, and what is in memory."""
    keys = list(keys)
    running = sum(now - call.started for call in lanes.scheduler.running)
    seconds = lanes.costs.seconds + running + sum(each.ahead for each in keys)
    ordered = lanes.handler.order == "key"
    hottest = max((each.needs for each in keys if ordered and each.key is not None), default=0.0)
    return Load(seconds, hottest, lanes.handler.concurrency)


def as_json(
    lanes: Iterable[Lanes],
    held: Iterable[Held],
    now: float,
    shares: Shares | None,
    moving: HandsOver,
    restoring: Iterable[Restoring],
) -> list[dict[str, object]]:
    """What a member does now, of each handler: which keys wait or run, which are hot, and what a split would give.

    `restoring`: its partitions that wait for their states.
    """
    held, restoring = list(held), list(restoring)
    return [
        _handler(each, held, now)
        | {
            "sharing": _sharing(each, shares),
            "moves": _moves(each, held, moving),
            "restoring": _restoring(each, restoring),
        }
        for each in lanes
    ]


def _restoring(lanes: Lanes, restoring: Iterable[Restoring]) -> dict[str, int] | None:
    """Offsets of the changelog that were read and are to be. None: nothing of the handler waits for its states."""
    mine = [each for each in restoring if each.topic == lanes.handler.topic.name]
    if not mine:
        return None
    return {
        "partitions": len(mine),
        "done": sum(each.done for each in mine),
        "left": sum(each.left for each in mine),
    }


def _moves(lanes: Lanes, held: Iterable[Held], moving: HandsOver) -> dict[str, object] | None:
    """None: its keys stay where they are."""
    topic = lanes.handler.topic.name
    if (mine := moving.done.get(topic)) is None:
        return None
    inputs = [each for each in held if each.topic.name == topic and each.moves is not None]
    now = Moving.of(inputs)
    return {
        "grouping": moving.groupings[topic],
        "done": mine.moves,
        "bytes": mine.bytes,
        "seconds": round(mine.seconds, 3),
        "longest": round(mine.longest, 3),
        "away": now.away,
        "under_way": now.under_way,
        "held_events": now.held,
        "oldest": round(now.oldest, 3),
        **_balance(moving.balances.get(topic, Balance())),
        "keys": [told for each in inputs for told in _places(each)][:_MOST_KEYS],
    }


def _balance(balance: Balance) -> dict[str, object]:
    """λ before the last plan, after it as planned, and now; None: not known."""
    made, now = balance.promise, balance.now
    planned = made.version > 0
    return {
        "plan": {"keys": made.keys, "age": round(max(0.0, time.time() - made.at), 3)} if planned else None,
        "imbalance": {
            "before": round(made.before, 3) if planned else None,
            "after": round(made.after, 3) if planned else None,
            "now": None if now is None else round(now, 3),
        },
    }


def _places(held: Held) -> Iterator[dict[str, object]]:
    assert held.moves is not None
    for group, target in held.moves.asked.items():
        yield {
            "key": _text(group),
            "partition": held.place[1],
            "slot": _slot(held.moves.of(group)),
            "to": _slot(target),
        }
    for group, place in held.moves.places.items():
        if group not in held.moves.asked:
            to = {} if place.target is None else {"to": _slot(place.target)}
            yield {"key": _text(group), "partition": held.place[1], "slot": place.slot, **to}


def _slot(place: int) -> int | None:
    return None if place == HOME else place


def _sharing(lanes: Lanes, shares: Shares | None) -> dict[str, object] | None:
    """None: its hot keys are not shared."""
    if shares is None or shares.topic != lanes.handler.topic.name:
        return None
    return {
        "written": shares.written,
        "slots": shares.slots,
        "slot_seconds": round(shares.waiting_seconds, 3),
        "imbalance": {"before": round(shares.plan.before, 3), "after": round(shares.plan.after, 3)},
    }


def states_of(key: bytes, held: Iterable[Held], lanes: Iterable[Lanes]) -> list[dict[str, object]]:
    """The states that a key has in a member, one of each handler; what is not JSON is told as base64.

    `lanes`: those of all handlers, which tell whether a state can be read.
    """
    by_topic = {each.handler.topic.name: each for each in lanes}
    return [
        {
            "topic": each.place[0],
            "partition": each.place[1],
            "key": _text(group),
            "changed": kept.time,
            "version": kept.version,
            "bytes": len(kept.data),
            "unreadable": by_topic[each.topic.name].unreadable(kept),
            **_shown(kept.data),
        }
        for each in held
        if each.states is not None
        for group, kept in each.states.look(key)
    ]


def _shown(data: bytes) -> dict[str, object]:
    try:
        return {"state": orjson.loads(data)}
    except ValueError:
        return {"base64": base64.b64encode(data).decode()}


def _handler(lanes: Lanes, held: Iterable[Held], now: float) -> dict[str, object]:
    work = Work.of(lanes, now, _MOST_KEYS)
    circuit = lanes.scheduler.circuit
    topic = lanes.handler.topic.name
    mine = [each for each in held if each.topic.name == topic]
    return {
        "topic": topic,
        "handler": lanes.handler.name,
        "lanes": lanes.handler.concurrency,
        "busy": work.busy,
        "breaker": "closed" if circuit is None else circuit.state,
        "ended": lanes.tally.ended,
        "retries": lanes.scheduler.retried,
        "dead_letters": sum(lanes.tally.dead.values()),
        "oldest_event_age": round(work.oldest, 3),
        "held_events": sum(each.events for each in mine),
        "held_bytes": sum(each.bytes for each in mine),
        "gaps": {_place(each, topic): each.span for each in mine},
        "refused": {_place(each, topic): each.refusal for each in mine if each.refusal},
        **_heat(lanes, now),
        "running": [
            {"key": _text(call.queue.key), "seconds": round(now - call.started, 3), "event": call.events[0].identity}
            for call in list(lanes.scheduler.running)[:_MOST_KEYS]
        ],
        "waiting": [
            {
                "key": _text(each.key),
                "events": each.events,
                "seconds": round(now - each.first.since, 3),
                "for": each.what,
                "tries": each.first.tries,
                "event": each.first.identity,
            }
            for each in work.waiting
        ],
    }


def _place(held: Held, topic: str) -> str:
    """The number of a partition of the handler's topic, or what slot it is."""
    return str(held.place[1]) if held.place[0] == topic else f"slot {held.place[1]}"


def _heat(lanes: Lanes, now: float) -> dict[str, object]:
    span = lanes.costs.span(now)
    keys = keys_at_work(lanes, now)
    load = load_of(lanes, keys, now)
    split = split_of([load])
    return {
        "span": round(span, 3),
        "rate": round(lanes.costs.events / span, 3) if span else 0.0,
        "load": {"seconds": round(load.seconds, 6), "hottest": round(load.hottest, 6)},
        "split": {
            "now": round(split.now, 6),
            "even": round(split.lanes, 6),
            "gain": round(split.gain, 3),
            "words": split_words([load], span),
        },
        "keys": [
            {
                "key": _text(each.key),
                "ordered": each.key is not None and lanes.handler.order == "key",
                "needs": round(each.needs, 6),
                "share": round(each.needs / load.seconds, 6) if load.seconds else 0.0,
                "ended": each.events,
                "running": each.running,
                "waiting": 0 if each.waiting is None else each.waiting.events,
                "wait": 0.0 if each.waiting is None else round(now - each.waiting.first.since, 3),
                "for": None if each.waiting is None else each.waiting.what,
            }
            for each in keys[:_MOST_KEYS]
        ],
    }


def _together(one: Waiting, other: Waiting) -> Waiting:
    """What has no order waits in several places."""
    first = min(one, other, key=lambda each: each.first.since)
    return Waiting(one.key, one.events + other.events, first.first, first.what)


def _text(key: object) -> str | None:
    if isinstance(key, InputKey):
        key = key.key
    if isinstance(key, bytes):
        return key.decode(errors="backslashreplace")
    return None if key is None else str(key)
