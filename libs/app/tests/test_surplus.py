"""Events of hot keys on their way: taken from those that wait, written with their identity, read with it."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app import App, AppError, Event, Output, Reject, Topic
from keygrouping_app.dead_letters import dead_letter
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.kafka import overflow
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import SlotPartition, handler_of_slots
from keygrouping_app.scheduler import Failure, Scheduler
from keygrouping_app.surplus import SOURCE, TIME, may_be_written, record_of, surplus_of
from keygrouping_app.worker_process import packed_event

from .simulated_group import PureTime


def clicked(key: str | None, offset: int = 7, value: bytes | None = b"1", **more: Any) -> Event:
    record = Record("clicks", 3, offset, 12, None if key is None else key.encode(), value, **more)
    return event_of(record, Source(Topic("clicks"), partition=3))


def read_back(event: Event) -> Event:
    out = record_of(event, "g.overflow", 5)
    assert out.time == -1, "retention would count from it"
    record = Record(out.topic, out.partition or 0, 99, 1_700_000_000_000, out.key, out.value, out.headers)
    return surplus_of(record, Source(Topic("clicks"), partition=5), "g.overflow")


def test_a_surplus_event_is_as_it_was_at_its_source() -> None:
    event = clicked("a", headers=[("mine", b"x")])
    back = read_back(event)
    assert (back.identity, back.topic, back.partition, back.offset) == ("clicks/3/7", "clicks", 3, 7)
    assert (back.key, back.value, back.time, list(back.headers)) == ("a", 1, 12, [("mine", b"x")])
    assert (back.group, back.raw.offset) == (b"a", 99)
    letter = dict(dead_letter(back, Failure("failed", "why"), "dead", "g").headers)
    assert letter["keygrouping-identity"] == b"clicks/3/7"
    assert (letter["mine"], SOURCE in letter) == (b"x", False)
    assert packed_event(back)[:2] == (3, 7)
    assert list(packed_event(back)[5]) == [("mine", b"x")]


@pytest.mark.parametrize("time", [-1, 0, 1_600_000_000_000])
def test_an_old_event_keeps_its_time_and_its_record_has_that_of_writing(time: int) -> None:
    record = Record("clicks", 3, 7, time, b"a", b"1")
    back = read_back(event_of(record, Source(Topic("clicks"), partition=3)))
    assert (back.time, back.raw.timestamp) == (time, 1_700_000_000_000)
    assert packed_event(back)[2] == time
    assert dead_letter(back, Failure("failed", "why"), "dead", "g").time == time


def test_a_header_of_the_same_name_that_an_event_has_stays_its_own() -> None:
    back = read_back(clicked("a", headers=[(SOURCE, b"other/1/2")]))
    assert (back.identity, list(back.headers)) == ("clicks/3/7", [(SOURCE, b"other/1/2")])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(SOURCE, None), (TIME, b"1")],
        [(SOURCE, b"clicks"), (TIME, b"1")],
        [(SOURCE, b"clicks/x/7"), (TIME, b"1")],
        [(SOURCE, b"\xff/1/-2"), (TIME, b"1")],
        [("a", b"t/1/2")],
        [(SOURCE, b"t/1/2")],
        [(SOURCE, b"t/1/2"), (TIME, b"now")],
        [(SOURCE, b"t/1/2"), (TIME, None)],
    ],
    ids=["none", "empty", "topic only", "no number", "no text", "another", "no time", "a wrong time", "an empty time"],
)
def test_what_others_have_written_to_a_slot_is_handled_and_known_by_its_place_there(headers: Any) -> None:
    record = Record("g.overflow", 5, 99, 12, b"k", b"v", headers)
    event = surplus_of(record, Source(Topic("clicks"), partition=5), "g.overflow")
    assert (event.identity, event.time, event.headers) == ("g.overflow/5/99", 12, headers)


def test_what_brokers_would_not_take_in_a_slot_stays() -> None:
    assert may_be_written(clicked("a"))
    assert may_be_written(clicked(None))
    assert may_be_written(clicked("a", value=None))
    assert not may_be_written(clicked(None, value=None))
    assert not may_be_written(clicked("a", value=b"x" * 900_001))
    assert may_be_written(clicked("a", value=b"x" * 900), 1200)
    assert not may_be_written(clicked("a", value=b"x" * 900, headers=[("mine", b"x" * 200)]), 1200)
    assert not may_be_written(clicked("a", value=b"x" * 900, headers=[("a", b"")] * 30), 1200)


@given(st.text("abc", max_size=30), st.dictionaries(st.sampled_from("abcx"), st.integers(0, 9)), st.integers(0, 5))
def test_of_what_waits_the_latest_of_the_wanted_keys_are_taken_and_the_rest_is_handled_in_its_order(
    keys: str, wanted: dict[str, int], running: int
) -> None:
    scheduler = Scheduler(concurrency=5, ordered=False)
    source = Source(Topic("clicks"))
    events = [event_of(Record("clicks", 0, number, 0, key.encode(), b"1"), source) for number, key in enumerate(keys)]
    scheduler.offer(events)
    calls = [call for _ in range(running) if (call := scheduler.start(0.0)) is not None]
    waiting = events[len(calls) :]
    taken = scheduler.take_back({key.encode(): count for key, count in wanted.items()}, lambda _: True)
    left = {key.encode(): count for key, count in wanted.items()}
    expected = []
    for event in reversed(waiting):
        if left.get(event.raw.key or b"", 0):
            left[event.raw.key or b""] -= 1
            expected.append(event)
    assert taken == expected
    assert (source.events, scheduler.waits) == (len(events) - len(taken), len(waiting) - len(taken))
    for call in calls:
        scheduler.finish(call, 0.0)
    rest = []
    while (call := scheduler.start(0.0)) is not None:
        rest += call.events
        scheduler.finish(call, 0.0)
    assert rest == [event for event in waiting if event not in taken]
    assert scheduler.idle
    assert source.events == source.bytes == 0


def test_a_queue_of_which_nothing_may_go_is_not_walked_through() -> None:
    scheduler, looks = Scheduler(concurrency=1, ordered=False), list[Event]()
    source = Source(Topic("clicks"))
    events = [event_of(Record("clicks", 0, number, 0, b"a", b"1"), source) for number in range(5000)]
    scheduler.offer(events)

    def refuse(event: Event) -> bool:
        looks.append(event)
        return False

    assert scheduler.take_back({b"a": 5000}, refuse) == []
    assert 100 < len(looks) < 2000
    assert scheduler.take_back({b"b": 5}, lambda _: True) == []
    assert len(scheduler.take_back({b"a": 5000}, lambda _: True)) == 5000
    assert scheduler.idle


def test_what_has_failed_once_or_may_not_go_is_not_taken() -> None:
    scheduler = Scheduler(concurrency=1, ordered=False, batch=4, retries=2)
    source = Source(Topic("clicks"))
    scheduler.offer([event_of(Record("clicks", 0, number, 0, b"a", b"1"), source) for number in range(6)])
    call = scheduler.start(0.0)
    assert call is not None
    scheduler.finish(call, 0.0, Failure("failed", "why"))  # each comes again by itself
    assert [event.offset for event in scheduler.take_back({b"a": 9}, lambda event: event.offset != 5)] == [4]


def slot_of(topic: str) -> SlotPartition:
    tp, start = TopicPartition("g.overflow", 5), OffsetAndMetadata(10, "")
    return SlotPartition(tp, Topic(topic), start, asyncio.Event(), {})


def test_a_slot_with_events_of_another_topic_ends_the_app_and_none_of_them_ends() -> None:
    slot = slot_of("views")
    records = [
        Record("g.overflow", 5, 10, 0, b"k", b"1", ((SOURCE, b"views/1/0"), (TIME, b"5"))),
        Record("g.overflow", 5, 11, 0, b"k", b"1"),  # what others have written there is handled
    ]
    assert [event.identity for event in slot.take(records, 12)] == ["views/1/0", "g.overflow/5/11"]
    slot.committed(slot.due() or OffsetAndMetadata(10, ""))
    other = Record("g.overflow", 5, 12, 0, b"k", b"1", ((SOURCE, b"clicks/1/0"), (TIME, b"5")))
    with pytest.raises(
        AppError, match=r"holds events of 'clicks' .* no handler of it: first run .* --group g shows no"
    ):
        slot.take([other], 13)
    due = slot.due()
    assert due is None or due.offset == 10


class ReaderWithoutLeader:
    """Of two slots, of which the second gives nothing."""

    slots = TopicPartition("g.overflow", 0), TopicPartition("g.overflow", 1)
    assigned: ClassVar[list[list[TopicPartition]]] = []

    def __init__(self, **_: Any) -> None:
        self.places: dict[TopicPartition, int] = {}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1)

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def assign(self, tps: list[TopicPartition]) -> None:
        self.assigned.append(tps)

    def seek(self, tp: TopicPartition, place: int) -> None:
        self.places[tp] = place

    async def position(self, tp: TopicPartition) -> int:
        return self.places[tp]

    async def getmany(self, *tps: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        await asyncio.sleep(timeout_ms / 1000)
        return {tp: [Record(tp.topic, tp.partition, 0, 0, b"k", b"1")] for tp in tps if tp == self.slots[0]}


async def test_a_slot_without_leader_does_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: object) -> list[TopicPartition]:
        return [*ReaderWithoutLeader.slots]

    async def nothing(*_: object) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}

    monkeypatch.setattr(overflow, "AIOKafkaConsumer", ReaderWithoutLeader)
    monkeypatch.setattr(overflow, "partitions_of", found)
    monkeypatch.setattr(overflow, "committed_of", nothing)
    with PureTime(), pytest.raises(TimeoutError):
        async with asyncio.timeout(3600) as hour:
            admin: Any = None
            await handler_of_slots(admin, Settings("g", "unused:1", "dead"), {})
    assert not hour.expired()
    assert len(ReaderWithoutLeader.assigned) == 1


def test_a_slot_tells_of_which_inputs_events_are_open_until_their_end_is_committed() -> None:
    slot = slot_of("clicks")
    records = [
        Record("g.overflow", 5, 10 + place, 0, b"k", b"1", ((SOURCE, b"clicks/%d/%d" % (source, place)), (TIME, b"5")))
        for place, source in enumerate([3, 3, 4, 3])
    ]
    events = slot.take(records, 14)
    assert [event.identity for event in events] == ["clicks/3/0", "clicks/3/1", "clicks/4/2", "clicks/3/3"]
    assert slot.open_by_input() == {3: 3, 4: 1}
    slot.end([events[0], events[3]], [])
    what = slot.due()
    assert what is not None
    slot.end([events[2]], [])
    assert slot.open_by_input() == {3: 3, 4: 1}
    slot.committed(what)
    assert slot.open_by_input() == {3: 1, 4: 1}
    what = slot.due()
    assert what is not None
    slot.committed(what)
    assert slot.open_by_input() == {3: 1}
    assert slot.lag == 1


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"order": "key"}, "split is True: give it without order='key': hot keys run on all members, so"),
        (
            {"state": dict},
            "split is True: give State(merge=...) with it, or leave it out: a key with a state that does",
        ),
        ({"rate_per_key": 3.0}, "rate_per_key is 3.0: give it with order='key' only"),
    ],
    ids=["order", "state", "rate of a key"],
)
def test_what_does_not_go_with_split_is_told_at_the_start(given: dict[str, Any], fault: str) -> None:
    app = App("g")

    async def score(event: Event) -> None: ...

    async def keep(event: Event, state: Any) -> None: ...

    app.on("clicks", split=True, **given)(keep if "state" in given else score)
    with pytest.raises(AppError) as told:
        app.check()
    (only,) = told.value.faults
    assert fault in only


def test_an_app_shares_one_topic_and_its_name_is_part_of_topics() -> None:
    app = App("g g")
    for topic in ("a", "b"):

        @app.on(topic, split=True)
        async def score(event: Event) -> None: ...

    with pytest.raises(AppError) as told:
        app.check()
    assert told.value.faults[0] == "2 handlers have split=True: an app has one such topic; use another App"
    assert "'g g' can't be part of one" in told.value.faults[1]


async def test_a_split_handler_is_tested_like_others_and_has_no_order() -> None:
    app, seen = App("g"), list[int]()

    @app.on("clicks", key="/page", split=True, concurrency=3)
    async def score(event: Event) -> Output | None:
        await asyncio.sleep(10 - event.value["n"])
        seen.append(event.value["n"])
        if event.value["n"] == 2:
            raise Reject("two")
        return Output("scores", event.value["n"])

    tested = await app.test([Event.of("clicks", {"page": "x", "n": number}) for number in range(3)])
    assert seen == [2, 1, 0]
    assert (len(tested.handled), len(tested.dead)) == (2, 1)
    assert sorted(out.value or b"" for out in tested.outputs) == [b"0", b"1"]
