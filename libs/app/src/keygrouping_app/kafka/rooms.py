"""How much of what a member may hold in memory each of its partitions may have."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from aiokafka import TopicPartition

from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Partition

LEAST_READ = 100
"""Records that are read at once at least, unless memory has not even room for four times as many."""
_MANY_READ = 2000


class Rooms(NamedTuple):
    """`records`: how many may be read of each partition that is to be read now; `rests`: whether another one has room,
    but is read later."""

    records: dict[TopicPartition, int]
    rests: bool


def parts_of(held: Collection[TopicPartition], inputs: Container[str]) -> dict[TopicPartition, float]:
    """Of the whole, for each partition: the same for each of these topics of inputs, and for all slots together as much
    as for inputs at most. There may be many slots, and most of the time they are empty."""
    own = sum(tp.topic in inputs for tp in held)
    slots = len(held) - own
    of_slots = min(slots, max(1, own))
    whole = max(1, own + of_slots)
    return {tp: 1 / whole if tp.topic in inputs else of_slots / slots / whole for tp in held}


def rooms_of(
    partitions: Sequence[Partition], parts: dict[TopicPartition, float], settings: Settings, early: float
) -> Rooms:
    """Of these partitions, by their parts of the whole. One with little room rests if it was read since `early`, by the
    event loop's clock. Those with less than is read at once are `paused`."""
    rooms, rests = {}, False
    for each in partitions:
        events, size = (int(parts[each.tp] * most) for most in (settings.max_events, settings.max_bytes))
        least, many = (min(max(1, events // 4), read) for read in (LEAST_READ, _MANY_READ))
        room = each.room(max(1, events), size)
        each.paused = room < least
        # Many at once are more of each key at once; where few find room for long, most wait for something else.
        if room >= many or (room >= least and each.read_at < early):
            rooms[each.tp] = room
        else:
            rests |= room >= least
    return Rooms(rooms, rests)
