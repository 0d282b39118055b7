"""Order per key, turns over keys, retries and withdrawal, in virtual time, by checks of their own."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app.breaker import Breaker
from keygrouping_app.codecs import Topic
from keygrouping_app.events import Event, Record, Source, event_of
from keygrouping_app.scheduler import Call, Failure, Scheduler

BROKEN = Failure("failed", "it broke")
POISON = Failure("undecodable", "not JSON", retry=False)
Keys = list[str | None]

keys_of_events = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=60)


def events(keys: Keys, of: Source | None = None, first: int = 0) -> list[Event]:
    source = Source(Topic("t")) if of is None else of
    return [
        event_of(Record("t", 0, first + number, 0, None if key is None else key.encode(), b"v"), source)
        for number, key in enumerate(keys)
    ]


class World:
    """Runs a scheduler in virtual time: a call takes the seconds of its slowest event, and fails as often as said."""

    def __init__(self, scheduler: Scheduler, seconds: dict[int, float], failing: dict[int, int] | None = None) -> None:
        self.scheduler = scheduler
        self.seconds = seconds
        self.failing = dict(failing or {})
        self.now = 0.0
        self.spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.ended: list[int] = []
        self.most = 0
        self._running: list[tuple[float, int, Call]] = []
        self._calls = 0

    def run(self, until: float = float("inf")) -> World:
        while True:
            while (call := self.scheduler.start(self.now)) is not None:
                self._calls += 1
                cost = max(self.seconds.get(event.offset, 1.0) for event in call.events)
                self._running.append((self.now + cost, self._calls, call))
            self.most = max(self.most, len(self._running))
            times = [end for end, _, _ in self._running]
            if (due := self.scheduler.next_start()) is not None:
                times.append(due)
            if not times or min(times) > until:
                return self
            self.now = min(times)
            for entry in sorted(self._running, key=lambda entry: entry[:2]):
                if entry[0] <= self.now:
                    self._running.remove(entry)
                    self._end(entry[2])

    def _end(self, call: Call) -> None:
        for event in call.events:
            self.spans[event.offset].append((call.started, self.now))
        broken = [event.offset for event in call.events if self.failing.get(event.offset, 0) > 0]
        if len(call.events) == 1:
            for offset in broken:
                self.failing[offset] -= 1
        self.ended += [event.offset for event in self.scheduler.finish(call, self.now, BROKEN if broken else None)]


@given(keys_of_events, st.integers(1, 8), st.sampled_from([1, 3, 100]), st.randoms(), st.booleans())
def test_all_end_once_and_the_events_of_a_key_in_order(
    keys: Keys, lanes: int, batch: int, chance: random.Random, failing: bool
) -> None:
    seconds = {offset: chance.choice([0.0, 0.1, 1.0, 7.0]) for offset in range(len(keys))}
    failures = {offset: chance.randrange(5) for offset in range(len(keys)) if failing}
    given_events = events(keys)
    scheduler = Scheduler(concurrency=lanes, batch=batch, retries=3, delay=lambda tries: 2.0**tries)
    scheduler.offer(given_events)
    world = World(scheduler, seconds, failures).run()
    assert sorted(world.ended) == list(range(len(keys)))
    assert world.most <= lanes
    assert scheduler.idle
    assert not scheduler._queues
    assert scheduler._waiting == 0
    held = {event.source.events + event.source.bytes + event.source.running for event in given_events}
    assert held <= {0}
    for key in {key for key in keys if key is not None}:
        mine = [offset for offset, other in enumerate(keys) if other == key]
        assert [offset for offset in world.ended if offset in mine] == mine
        for before, after in pairwise(mine):
            last_end, next_start = world.spans[before][-1], world.spans[after][-1]
            assert last_end[1] <= next_start[0] or (batch > 1 and last_end == next_start)


class TakingTurns(Scheduler):
    """No key goes on at once as it is behind."""

    def _is_behind(self, _: object) -> bool:
        return False


@given(st.integers(2, 6), st.integers(1, 40), st.randoms())
def test_a_key_that_hangs_or_is_hot_keeps_nobody_waiting(lanes: int, others: int, chance: random.Random) -> None:
    """The others end as they would in turns without the hanging key on one lane less; none of them is behind it."""
    cold: Keys = [chance.choice("bcdefgh") for _ in range(others)]
    seconds = {offset: chance.choice([0.5, 1.0, 2.0]) for offset in range(others)}
    alone = TakingTurns(concurrency=lanes - 1)
    alone.offer(events(cold))
    without = World(alone, seconds).run()
    both = Scheduler(concurrency=lanes)
    both.offer(events(["hot"] * 1000, first=10_000))
    both.offer(events(cold))
    world = World(both, seconds | {10_000: 1e9}).run(until=1e8)
    assert sorted(world.ended) == list(range(others))
    assert {offset: spans[-1] for offset, spans in world.spans.items()} == {
        offset: spans[-1] for offset, spans in without.spans.items()
    }


@given(st.integers(1, 5), st.integers(1, 30))
def test_keys_take_turns(lanes: int, cold: int) -> None:
    """A key that comes waits for one event of every other key at most, however many events the hot ones have."""
    scheduler = Scheduler(concurrency=lanes)
    scheduler.offer(events([*["hot"] * 1000, *["warm"] * 500]))
    newcomers: Keys = [f"cold{number}" for number in range(cold)]
    scheduler.offer(events(newcomers, first=5000))
    world = World(scheduler, {}).run(until=cold + 2)
    assert {offset for offset in world.ended if offset >= 5000} == set(range(5000, 5000 + cold))


def test_a_key_that_is_far_behind_waits_for_no_turn() -> None:
    """All end when its own events have ended, one after another, once each other key has had a turn."""
    lanes, hot, cold = 64, 300, 1000
    scheduler = Scheduler(concurrency=lanes)
    scheduler.offer(events([*["hot"] * hot, *[f"cold{number % cold}" for number in range(5 * cold)]]))
    assert World(scheduler, {}).run().now <= hot + cold / lanes


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_keys_that_are_far_behind_leave_half_of_the_lanes_to_the_others(lanes: int) -> None:
    """What comes starts as if there were half of the lanes and every other key had one event."""
    hot, cold = 2 * lanes, 50
    scheduler = Scheduler(concurrency=lanes)
    scheduler.offer(events([f"hot{number % hot}" for number in range(hot * 20)]))
    scheduler.offer(events(["hottest"] * 2000, first=50_000))
    world = World(scheduler, {}).run(until=5)
    scheduler.offer(events([f"cold{number}" for number in range(cold)], first=200_000))
    world.run(until=5 + (cold + hot) / (lanes // 2) + 2)
    assert {offset for offset in world.ended if offset >= 200_000} == set(range(200_000, 200_000 + cold))


@pytest.mark.parametrize(("lanes", "offsets"), [(1, [2]), (2, [1, 2])])
def test_a_key_goes_on_at_once_only_where_there_is_a_lane_for_all_others(lanes: int, offsets: list[int]) -> None:
    """Offset 2 is of another key, and waits when the call of 0 ends, behind which 1 is of the same key."""
    scheduler = Scheduler(concurrency=lanes)
    scheduler.offer(events(["a", "a"]))
    first = scheduler.start(0.0)
    assert first is not None
    scheduler.offer(events(["b"], first=2))
    scheduler.finish(first, 1.0)
    started = [call for _ in range(lanes) if (call := scheduler.start(1.0)) is not None]
    assert [call.events[0].offset for call in started] == offsets


def test_events_without_order_run_side_by_side() -> None:
    for scheduler, keys in (
        (Scheduler(concurrency=4, ordered=False), ["a"] * 8),
        (Scheduler(concurrency=4), [None] * 8),
    ):
        scheduler.offer(events(list(keys)))
        world = World(scheduler, {}).run()
        assert world.most == 4
        assert world.now == 2.0


def test_other_keys_and_no_lane_wait_for_the_next_try() -> None:
    scheduler = Scheduler(concurrency=1, retries=1, delay=lambda _: 100.0)
    scheduler.offer(events(["a", "a", "b", "b"]))
    world = World(scheduler, {}, {0: 1}).run()
    assert world.ended == [2, 3, 0, 1]
    assert world.spans[0] == [(0.0, 1.0), (101.0, 102.0)]
    assert scheduler.retried == 1


def test_what_another_try_cannot_help_is_not_tried_again() -> None:
    scheduler = Scheduler(concurrency=1, retries=5)
    scheduler.offer(events(["a"]))
    call = scheduler.start(0.0)
    assert call is not None
    assert [event.offset for event in scheduler.finish(call, 1.0, POISON)] == [0]


def test_of_a_batch_that_fails_only_the_event_to_blame_fails_for_good() -> None:
    scheduler = Scheduler(concurrency=2, batch=10, retries=1, delay=lambda _: 5.0)
    scheduler.offer(events(["a"] * 5))
    world = World(scheduler, {}, {2: 9}).run()
    assert world.ended == [0, 1, 2, 3, 4]
    assert [len(world.spans[offset]) for offset in range(5)] == [2, 2, 3, 2, 2]


def test_the_events_of_a_large_batch_that_fails_cost_no_more_each_than_those_of_a_small_one() -> None:
    """32 times as many took some 300 times as long when all that waits moved for each that is put back or taken."""
    small = min(seconds_alone(5_000) for _ in range(3))
    assert seconds_alone(160_000) < 80 * small


def seconds_alone(count: int) -> float:
    """CPU time for a batch of so many that fails, after which each event is tried by itself."""
    scheduler = Scheduler(concurrency=1, batch=count)
    scheduler.offer(events(["a"] * count))
    (call,) = scheduler.start_all(0.0)
    began = time.thread_time()
    scheduler.finish(call, 0.0, BROKEN)
    for offset in range(count):
        (call,) = scheduler.start_all(0.0)
        assert [event.offset for event in call.events] == [offset]
        scheduler.finish(call, 0.0)
    return time.thread_time() - began


def test_a_batch_is_of_one_source() -> None:
    one, two = Source(Topic("t")), Source(Topic("t"))
    scheduler = Scheduler(concurrency=9, batch=10)
    scheduler.offer(events(["a", "a"], one) + events(["a"], two, 10) + events(["a"], one, 20))
    sizes = []
    while (call := scheduler.start(0.0)) is not None:
        sizes.append(len(call.events))
        scheduler.finish(call, 0.0)
    assert sizes == [2, 1, 1]


@given(keys_of_events, keys_of_events, st.integers(0, 30), st.randoms(), st.sampled_from([1, 4]))
@settings(max_examples=200)
def test_nothing_of_a_withdrawn_source_starts_and_what_runs_ends_before_its_key_goes_on(
    gone: Keys, stays: Keys, seconds: int, chance: random.Random, batch: int
) -> None:
    leaving, staying = Source(Topic("t")), Source(Topic("t"))
    both = events(gone, leaving) + events(stays, staying, 1000)
    chance.shuffle(both)
    scheduler = Scheduler(concurrency=3, batch=batch, retries=2, delay=lambda _: 3.0)
    scheduler.offer(both)
    failures = {event.offset: chance.randrange(4) for event in both}
    world = World(scheduler, {}, failures).run(until=float(seconds))
    scheduler.withdraw(leaving)
    still = {event.offset for call in scheduler.running for event in call.events}
    before = set(world.ended)
    world.run()
    assert {offset for offset in world.ended if offset < 1000} <= before | still
    assert {offset for offset, spans in world.spans.items() if offset < 1000 and spans[-1][1] > seconds} <= still
    assert sorted(offset for offset in world.ended if offset >= 1000) == list(range(1000, 1000 + len(stays)))
    assert leaving.events == leaving.bytes == leaving.running == 0
    assert scheduler.idle
    assert not scheduler._queues


@pytest.mark.parametrize(("failure", "batch", "ends"), [(POISON, 1, 1), (BROKEN, 1, 0), (POISON, 2, 0), (None, 2, 2)])
def test_what_fails_as_its_source_goes_ends_if_no_try_of_its_next_owner_can_help(
    failure: Failure | None, batch: int, ends: int
) -> None:
    leaving = Source(Topic("t"))
    scheduler = Scheduler(concurrency=1, batch=batch, retries=2)
    scheduler.offer(events(["a"] * batch, leaving))
    call = scheduler.start(0.0)
    assert call is not None
    scheduler.withdraw(leaving)
    assert len(scheduler.finish(call, 1.0, failure)) == ends
    assert leaving.events == leaving.running == 0
    assert scheduler.idle


@given(keys_of_events, keys_of_events, st.integers(1, 6), st.integers(0, 3), st.sampled_from([1, 2, 100]))
def test_many_calls_at_once_start_and_end_as_they_would_one_after_another(
    first: Keys, then: Keys, lanes: int, ahead: int, batch: int
) -> None:
    """The same calls in the same order, the same events ended, and the same is held and waits."""
    together, single = (Scheduler(concurrency=lanes, batch=batch) for _ in range(2))
    sources = [Source(Topic("t")), Source(Topic("t"))]
    for scheduler, source in zip((together, single), sources, strict=True):
        scheduler.offer(events(first, source) + events(then, Source(Topic("u")), 1000))
    while True:
        calls, others = together.start_all(0.0, ahead), []
        while (call := single.start(0.0, ahead)) is not None:
            others.append(call)
        assert [offsets(call.events) for call in calls] == [offsets(call.events) for call in others]
        if not calls:
            break
        chosen = calls[: 1 + len(calls) // 2]
        ended = [event for each in together.succeed(chosen) for event in each]
        alone = [event for call in others[: len(chosen)] for event in single.finish(call, 1.0)]
        assert sorted(offsets(ended)) == sorted(offsets(alone))
        for call in calls[len(chosen) :]:
            together.finish(call, 1.0)
        for call in others[len(chosen) :]:
            single.finish(call, 1.0)
        held = [(source.events, source.bytes, source.running) for source in sources]
        assert held[0] == held[1]
    assert together.idle
    assert not together._queues
    assert together._waiting == 0


def test_many_calls_at_once_keep_to_rates_and_the_breaker() -> None:
    """What `start` would not give now is not given."""
    for scheduler in (Scheduler(concurrency=100, rate=10.0), Scheduler(concurrency=100, rate_per_key=10.0)):
        scheduler.offer(events([*["a"] * 50, *["b"] * 50]))
        assert len(scheduler.start_all(0.0)) <= 2
    circuit = Breaker(calls=3, share=0.5).circuit()
    scheduler = Scheduler(concurrency=100, circuit=circuit)
    scheduler.offer(events([None] * 50))
    for call in scheduler.start_all(0.0)[:10]:
        scheduler.finish(call, 0.0, Failure("failed", "it is away", dependency=True))
    assert circuit.is_open
    assert scheduler.start_all(0.0) == []


def offsets(of: list[Event]) -> list[int]:
    return [event.offset for event in of]


def test_nothing_starts_from_the_moment_on_that_is_given() -> None:
    scheduler = Scheduler(concurrency=2)
    scheduler.offer(events(["a", "b"]))
    scheduler.until = 5.0
    assert scheduler.start(4.9) is not None
    assert scheduler.start(5.0) is None
    assert scheduler.start_all(5.0) == []
    scheduler.until = 6.0
    assert scheduler.start(5.0) is not None


def test_the_calls_that_are_late_are_told_once() -> None:
    scheduler = Scheduler(concurrency=5, timeout=10.0)
    scheduler.offer(events(["a", "b"]))
    first, second = scheduler.start(0.0), scheduler.start(4.0)
    assert first is not None
    assert scheduler.next_deadline() == 10.0
    assert scheduler.expire(9.0) == []
    assert scheduler.expire(10.0) == [first]
    assert first.expired
    assert scheduler.next_deadline() == 14.0
    assert scheduler.expire(20.0) == [second]
    assert scheduler.next_deadline() is None
    with pytest.raises(KeyError):
        scheduler.finish(Call(first.queue, first.events, 0.0, 0.0), 0.0)
