"""Where the group begins in topics that it has committed nothing of, and where it ends.

The start is decided once for all partitions of a topic, and committed before anybody reads: from then on it is a
committed offset like others, whoever crashes. All of it goes in one transaction, whose id fences a member that decides
at the same time. A partition without an offset beside others that have one was therefore added later: all of it is new.

The end of a partition stands behind the gaps in its commits' metadata, with what `until` said when it was decided:
`until:OFFSET:latest`, or `until:OFFSET:TIME` in ms. It stays for as long as `until` says the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.stable import until_stable
from keygrouping_app.moments import Moment

log = logging.getLogger(__name__)

_MARK = " until:"
MOST_END = len(_MARK) + 19 + 1 + 19
"""Most characters of an end in the metadata."""
_STATES = " states:"
MOST_STATES = len(_STATES) + 19
"""Most characters of what the metadata says of states."""
_VISIBLE_SECONDS = 0.05


class End(NamedTuple):
    """Where a partition ends, and the `until` that it was decided by."""

    offset: int
    asked: Moment


def with_end(metadata: str, end: End | None) -> str:
    """Metadata of a commit with the partition's end."""
    return metadata if end is None else f"{metadata}{_MARK}{end.offset}:{end.asked}"


def split_end(metadata: str) -> tuple[str, End | None]:
    """The metadata without the end, and the end; None if there is none that can be read."""
    rest, mark, said = split_states(metadata)[0].partition(_MARK)
    offset, _, asked = said.partition(":")
    if not mark or not offset.isdigit() or not (asked == "latest" or asked.isdigit()):
        return rest, None
    return rest, End(int(offset), "latest" if asked == "latest" else int(asked))


def with_states(metadata: str, last: int | None) -> str:
    """Metadata of a commit with the offset of the last record of the changelog that belongs to it."""
    return metadata if last is None else f"{metadata}{_STATES}{last}"


def split_states(metadata: str) -> tuple[str, int | None]:
    """The metadata without that offset, and the offset; None if there is none that can be read."""
    rest, mark, said = metadata.partition(_STATES)
    return rest, int(said) if mark and said.isdigit() else None


async def offsets_at(
    reader: AIOKafkaConsumer, tps: Iterable[TopicPartition], moment: Moment
) -> dict[TopicPartition, int]:
    """The first offsets of a moment; of a partition that ends before it, its end."""
    wanted = list(tps)
    if moment == "earliest":
        return dict(await reader.beginning_offsets(wanted))
    # Before the times: what comes meanwhile lies behind it.
    ends: dict[TopicPartition, int] = await reader.end_offsets(wanted)
    if moment == "latest":
        return dict(ends)
    found = await reader.offsets_for_times(dict.fromkeys(wanted, moment))
    return {tp: ends[tp] if (at := found.get(tp)) is None else min(at.offset, ends[tp]) for tp in wanted}


async def committed_of(
    admin: AIOKafkaAdminClient, group: str, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the group has committed, of the partitions of which it has. KafkaConnectionError if that is not known."""
    wanted = list(tps)
    found = await admin.list_consumer_group_offsets(group, partitions=wanted)
    if any(tp not in found for tp in wanted):
        raise KafkaConnectionError("the group's coordinator is loading")
    return {tp: OffsetAndMetadata(at.offset, at.metadata or "") for tp, at in found.items() if at.offset >= 0}


async def partitions_of(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions that topics have now."""
    described = await admin.describe_topics(list(topics))
    return sorted(TopicPartition(each["topic"], one["partition"]) for each in described for one in each["partitions"])


async def begin(
    settings: Settings,
    admin: AIOKafkaAdminClient,
    reader: AIOKafkaConsumer,
    topics: Iterable[str],
    stop: asyncio.Event,
) -> None:
    """Commits `settings.start` for all partitions of the topics of which the group has committed nothing.

    Returns when everybody sees it, or `stop` is set. Raises what can't be retried.
    """
    wanted = sorted(topics)
    for pause in backoff():
        try:
            with given_up_calls():
                if not await _fresh(settings, admin, wanted):
                    return
                await _decide(settings, admin, reader, wanted)
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("cannot commit the start position, trying again: %r", error)
        if stop.is_set():
            return
        await asyncio.sleep(pause)


async def _fresh(settings: Settings, admin: AIOKafkaAdminClient, topics: list[str]) -> list[TopicPartition]:
    """The partitions of the topics of which nothing is committed."""
    tps = await partitions_of(admin, topics)
    known = {tp.topic for tp in await committed_of(admin, settings.group, tps)}
    return [tp for tp in tps if tp.topic not in known]


async def _decide(settings: Settings, admin: AIOKafkaAdminClient, reader: AIOKafkaConsumer, topics: list[str]) -> None:
    # The producer's start comes first: it fences others, who have committed or never will.
    async with started(AIOKafkaProducer(**settings.connection, transactional_id=f"{settings.group}-start")) as producer:
        tps = await partitions_of(admin, topics)
        await until_stable(producer.client, settings.group, tps)
        offsets = await offsets_at(reader, tps, settings.start)
        fresh = await _fresh(settings, admin, topics)
        if not fresh:
            return
        starts: Mapping[TopicPartition, OffsetAndMetadata] = {
            tp: OffsetAndMetadata(offsets[tp], "") for tp in fresh if tp in offsets
        }
        async with producer.transaction():
            await producer.send_offsets_to_transaction(starts, settings.group)
    for tp, at in starts.items():
        log.info("%s[%d] begins at offset %d (start: %s)", *tp, at.offset, settings.start)
    # A transaction's offsets can be seen some time after its commit has been answered.
    for pause in backoff(_VISIBLE_SECONDS):
        if not starts.keys() - await committed_of(admin, settings.group, starts):
            return
        await asyncio.sleep(pause)


async def is_over(settings: Settings, admin: AIOKafkaAdminClient, topics: Iterable[str]) -> bool:
    """Whether the group has committed all partitions of the topics up to their ends."""
    tps = await partitions_of(admin, topics)
    committed = await committed_of(admin, settings.group, tps)
    for tp in tps:
        at = committed.get(tp)
        end = None if at is None else split_end(at.metadata)[1]
        if at is None or end is None or end.asked != settings.until or at.offset < end.offset:
            return False
    return True
