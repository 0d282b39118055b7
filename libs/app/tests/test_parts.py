"""States in parts: written and compacted in any way, they are read as they were."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import cast
from unittest.mock import patch

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app import App, Event, State
from keygrouping_app.codecs import BYTES, Topic
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.gaps import Gaps, decode
from keygrouping_app.kafka.changelog import Copy, records_of
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.ranges import with_states
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kept import PART_BYTES, Kept, parts_of
from keygrouping_app.moves import Done, Topics, Visits, Waiting, _state_records
from keygrouping_app.parts import Parts, in_parts
from keygrouping_app.scheduler import Scheduler
from keygrouping_app.state import LARGEST_STATE
from keygrouping_app.states import RESERVED, States

TP = TopicPartition("in", 0)
SIZE = 10
BYTES_TOPIC = Topic("in", value=BYTES)
NO_LANES: Waiting = Scheduler(concurrency=1)


@dataclass
class Text:
    """A state."""

    text: str = ""


def app() -> App:
    app = App("group")

    @app.on("in", state=Text)
    async def keep(event: Event, state: Text) -> None:
        state.text = event.value

    return app


def read(records: list[Record]) -> dict[bytes, bytes]:
    """What a member that begins has of a changelog."""
    (handler,) = app().handlers
    copy = Copy.of(handler, TP)
    for each in records:
        copy.read(each)
    assert not copy.parts.missing
    found = {str(key).encode() if not isinstance(key, bytes) else key: kept.data for key, kept in copy.states}
    copy.states.close()
    return found


def compacted(log: list[Record], before: int) -> list[Record]:
    """Of the first records, the last one of each key."""
    last = {each.key: each.offset for each in log[:before]}
    return [each for each in log if each.offset >= before or last[each.key] == each.offset]


@given(st.integers(0, 2**40))
@settings(max_examples=300, deadline=None)
def test_of_each_write_all_bytes_are_read_however_far_the_log_is_compacted(seed: int) -> None:
    chance = random.Random(seed)
    states, log, wanted = States(State(Text)), list[Record](), dict[bytes, bytes]()
    with patch("keygrouping_app.kept.PART_BYTES", SIZE):
        for number in range(chance.randrange(1, 12)):
            changed: dict[bytes, Kept | None] = {}
            for key in chance.sample([b"a", b"b", b"1:a"], chance.randrange(1, 4)):
                data = b"%d" % number * chance.choice([1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 2 * SIZE + 1, 5 * SIZE])
                changed[key] = None if chance.random() < 0.2 else Kept(data, number, 1)
            records = records_of(changed, states, "group", TP)
            if chance.random() < 0.2:
                continue  # its transaction fails
            states.written(changed)
            wanted |= {key: b"" if kept is None else kept.data for key, kept in changed.items()}
            for each in records:
                assert len(each.value or b"") <= SIZE
                log.append(Record("", 0, len(log), each.time, each.key, each.value, each.headers))
        left = {key: data for key, data in wanted.items() if data}
        assert read(log) == left
        assert read(compacted(log, chance.randrange(len(log) + 1))) == left
        whole = compacted(log, len(log))
        count = sum(1 + (len(data) - 1) // SIZE for data in left.values())
        assert sum(each.value is not None for each in whole) == count, "parts of states that are not there"


def test_a_record_says_what_it_said_before_it_was_cut() -> None:
    record = Outgoing("t", 3, 17, b"k", bytes(range(256)) * 3000, (("a", b"1"), ("last", None)))
    cut = in_parts(record, b"5:k")
    assert [len(each.value or b"") for each in cut] == [
        PART_BYTES,
        len(record.value or b"") - 2 * PART_BYTES,
        PART_BYTES,
    ]
    assert {(each.topic, each.partition, each.time) for each in cut} == {("t", 3, 17)}
    assert cut[-1].headers[-1] == ("last", None), "who tells records apart by their last header still can"
    parts, found = Parts(), []
    for offset, each in enumerate(cut):
        raw = Record("t", 3, offset, each.time, each.key, each.value, each.headers)
        found.append(parts.take(raw, b"5:k" if each is cut[-1] else each.key or b""))
    *before, whole = found
    assert before == [None, None]
    assert whole is not None
    assert (whole.raw.value, whole.raw.key, whole.parts) == (record.value, b"k", [0, 1])


def test_a_small_state_is_a_record_as_it_is() -> None:
    record = Outgoing("t", 3, 17, b"k", bytes(PART_BYTES))
    assert in_parts(record, b"k") == [record]


def test_parts_of_another_write_are_not_taken_for_its_own() -> None:
    old, new = (in_parts(Outgoing("t", 0, 1, b"k", each * (PART_BYTES + 1)), b"k") for each in (b"o", b"n"))
    parts = Parts()
    log = [new[0], old[1], new[1]]  # as compaction leaves them
    taken = [
        parts.take(Record("t", 0, number, 1, each.key, each.value, each.headers), each.key or b"")
        for number, each in enumerate(log)
    ]
    assert taken[:2] == [None, None]
    assert taken[2] is not None
    assert taken[2].raw.value == b"n" * (PART_BYTES + 1)
    assert not parts.missing


async def test_a_key_that_begins_as_those_of_parts_is_a_dead_letter() -> None:
    events = [Event.of("in", "x", key=(RESERVED + b"1:k").decode()), Event.of("in", "y", key="k")]
    tested = await app().test(events)
    ((event, failure),) = tested.dead
    assert event.raw.key == events[0].raw.key
    assert "does not begin with" in str(failure)
    assert tested.states["in"] == {"k": Text("y")}


async def test_a_slot_is_read_on_behind_parts_although_gaps_have_no_room_and_commits_nothing_until_they_have() -> None:
    """The parts end with the record behind them, and what was left out of a commit would run again."""
    states = States(State(Text), by_input=True)
    visits = Visits(Topics("slots", "changelog", "others"), 0, states, Done())
    place = TopicPartition("slots", 0)
    some = cast(Transactions, object())
    slot = MovedPartition(place, BYTES_TOPIC, OffsetAndMetadata(0, ""), asyncio.Event(), visits, some, states)
    slot.gaps = Gaps(0, limit=100)
    cut = _state_records("slots", 0, 1, b"k", Kept(b"x" * 50 * PART_BYTES, 1, 1))
    for number, each in enumerate(cut[:-1]):
        slot.take([Record("slots", 0, 20 * number, 1, each.key, each.value, each.headers)], 20 * number + 1)
        slot.gaps.take(range(20 * number + 1, 20 * number + 20), 20 * number + 20)
        slot._end_offsets(range(20 * number + 1, 20 * number + 20))
    assert slot.gaps.room() == 0
    assert slot.room(1000, 1 << 30) > 0
    assert slot.due() is None
    last = Record("slots", 0, 20 * len(cut), 1, cut[-1].key, cut[-1].value, cut[-1].headers)
    slot.take([last], last.offset + 1)
    assert slot.due() is None
    found = slot.due((), slot.step(NO_LANES))
    assert found is not None
    assert (found.offset, decode(found.offset, "").ranges) == (last.offset + 1, ())
    assert slot.room(1000, 1 << 30) <= 1000
    assert states.withhold([b"1:k"])
    unwritten = visits.step(NO_LANES, crowded=False)
    assert (slot.due((), unwritten), unwritten.noted) == (None, []), "it is nowhere else until it is written"
    noted = slot.step(NO_LANES)
    assert noted.noted == [states.of_input(1, b"k")]
    assert slot.due((), noted) == found, "where gaps have no room its place is written instead"
    kept = states.peek(states.of_input(1, b"k"))
    assert kept is not None
    assert len(kept.data) == 50 * PART_BYTES


@pytest.mark.parametrize("seed", range(5))
async def test_a_slot_to_which_many_states_come_at_once_is_read_to_the_end(seed: int) -> None:
    """Of twelve inputs, their parts among each other and among events that end at once."""
    chance = random.Random(seed)
    states = States(State(Text), by_input=True)
    visits = Visits(Topics("slots", "changelog", "others"), 0, states, Done())
    place = TopicPartition("slots", 0)
    slot = MovedPartition(place, BYTES_TOPIC, OffsetAndMetadata(0, ""), asyncio.Event(), visits, None, states)
    kept = Kept(b"x" * 80 * SIZE, 1, 1)
    log: list[Outgoing | None] = []
    with patch("keygrouping_app.kept.PART_BYTES", SIZE):
        cut = [_state_records("slots", 0, source, b"k", kept) for source in range(12)]
    for each in (each for row in zip(*cut, strict=True) for each in row):
        log += [each, *[None] * chance.randrange(20, 60)]
    position = 0
    while position < len(log):
        slot.stepped(slot.step(NO_LANES))  # the transaction by which states that have come whole are written
        states.take()
        room = slot.room(5000, 1 << 26)
        assert room >= 100, "not less is read at once"
        for offset in range(position, min(len(log), position + min(room, chance.randrange(1, 400)))):
            if (one := log[offset]) is None:
                slot.gaps.take([offset], offset + 1)
                slot._end_offsets([offset])
            else:
                slot.take([Record("slots", 0, offset, 1, one.key, one.value, one.headers)], offset + 1)
            position = offset + 1
    assert not slot.is_half_read
    assert slot.due((), slot.step(NO_LANES)) == OffsetAndMetadata(len(log), with_states("", None))
    assert len(list(states.groups())) == 12


def test_a_state_has_so_many_parts_at_most() -> None:
    cut = in_parts(Outgoing("t", 0, 1, b"k", bytes(LARGEST_STATE)), b"k")
    assert len(cut) == 80
    assert max(len(each.value or b"") for each in cut) < 1_000_000, "brokers take records of a MiB"
    assert parts_of(Kept(bytes(LARGEST_STATE), 1, 1)) == 79


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_a_state_in_parts_is_restored(size: int) -> None:
    record = Outgoing("t", 0, 1, b"k", b"x" * size)
    log = [Record("t", 0, n, 1, each.key, each.value, each.headers) for n, each in enumerate(in_parts(record, b"k"))]
    assert read(log) == {b"k": b"x" * size}
