"""Lanes in real time: threads, and what happens when an event's end can't be taken note of."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from keygrouping_app import App, Event, Failure, Outgoing, Topic
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.lanes import QUICK_SECONDS, Lanes, LoopLanes, ThreadLanes


def events(keys: str) -> list[Event]:
    source = Source(Topic("t"))
    return [event_of(Record("t", 0, number, 0, key.encode(), b"1"), source) for number, key in enumerate(keys)]


class Ends:
    def __init__(self, wanted: int) -> None:
        self.offsets: list[int] = []
        self.reasons: dict[int, str] = {}
        self._wanted = wanted
        self._all = asyncio.Event()

    def __call__(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        assert outputs == []
        self.offsets += [event.offset for event in ended]
        self.reasons |= {event.offset: failure.reason for event in ended if failure is not None}
        if len(self.offsets) >= self._wanted:
            self._all.set()

    async def all(self) -> None:
        async with asyncio.timeout(60):
            await self._all.wait()


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def lanes_of(app: App, ends: Ends) -> Lanes:
    (handler,) = app.handlers
    return (LoopLanes if handler.is_async else ThreadLanes)(handler, handler.function, ends)


async def test_plain_functions_run_on_as_many_threads_as_there_are_lanes() -> None:
    app, together = App("a"), threading.Barrier(4)
    by_key, lock = defaultdict[str, list[int]](list), threading.Lock()

    @app.on("t", concurrency=4)
    def meet(event: Event) -> None:
        if event.offset < 4:
            together.wait(60)
        with lock:
            by_key[event.key].append(event.offset)

    ends = Ends(400)
    lanes = lanes_of(app, ends)
    lanes.offer(events("abcd" * 100))
    await ends.all()
    lanes.close()
    assert by_key == {key: list(range(start, 400, 4)) for start, key in enumerate("abcd")}
    assert sorted(ends.offsets) == list(range(400))


@pytest.mark.parametrize("batch", [False, 2])
async def test_calls_of_one_lane_take_no_longer_together_than_there_was_time(batch: bool | int) -> None:
    """Those that are quick are handed over early: what they wait for the thread is no time of theirs."""
    app = App("a")

    @app.on("t", concurrency=1, batch=batch)
    def work(_: Event | list[Event]) -> None:
        time.sleep(0.0001)

    ends, began = Ends(2000), time.monotonic()
    lanes = lanes_of(app, ends)
    lanes.offer(events("abcdefghij" * 100) + events("klmnopqrst" * 100))
    await ends.all()
    took = time.monotonic() - began
    lanes.close()
    assert 0.0001 <= sum(lanes.tally.seconds.values()) <= took
    assert 0.0001 <= lanes.costs.seconds <= took


async def test_a_thread_that_hangs_keeps_its_key_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    app, go_on = App("a"), threading.Event()

    @app.on("t", concurrency=2, timeout=0.01, retries=0)
    def work(event: Event) -> None:
        if event.offset == 0:
            go_on.wait(60)

    ends = Ends(20)
    lanes = lanes_of(app, ends)
    lanes.offer(events("aa" + "b" * 20))
    await ends.all()
    assert sorted(ends.offsets) == list(range(2, 22))
    await until(lambda: "can't be stopped" in caplog.text)
    go_on.set()
    await until(lambda: not lanes.scheduler.running)
    lanes.close()
    assert lanes.scheduler.idle


def keyed(count: int, source: Source, first: int = 0) -> list[Event]:
    return [event_of(Record("t", 0, n, 0, b"k%d" % n, b"1"), source) for n in range(first, first + count)]


async def test_quick_calls_wait_for_a_thread_and_not_for_the_event_loop() -> None:
    app, ahead, together = App("a"), 0, [0, 0]

    @app.on("t", concurrency=2)
    def work(_: Event) -> None:
        nonlocal ahead
        together[0] += 1
        ahead = max(ahead, len(lanes.scheduler.running))
        together[1] = max(together)
        together[0] -= 1

    ends = Ends(2000)
    lanes = lanes_of(app, ends)
    lanes.offer(keyed(2000, Source(Topic("t"))))
    await ends.all()
    lanes.close()
    assert sorted(ends.offsets) == list(range(2000))
    assert ahead > 2
    assert together[1] <= 2


async def test_calls_that_wait_for_a_thread_neither_wait_for_one_that_hangs_nor_begin_when_they_are_withdrawn() -> None:
    app, go_on, hangs = App("a"), threading.Event(), threading.Event()
    seen: list[int] = []

    @app.on("t", concurrency=2, retries=0)
    def work(event: Event) -> None:
        seen.append(event.offset)
        if event.offset >= 2000:
            hangs.set()
            go_on.wait(60)

    ends, source = Ends(2000), Source(Topic("t"))
    lanes = lanes_of(app, ends)
    lanes.offer(keyed(1000, source))
    lanes.offer(keyed(1, source, 2000))
    lanes.offer(keyed(1000, source, 1000))
    await ends.all()
    assert sorted(ends.offsets) == list(range(2000))
    lanes.offer(keyed(1, source, 2001))
    await until(lambda: len(seen) == 2002)
    lanes.offer(keyed(100, source, 3000))
    assert len(lanes.scheduler.running) > 2
    lanes.withdraw(source)
    go_on.set()
    await until(lambda: not lanes.scheduler.running)
    lanes.close()
    assert lanes.scheduler.idle
    assert sorted(seen) == list(range(2002))
    assert sorted(ends.offsets) == list(range(2002))


async def test_a_function_that_ends_the_interpreter_ends_its_event_only() -> None:
    app = App("a")

    @app.on("t", retries=0)
    def leave(event: Event) -> None:
        raise SystemExit(event.offset)

    ends = Ends(2)
    lanes = lanes_of(app, ends)
    lanes.offer(events("ab"))
    await ends.all()
    lanes.close()
    assert ends.reasons == {0: "failed", 1: "failed"}


async def test_events_take_no_tasks_of_their_own() -> None:
    app, tasks = App("a"), set[str]()

    @app.on("t", concurrency=4)
    async def work(_: Event) -> None:
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task.get_name())

    ends = Ends(400)
    lanes = lanes_of(app, ends)
    lanes.offer(events("abcdefgh" * 50))
    await ends.all()
    lanes.close()
    assert len(tasks) == 4


async def test_lanes_that_never_wait_let_the_event_loop_turn() -> None:
    app, turns = App("a"), 0

    @app.on("t", concurrency=2)
    async def work(_: Event) -> None:
        time.sleep(0.002)  # noqa: ASYNC251 -- work of the CPU

    ends = Ends(40)
    lanes = lanes_of(app, ends)
    lanes.offer(events("abcd" * 10))
    while len(ends.offsets) < 40:
        turns += 1
        await asyncio.sleep(0)
    lanes.close()
    assert turns > 5


async def test_lanes_that_never_wait_share_a_turn_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    app, clock, most = App("a"), 0.0, 0
    monkeypatch.setattr("keygrouping_app.lanes.time", SimpleNamespace(perf_counter=lambda: clock))

    @app.on("t", concurrency=64)
    async def work(_: Event) -> None:
        nonlocal clock
        clock += QUICK_SECONDS / 5

    ends = Ends(2000)
    lanes = lanes_of(app, ends)
    lanes.offer(keyed(2000, Source(Topic("t"))))
    while (before := len(ends.offsets)) < 2000:
        await asyncio.sleep(0)
        most = max(most, len(ends.offsets) - before)
    lanes.close()
    # One event of each lane, and what the time of one turn is enough for.
    assert most <= 64 + 6


async def test_an_error_outside_of_handlers_is_told_and_no_event_ends_by_it() -> None:
    app = App("a")

    @app.on("t")
    async def work(event: Event) -> None: ...

    def broken(*_: object) -> None:
        raise LookupError("the partition is gone")

    (handler,) = app.handlers
    lanes = LoopLanes(handler, handler.function, broken)
    lanes.offer(events("a"))
    with pytest.raises(LookupError):
        await asyncio.wait_for(lanes.failure, 60)
    lanes.close()


async def test_threads_take_no_calls_ahead_of_their_rate() -> None:
    app, most = App("a"), 0

    @app.on("t", concurrency=2, rate=100_000)
    def work(_: Event) -> None: ...

    class Watched(Ends):
        def __call__(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
            nonlocal most
            most = max(most, len(lanes.scheduler.running))
            super().__call__(ended, outputs, failure)

    ends = Watched(2000)
    lanes = lanes_of(app, ends)
    lanes.offer(events("abcdefgh" * 250))
    await ends.all()
    lanes.close()
    assert most <= 2


@pytest.mark.parametrize("threads", [True, False])
async def test_a_batch_may_be_taken_apart_by_its_handler(threads: bool) -> None:
    app, seen = App("a"), list[int]()

    def take(batch: list[Event]) -> None:
        while batch:
            seen.append(batch.pop().offset)

    async def take_on_the_loop(batch: list[Event]) -> None:
        take(batch)

    app.on("t", batch=True)(take if threads else take_on_the_loop)
    ends = Ends(30)
    lanes = lanes_of(app, ends)
    lanes.offer(events("abc" * 10))
    await ends.all()
    lanes.close()
    assert sorted(ends.offsets) == sorted(seen) == list(range(30))
    assert lanes.scheduler.idle
