"""Surplus on its way to slots, at least once: apart from all else that is written, so that neither waits for the other.

Nor does one slot wait for another. What may not be written is handled here instead, and not sent again: an event is
written to a slot once at most, and runs twice only if a slot has taken it without a word.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.partition import Given, Partition
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.kafka.writing import Writer

GIVE_SECONDS = 4.0
"""For which a slot may be without leader until it is not written: less than who gives an input away waits for it."""


async def keep_giving(
    sharing: Sharing, partitions: Mapping[TopicPartition, Partition], writer: Writer, seconds: float
) -> None:
    """Writes what there is to be given of partitions, every so many seconds; goes on until it is cancelled.

    Raises what can't be retried.
    """
    try:
        async with asyncio.TaskGroup() as writing:
            while True:
                await sharing.dirty.wait()
                sharing.dirty.clear()
                by_slot: defaultdict[int, list[tuple[Partition, Given]]] = defaultdict(list)
                for partition in [each for each in partitions.values() if each.transactions is None and not each.lost]:
                    for given in partition.take_given():
                        by_slot[given.slot].append((partition, given))
                for into in by_slot.values():
                    writing.create_task(_give(sharing, into, writer))
                await asyncio.sleep(seconds)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _give(sharing: Sharing, given: Sequence[tuple[Partition, Given]], writer: Writer) -> None:
    """Writes what is for one slot."""
    failed: Mapping[int, BaseException]
    try:
        with given_up_calls():
            failed = await writer.try_to_write([each.record for _, each in given])
    except Exception as error:
        if not can_be_retried(error):
            raise
        failed = dict.fromkeys(range(len(given)), error)
    places: defaultdict[Partition, list[int]] = defaultdict(list)
    for place, (partition, _) in enumerate(given):
        places[partition].append(place)
    for partition, mine in places.items():
        sharing.gave(partition, [given[place][1] for place in mine if place not in failed])
        if kept := [place for place in mine if place in failed]:
            sharing.keep_here(partition, [given[place][1] for place in kept], failed[kept[0]])
        partition.dirty.set()
