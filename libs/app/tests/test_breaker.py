"""Rates and the breaker, as laws of the scheduler in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app import App, AppError, Breaker, Event, Reject, Retries, Topic
from keygrouping_app.breaker import Circuit
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.failures import failure_of
from keygrouping_app.rates import SPREAD, Limit
from keygrouping_app.scheduler import Call, Failure, Scheduler

AWAY = Failure("failed", "the bank is away", dependency=True)
POISON = Failure("failed", "KeyError: 'amount'")


def events(keys: Sequence[str | None], of: Source | None = None, first: int = 0) -> list[Event]:
    source = Source(Topic("t")) if of is None else of
    return [
        event_of(Record("t", 0, first + number, 0, None if key is None else key.encode(), b"v"), source)
        for number, key in enumerate(keys)
    ]


class World:
    """Runs a scheduler in virtual time; `outcome(event, now)` says how a call that begins now will end."""

    def __init__(
        self, scheduler: Scheduler, outcome: Callable[[Event, float], Failure | None], seconds: float = 0.01
    ) -> None:
        self.scheduler = scheduler
        self.outcome = outcome
        self.seconds = seconds
        self.now = 0.0
        self.starts: list[tuple[float, list[Event], bool]] = []
        self.ends: dict[int, tuple[float, Failure | None]] = {}
        self._running: list[tuple[float, int, Call, Failure | None]] = []
        self._number = count()

    def run(self, until: float = 1e7) -> World:
        while True:
            while (call := self.scheduler.start(self.now)) is not None:
                is_open = self.scheduler.circuit is not None and self.scheduler.circuit.is_open
                self.starts.append((self.now, list(call.events), is_open))
                failure = self.outcome(call.events[0], self.now)
                self._running.append((self.now + self.seconds, next(self._number), call, failure))
            moments = [end for end, *_ in self._running]
            if (due := self.scheduler.next_start()) is not None:
                assert due > self.now
                moments.append(due)
            if not moments or min(moments) > until:
                return self
            self.now = min(moments)
            for entry in sorted(self._running, key=lambda each: each[:2]):
                if entry[0] <= self.now:
                    self._running.remove(entry)
                    for event in self.scheduler.finish(entry[2], self.now, entry[3]):
                        self.ends[event.offset] = (self.now, entry[3])


def check_rate(starts: list[tuple[float, int]], rate: float, batch: int) -> None:
    """In any stretch of time no more start than the rate allows."""
    for first in range(len(starts)):
        events_so_far = 0
        for moment, size in starts[first:]:
            events_so_far += size
            allowed = rate * (moment - starts[first][0] + SPREAD) + batch
            assert events_so_far <= allowed + 1e-6, (moment, events_so_far, allowed)


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40),
    st.sampled_from([0.5, 3.0, 50.0, 1000.0]),
    st.sampled_from([None, 0.7, 20.0]),
    st.sampled_from([1, 5]),
    st.integers(1, 6),
    st.randoms(),
)
def test_no_more_start_than_rates_allow_all_end_once_and_in_order(
    keys: list[str | None], rate: float, per_key: float | None, batch: int, lanes: int, chance: random.Random
) -> None:
    scheduler = Scheduler(
        concurrency=lanes, rate=rate, rate_per_key=per_key, batch=batch, retries=2, delay=lambda _: 1.0
    )
    scheduler.offer(events(keys))
    failing = {offset: chance.randrange(3) for offset in range(len(keys))}

    def outcome(event: Event, _: float) -> Failure | None:
        failing[event.offset] -= 1
        return POISON if failing[event.offset] >= 0 else None

    world = World(scheduler, outcome).run()
    assert sorted(world.ends) == list(range(len(keys)))
    assert scheduler.idle
    assert not scheduler._queues
    check_rate([(moment, len(each)) for moment, each, _ in world.starts], rate, batch)
    by_key: defaultdict[object, list[tuple[float, int]]] = defaultdict(list)
    for moment, each, _ in world.starts:
        if each[0].group is not None:
            by_key[each[0].group].append((moment, len(each)))
    for starts in by_key.values() if per_key is not None else ():
        check_rate(starts, per_key or 0.0, batch)
    for key in {key for key in keys if key is not None}:
        mine = [offset for offset, other in enumerate(keys) if other == key]
        assert [offset for offset in world.ends if offset in mine] == mine


def test_a_rate_is_reached() -> None:
    scheduler = Scheduler(concurrency=100, rate=50.0)
    scheduler.offer(events([f"k{number}" for number in range(1001)]))
    assert World(scheduler, lambda *_: None).run().now == pytest.approx(20.0, abs=SPREAD + 0.03)


def test_keys_that_wait_for_their_rate_hold_no_lane() -> None:
    scheduler = Scheduler(concurrency=1, rate_per_key=1.0)
    scheduler.offer(events(["hot"] * 10 + ["b", "c", "d"]))
    world = World(scheduler, lambda *_: None).run()
    assert max(world.ends[offset][0] for offset in (10, 11, 12)) < 0.1
    assert world.ends[9][0] == pytest.approx(9.0, abs=SPREAD + 0.03)


def test_a_key_that_comes_behind_one_that_waits_for_its_rate_starts_at_once() -> None:
    scheduler = Scheduler(concurrency=1, rate_per_key=1.0)
    scheduler.offer(events(["hot"] * 2))
    first = scheduler.start(0.0)
    assert first is not None
    scheduler.finish(first, 0.01)
    scheduler.offer(events(["cold"], first=10))
    second = scheduler.start(0.01)
    assert second is not None
    assert second.events[0].offset == 10


def test_a_key_keeps_its_rate_when_it_comes_again_and_those_that_have_paid_are_forgotten() -> None:
    limit = Limit(1.0)
    limit.take("a", 1, 0.0)
    assert limit.free_at("a") == pytest.approx(1.0 - SPREAD)
    for number in range(100_000):
        limit.take(number, 1, number / 100)
    assert len(limit._paid) < 2500
    assert limit.free_at("a") <= 0


def test_what_waits_for_its_rate_goes_with_its_source() -> None:
    leaving, staying = Source(Topic("t")), Source(Topic("t"))
    scheduler = Scheduler(concurrency=4, rate_per_key=1.0)
    scheduler.offer(events(["a", "a", "b", "b"], leaving) + events(["a"], staying, 10))
    world = World(scheduler, lambda *_: None).run(until=0.5)
    scheduler.withdraw(leaving)
    world.run()
    assert set(world.ends) == {0, 2, 10}
    assert (leaving.events, leaving.bytes, leaving.running) == (0, 0, 0)
    assert scheduler.idle
    assert not scheduler._queues


# --- the breaker ------------------------------------------------------------------------------------------------------


def with_breaker(lanes: int, batch: int = 1, retries: int = 1) -> Scheduler:
    circuit = Circuit(calls=10, share=0.5, pause=lambda failed: min(30.0, 2.0**failed))
    return Scheduler(concurrency=lanes, batch=batch, retries=retries, delay=lambda _: 0.1, circuit=circuit)


@given(
    st.lists(st.sampled_from("abcdefghij"), min_size=30, max_size=120),
    st.lists(st.tuples(st.floats(0, 200), st.floats(1, 300)), max_size=4),
    st.integers(1, 8),
    st.sampled_from([1, 4]),
)
@settings(max_examples=150)
def test_an_outage_ends_and_all_is_handled_in_order_with_one_probe_at_a_time(
    keys: list[str], outages: list[tuple[float, float]], lanes: int, batch: int
) -> None:
    """What fails while it is open is no try: only what failed before can end in the dead letters."""
    scheduler = with_breaker(lanes, batch)
    scheduler.offer(events(keys))
    failed_closed: defaultdict[int, int] = defaultdict(int)
    probes: list[float] = []

    def outcome(event: Event, now: float) -> Failure | None:
        away = any(begin <= now < begin + length for begin, length in outages)
        if scheduler.circuit is not None and scheduler.circuit.is_open:
            assert len(scheduler.running) == 1 or any(call.started < now for call in scheduler.running)
            probes.append(now)
        elif away:
            failed_closed[event.offset] += 1
        return AWAY if away else None

    world = World(scheduler, outcome).run()
    assert sorted(world.ends) == list(range(len(keys)))
    assert scheduler.idle
    assert scheduler.circuit is not None
    for offset, (_, failure) in world.ends.items():
        if failure is not None:
            assert failed_closed[offset] >= 2
    for key in set(keys):
        mine = [offset for offset, other in enumerate(keys) if other == key]
        assert [offset for offset in world.ends if offset in mine] == mine
    most_probes = sum(length for _, length in outages) / 30 + 12 * (len(outages) + 1) + 10
    assert len(probes) <= most_probes * 2


def test_it_opens_when_most_calls_fail_and_closes_when_a_probe_succeeds() -> None:
    scheduler = with_breaker(lanes=4)
    scheduler.offer(events([f"k{number}" for number in range(400)]))
    world = World(scheduler, lambda _, now: AWAY if 0.5 <= now < 100 else None).run()
    assert scheduler.circuit is not None
    assert not scheduler.circuit.is_open
    assert all(failure is None for _, failure in world.ends.values())
    probes = [moment for moment, _, is_open in world.starts if is_open]
    assert [round(after - before) for before, after in pairwise(probes)] == [
        2,
        4,
        8,
        16,
        30,
        30,
        30,
    ]
    assert max(moment for moment, *_ in world.starts) < 130


@pytest.mark.parametrize("failure", [POISON, Failure("rejected", "closed", retry=False)])
def test_what_the_event_or_the_code_is_to_blame_for_never_opens_it(failure: Failure) -> None:
    scheduler = with_breaker(lanes=4)
    scheduler.offer(events([f"k{number}" for number in range(100)]))
    world = World(scheduler, lambda *_: failure).run()
    assert len(world.ends) == 100
    assert not any(is_open for *_, is_open in world.starts)


def test_one_event_that_keeps_failing_does_not_open_it() -> None:
    scheduler = with_breaker(lanes=4, retries=50)
    scheduler.offer(events(["a", "b", "c"]))
    world = World(scheduler, lambda event, _: AWAY if event.offset < 2 else None).run()
    assert not any(is_open for *_, is_open in world.starts)
    assert sum(failure is not None for _, failure in world.ends.values()) == 2


def test_a_probe_that_says_nothing_is_followed_by_another_at_once() -> None:
    scheduler = with_breaker(lanes=4)
    scheduler.offer(events([f"k{number}" for number in range(40)]))
    world = World(scheduler, lambda _, now: AWAY if now < 0.9 else POISON if now < 5 else None, seconds=0.1).run()
    opened = next(moment for moment, _, is_open in world.starts if is_open)
    probes = [moment for moment, _, is_open in world.starts if is_open and moment < 5]
    assert probes == pytest.approx([opened + 0.1 * number for number in range(len(probes))])
    assert len(probes) > 10


def test_a_probe_of_a_partition_that_goes_is_followed_by_another() -> None:
    leaving, staying = Source(Topic("t")), Source(Topic("t"))
    scheduler = with_breaker(lanes=2)
    scheduler.offer(events([f"a{number}" for number in range(20)], leaving))
    world = World(scheduler, lambda _, now: AWAY if now < 5.2 else None, seconds=0.5).run(until=5.2)
    assert scheduler.circuit is not None
    assert scheduler.circuit.state == "probing"
    scheduler.offer(events(["b"], staying, 100))
    scheduler.withdraw(leaving)
    world.run()
    assert world.ends[100] == (6.0, None)
    assert scheduler.idle


async def test_an_outage_in_the_middle_of_a_test_leaves_no_dead_letters() -> None:
    app = App("billing")

    @app.on("orders", concurrency=4)
    async def charge(_: Event) -> None:
        await asyncio.sleep(1)
        if 20 < asyncio.get_running_loop().time() - begun < 2000:
            raise ConnectionError("the bank is away")

    begun = asyncio.get_running_loop().time()
    tested = await app.test([Event.of("orders", number, key=f"k{number}") for number in range(200)])
    assert (len(tested.handled), tested.dead) == (200, [])
    assert 2000 < tested.seconds < 2200


async def test_without_it_an_outage_empties_the_topic_into_the_dead_letters() -> None:
    app = App("billing")

    @app.on("orders", breaker=None, retries=Retries(2))
    async def charge(_: Event) -> None:
        raise ConnectionError("the bank is away")

    tested = await app.test([Event.of("orders", number, key=f"k{number}") for number in range(50)])
    assert len(tested.dead) == 50


async def test_a_test_in_which_nothing_ever_works_says_so() -> None:
    app = App("billing")

    @app.on("orders")
    async def charge(_: Event) -> None:
        raise ConnectionError("the bank is away")

    with pytest.raises(AppError, match="charge has failed for an hour of virtual time"):
        await app.test([Event.of("orders", number, key=f"k{number}") for number in range(50)])


@pytest.mark.parametrize("keyed", [True, False])
async def test_events_that_always_fail_keep_no_others_from_closing_the_breaker(keyed: bool) -> None:
    """An own type of error is taken for a dependency's; the next probe is another event's."""
    app, handled = App("billing"), set[int]()

    class OddError(Exception):
        """As libraries have."""

    @app.on("orders", order=None, retries=Retries(2, first=0.1))
    async def charge(event: Event) -> None:
        if event.value < 6:
            raise OddError
        handled.add(event.value)

    with pytest.raises(AppError, match="has failed for an hour"):  # those that are left, with nothing else to try
        await app.test([Event.of("orders", n, key=f"k{n}" if keyed else None) for n in range(100)])
    assert handled == {*range(6, 100)}


async def test_rates_take_virtual_time() -> None:
    app, starts = App("billing"), list[float]()

    @app.on("orders", rate=10, rate_per_key=1, concurrency=50)
    async def charge(_: Event) -> None:
        starts.append(asyncio.get_running_loop().time())

    tested = await app.test([Event.of("orders", 1, key=f"k{number % 30}") for number in range(300)])
    assert 28.5 < tested.seconds < 33


def test_which_failures_a_dependency_may_be_to_blame_for() -> None:
    class LibraryError(Exception):
        """As clients of HTTP and databases have."""

    for error in (LibraryError(), OSError(), ConnectionError(), TimeoutError(), RuntimeError()):
        assert failure_of(error, expired=False).dependency
    for wrong in (KeyError(), ValueError(), TypeError(), AssertionError(), ZeroDivisionError(), Reject()):
        assert not failure_of(wrong, expired=False).dependency
    assert failure_of(asyncio.CancelledError(), expired=True).dependency


async def test_wrong_settings_are_told() -> None:
    app = App("billing")

    @app.on("orders", rate=0, rate_per_key=1, order=None, breaker=Breaker(calls=1, share=1, first=0, most=-1))
    async def charge(_: Event) -> None: ...

    with pytest.raises(AppError) as wrong:
        app.check()
    assert [fault.partition(": ")[2] for fault in wrong.value.faults] == [
        "rate is 0: give events a second, more than 0",
        "rate_per_key is 1: give it with order='key' only",
        "breaker.calls is 1: give 3 or more",
        "breaker.share is 1: give a part of the calls, from 0 to below 1",
        "breaker.first is 0: give seconds, more than 0",
        "breaker.most is -1: give no less than first",
    ]
