"""Which part of what a member may hold each partition has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import Topic
from keygrouping_app.events import Record
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.rooms import parts_of, rooms_of


def held(inputs: int, slots: int) -> list[TopicPartition]:
    topics = [("in", inputs), ("app.overflow", slots)]
    return [TopicPartition(topic, number) for topic, count in topics for number in range(count)]


@pytest.mark.parametrize(
    ("inputs", "slots", "of_input", "of_slot"),
    [
        (4, 0, 1 / 4, 0.0),
        (1, 8, 1 / 2, 1 / 16),  # a member alone, with a topic of one partition
        (0, 2, 0.0, 1 / 2),
        (3, 3, 1 / 6, 1 / 6),
        (3, 2, 1 / 5, 1 / 5),
        (2, 8, 1 / 4, 1 / 16),
    ],
)
def test_slots_leave_inputs_half_of_it_at_least_and_all_of_it_is_given(
    inputs: int, slots: int, of_input: float, of_slot: float
) -> None:
    parts = parts_of(held(inputs, slots), {"in"})
    assert set(parts) == set(held(inputs, slots))
    assert sum(parts.values()) == pytest.approx(1)
    assert {part for tp, part in parts.items() if tp.topic == "in"} == ({of_input} if inputs else set())
    assert {part for tp, part in parts.items() if tp.topic != "in"} == ({of_slot} if slots else set())


def test_a_member_without_partitions_has_no_parts() -> None:
    assert parts_of([], {"in"}) == {}


@pytest.mark.parametrize(
    ("most", "held_of_it", "read_at", "room", "rests", "paused"),
    [
        (10_000, 0, 5.0, 10_000, False, False),
        (10_000, 9_500, 0.0, 500, False, False),
        (10_000, 9_500, 5.0, None, True, False),  # little room, and it was read just now
        (10_000, 9_901, 0.0, None, False, True),
        (40, 30, 0.0, 10, False, False),  # memory that has not room for many
        (40, 31, 0.0, None, False, True),
    ],
)
async def test_a_partition_is_read_if_it_has_room_for_many_or_has_rested(
    most: int, held_of_it: int, read_at: float, room: int | None, rests: bool, paused: bool
) -> None:
    tp = TopicPartition("in", 0)
    partition = Partition(tp, Topic("in"), OffsetAndMetadata(0, ""), asyncio.Event())
    records: list[Any] = [Record("in", 0, offset, 0, b"k", b"1") for offset in range(held_of_it)]
    partition.hold(partition.take(records, held_of_it))
    partition.read_at = read_at
    found = rooms_of([partition], {tp: 1.0}, Settings("g", "unused:1", "dead", max_events=most), early=1.0)
    assert found == ({} if room is None else {tp: room}, rests)
    assert partition.paused == paused
