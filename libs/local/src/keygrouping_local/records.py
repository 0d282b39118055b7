"""Reads whole topics as they stand, up to the ends they had at the start."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from aiokafka import TopicPartition
from keygrouping.partial import Result
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.unpacking import LARGEST_OF_ANY
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.errors import LocalError

_OURS = "keygrouping-"


class DuplicateResultError(LocalError):
    """A key's window has more than one final result."""


class Letter(NamedTuple):
    """Why a record of `late` or `dead-letters` is there, and where it came from; topic None: from a line of a file."""

    reason: str
    detail: str
    topic: str | None
    partition: int
    offset: int


async def read_all(settings: ServiceSettings, topic: str) -> AsyncIterator[RecordBatch]:
    """Yields all committed records of a topic, in order within each partition; several at a time, of one partition.

    It waits for transactions under way: who has seen the offsets of one committed may be ahead of its other records.
    LocalError tells of records that can't be read.
    """
    partitions = await _partitions(settings, topic)
    async with clients.started(clients.reader(settings, committed=False)) as probe:
        ends = await probe.end_offsets(partitions)
    source = clients.source(settings, largest=LARGEST_OF_ANY, max_partition_fetch_bytes=4 << 20)
    async with clients.started(source.consumer) as consumer:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        behind = {tp for tp in partitions if ends[tp] > await consumer.position(tp)}
        while behind:
            batches = await source.poll(*behind, most=10_000, timeout=0.2)
            if left_out := source.left_out():
                first = left_out[0]
                raise LocalError(f"{topic}[{first.record.partition}]: offset {first.offset}: {first.detail}")
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


async def read_letters(settings: ServiceSettings, topic: str) -> AsyncIterator[Letter]:
    """Yields what the records of `late` or `dead-letters` say of themselves."""
    async for records in read_all(settings, topic):
        for record in records:
            told = {
                name.removeprefix(_OURS): (value or b"").decode()
                for name, value in record.headers
                if name.startswith(_OURS)
            }
            place = (int(told.get("partition", 0)), int(told.get("offset", 0)))
            yield Letter(told["reason"], told.get("detail", ""), told.get("topic"), *place)


async def reasons(settings: ServiceSettings, topic: str) -> dict[tuple[int, int], str]:
    """Returns why each record of `late` or `dead-letters` is there, by its partition and offset in `events`."""
    found: dict[tuple[int, int], str] = {}
    async for letter in read_letters(settings, topic):
        if letter.topic != settings.events_topic:
            continue
        place = (letter.partition, letter.offset)
        if place in found:
            raise DuplicateResultError(f"the event {place} stands twice in {topic}")
        found[place] = letter.reason
    return found


async def dead_letters(settings: ServiceSettings) -> dict[tuple[int, int], str]:
    """The same of all that is in no result: dead letters, and what is in the quarantine topic."""
    found = await reasons(settings, settings.dead_letters_topic)
    if settings.quarantine_topic is not None:
        found |= await reasons(settings, settings.quarantine_topic)
    return found


async def _partitions(settings: ServiceSettings, topic: str) -> list[TopicPartition]:
    async with clients.started(clients.admin(settings)) as admin:
        partitions = await partitions_of(admin, topic)
    if not partitions:
        raise LocalError(f"topic {topic} does not exist")
    return [TopicPartition(topic, partition) for partition in partitions]
