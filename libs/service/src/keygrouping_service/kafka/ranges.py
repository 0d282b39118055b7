"""Where a group begins in a topic that it has committed nothing of, and where it ends: decided once for all partitions.

Both go into one transaction: the starts as committed offsets with their copies in `positions`, the ends as positions of
a group of their own, `{group}-until`, with what was asked for as metadata. Its transactional id fences who decides at
the same time. From then on the starts are like all committed offsets, whoever dies and however long the group rests; a
partition without one was added later, so that all of it is new, and no part of a range that was decided before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Literal, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import Committed, Progress, partitions_of, read_progress
from keygrouping_service.kafka.starts import read_last
from keygrouping_service.kafka.topic_ids import read_topic_id, same_topic
from keygrouping_service.records.batches import Outbox
from keygrouping_service.settings import PREFIX, StageSettings

log = logging.getLogger(__name__)


Moment: TypeAlias = Literal["earliest", "latest"] | int
"""An end of the topic, or the first record of a time in ms and later."""


def read_moment(text: str) -> Moment:
    """`earliest`, `latest`, or a time (ISO 8601, with its zone) that is not in the future. ValueError."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 0 <= at.timestamp() <= time.time():
        raise ValueError(f"{text!r} is no past time with its zone, such as 2026-11-01T00:00:00Z")
    return int(at.timestamp() * 1000)


Ends: TypeAlias = Mapping[int, int]
"""The offset at which each partition ends; one that is missing was added later, and ends where it begins."""


async def decide(settings: StageSettings, stage: str, topic: str, start: Moment, until: Moment | None) -> Ends | None:
    """Commits where the stage begins, unless it has before; gives the ends, None if there is none.

    `Fatal` if the group has a range with another end. Raises Kafka errors, after which it may be called again.
    """
    if start == "earliest" and until is None:
        return None
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(clients.started(clients.admin(settings)))
        probe = await stack.enter_async_context(clients.started(clients.reader(settings, committed=False)))
        reader = await stack.enter_async_context(clients.started(clients.reader(settings)))
        # Its start comes before all that is read: whoever it fences has committed, or never will.
        producer = await stack.enter_async_context(
            clients.started(clients.producer(settings, transactional_id=f"{settings.group(stage)}-range"))
        )
        deciding = _Deciding(settings, settings.group(stage), topic, (admin, probe, reader, producer))
        return await deciding.decide(start, until)


async def is_over(admin: AIOKafkaAdminClient, group: str, topic: str) -> bool:
    """Whether all partitions of a topic are committed as ended."""
    committed = await read_progress(admin, group, topic, await partitions_of(admin, topic))
    return all(entry.progress.ended for entry in committed.values())


class _Deciding:
    def __init__(
        self,
        settings: StageSettings,
        group: str,
        topic: str,
        connections: tuple[AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaConsumer, AIOKafkaProducer],
    ) -> None:
        self._admin, self._probe, self._reader, self._producer = connections
        self._settings = settings
        self._group = group
        self._topic = topic
        self._positions = Positions(settings, group)
        self._ends = Positions(settings, f"{group}-until")

    async def decide(self, start: Moment, until: Moment | None) -> Ends | None:
        tps = [TopicPartition(self._topic, each) for each in await partitions_of(self._admin, self._topic)]
        topic_id = await read_topic_id(self._admin, self._topic)
        last = await read_last(self._admin, self._probe, self._positions, self._group, tps)
        has_begun = any(entry.committed.offset is not None for entry in last.values())
        starts = {} if has_begun else await self._new_starts(tps, topic_id, start)
        stored = await self._ends.find(self._admin, self._probe, tps) if until is not None else {}
        if has_begun and until is not None and not stored:
            # Partitions that rest would be taken for ended by those that have.
            raise Fatal(
                f"group {self._group} reads {self._topic} without an end since it has begun, and is given one now: a "
                f"range needs an application of its own, so use another {PREFIX}APPLICATION"
            )
        ends = stored or await self._new_ends(tps, topic_id, until)
        if starts or (ends and not stored):
            await self._commit(starts, {} if stored else ends)
        if until is None:
            return None
        for tp, end in ends.items():
            self._require_same(tp, end, topic_id, until)
        return {tp.partition: end.offset for tp, end in ends.items()}

    async def _new_starts(
        self, tps: list[TopicPartition], topic_id: str, start: Moment
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if start == "earliest":
            return {}
        offsets = await _offsets_at(self._reader, tps, start)
        return {tp: Committed(offset, Progress(), topic_id).encode() for tp, offset in offsets.items()}

    async def _new_ends(
        self, tps: list[TopicPartition], topic_id: str, until: Moment | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if until is None:
            return {}
        offsets = await _offsets_at(self._reader, tps, until)
        return {tp: OffsetAndMetadata(offset, f"{until} {topic_id}") for tp, offset in offsets.items()}

    def _require_same(self, tp: TopicPartition, end: OffsetAndMetadata, topic_id: str, until: Moment) -> None:
        asked, _, of_topic = end.metadata.partition(" ")
        if asked != str(until) or not same_topic(of_topic, topic_id):
            raise Fatal(
                f"group {self._group} has a range of {tp.topic} that ends otherwise (until {asked}, in the topic with "
                f"id {of_topic}): a range that is decided stays; use another {PREFIX}APPLICATION"
            )

    async def _commit(
        self, starts: Mapping[TopicPartition, OffsetAndMetadata], ends: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        outbox = Outbox(self._producer)
        for positions, entries in ((self._positions, starts), (self._ends, ends)):
            for tp, position in entries.items():
                positions.append(outbox, tp, position)
        await self._producer.begin_transaction()
        await outbox.send()
        if starts:
            await self._producer.send_offsets_to_transaction(dict(starts), self._group)
        await self._producer.commit_transaction()
        for said, entries in (("begins", starts), ("ends", ends)):
            for tp, position in entries.items():
                log.info("%s[%d] %s at offset %d", *tp, said, position.offset)
        await self._see(starts)

    async def _see(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Waits until all see the transaction's offsets, some time after its commit has been answered."""
        for pause in backoff():
            found = await read_progress(
                self._admin, self._group, self._topic, [tp.partition for tp in starts], stable=True
            )
            if all(entry.offset is not None for entry in found.values()):
                return
            await asyncio.sleep(pause)


async def _offsets_at(
    reader: AIOKafkaConsumer, tps: Iterable[TopicPartition], moment: Moment
) -> dict[TopicPartition, int]:
    """The first offset of a moment in each partition; its end, open transactions excluded, if it ends before."""
    wanted = list(tps)
    # Before the times: what comes meanwhile lies behind it.
    ends: dict[TopicPartition, int] = await reader.end_offsets(wanted)
    if not isinstance(moment, int):
        return dict(ends)
    found = await reader.offsets_for_times(dict.fromkeys(wanted, moment))
    return {tp: ends[tp] if (at := found.get(tp)) is None else min(at.offset, ends[tp]) for tp in wanted}
