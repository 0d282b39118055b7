"""Reads whole topics as they stand, up to the ends they had at the start."""

from collections.abc import AsyncIterator
from typing import TypeAlias

from aiokafka import ConsumerRecord, TopicPartition
from keygrouping.partial import Result
from keygrouping_service import kafka
from keygrouping_service.lenient import read_leniently
from keygrouping_service.progress import partitions_of
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.errors import LocalError

_OURS = "keygrouping-"

Record: TypeAlias = ConsumerRecord[bytes, bytes]


class DuplicateResultError(LocalError):
    """A key's window has more than one final result."""


async def read_all(settings: ServiceSettings, topic: str) -> AsyncIterator[list[Record]]:
    """Yields all committed records of a topic, in order within each partition; several at a time, of one partition.

    It waits for transactions under way: who has seen the offsets of one committed may be ahead of its other records.
    """
    partitions = await _partitions(settings, topic)
    read_leniently()
    async with kafka.started(kafka.reader(settings, committed=False)) as probe:
        ends = await probe.end_offsets(partitions)
    async with kafka.started(kafka.reader(settings, max_partition_fetch_bytes=4 << 20)) as consumer:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        behind = {tp for tp in partitions if ends[tp] > await consumer.position(tp)}
        while behind:
            batches = await consumer.getmany(*behind, timeout_ms=200, max_records=10_000)
            for records in batches.values():
                yield records
            for tp in list(behind):
                if await consumer.position(tp) >= ends[tp]:
                    behind.remove(tp)


async def read_results(settings: ServiceSettings) -> dict[tuple[bytes, int], Result]:
    """Returns the final results by key and window start; DuplicateResultError if one was written twice."""
    found: dict[tuple[bytes, int], Result] = {}
    async for records in read_all(settings, settings.results_topic):
        for record in records:
            result = Result.decode(record.value)
            if not result.final:
                continue
            place = (result.key, result.start)
            if place in found:
                raise DuplicateResultError(
                    f"key {result.key!r} has two final results for the window at {result.start} ms:"
                    f" the second in {record.topic}-{record.partition} at offset {record.offset}"
                )
            found[place] = result
    return found


async def reasons(settings: ServiceSettings, topic: str) -> dict[tuple[int, int], str]:
    """Returns why each record of `late` or `dead-letters` is there, by its partition and offset in `events`."""
    found: dict[tuple[int, int], str] = {}
    async for records in read_all(settings, topic):
        for record in records:
            told = {name: (value or b"").decode() for name, value in record.headers if name.startswith(_OURS)}
            # A bad line of a file never was in `events`.
            if told.get("keygrouping-topic") != settings.events_topic:
                continue
            place = (int(told["keygrouping-partition"]), int(told["keygrouping-offset"]))
            if place in found:
                raise DuplicateResultError(f"the event {place} stands twice in {topic}")
            found[place] = told["keygrouping-reason"]
    return found


async def dead_letters(settings: ServiceSettings) -> dict[tuple[int, int], str]:
    """The same of all that is in no result: dead letters, and what is in the quarantine topic."""
    found = await reasons(settings, settings.dead_letters_topic)
    if settings.quarantine_topic is not None:
        found |= await reasons(settings, settings.quarantine_topic)
    return found


async def _partitions(settings: ServiceSettings, topic: str) -> list[TopicPartition]:
    async with kafka.started(kafka.admin(settings)) as admin:
        partitions = await partitions_of(admin, topic)
    if not partitions:
        raise LocalError(f"topic {topic} does not exist")
    return [TopicPartition(topic, partition) for partition in partitions]
