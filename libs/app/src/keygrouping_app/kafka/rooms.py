"""How much of what a member may hold in memory each of its partitions may have."""

from __future__ import annotations

from collections.abc import Collection, Container

from aiokafka import TopicPartition


def parts_of(held: Collection[TopicPartition], inputs: Container[str]) -> dict[TopicPartition, float]:
    """Of the whole, for each partition: the same for each of these topics of inputs, and for all slots together as much
    as for inputs at most. There may be many slots, and most of the time they are empty."""
    own = sum(tp.topic in inputs for tp in held)
    slots = len(held) - own
    of_slots = min(slots, max(1, own))
    whole = max(1, own + of_slots)
    return {tp: 1 / whole if tp.topic in inputs else of_slots / slots / whole for tp in held}
