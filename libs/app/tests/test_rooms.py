"""Which part of what a member may hold each partition has."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from keygrouping_app.kafka.rooms import parts_of


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
