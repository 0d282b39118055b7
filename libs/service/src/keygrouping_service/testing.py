"""What tests do to a real broker: make topics, write, read all there is, wait for conditions."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import GroupIdNotFound, for_code
from aiokafka.protocol.admin import DeleteGroupsRequest
from keygrouping.job import Headers
from keygrouping_kafka.errors import can_be_retried

from keygrouping_service.kafka.clients import close
from keygrouping_service.kafka.progress import Committed, partitions_of, read_progress
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record

Row = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


async def until(condition: Callable[[], Awaitable[Any] | Any], timeout: float = 300.0) -> None:
    """Waits until `condition()` is true; a broker that is away counts as "not yet". AssertionError after `timeout`.

    That ends a test that hangs, and is no bound on how long things may take: other tests run on the same cores.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
        except Exception as error:
            if not can_be_retried(error):
                raise
        await asyncio.sleep(0.05)
    raise AssertionError(f"not true within {timeout:.0f} s: {condition}")


def note(file: int, *words: object) -> None:
    """Appends a line that `notes` reads: a process that is killed right afterwards has told it."""
    os.write(file, f"\n{' '.join(map(str, words))} .\n".encode())


def notes(lines: Iterable[str]) -> list[list[str]]:
    """The words of the lines of `note`, without those that are not whole.

    A write that crosses a page of its file is seen in two parts, and a kill may leave the first alone.
    """
    return [words[:-1] for line in lines if (words := line.split())[-1:] == ["."]]


async def configure(admin: AIOKafkaAdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Sets settings of a topic; returns when the broker tells them: for some moments it goes by those before."""
    place = ConfigResourceType.TOPIC, topic

    async def is_told() -> bool:
        (answer,) = await admin.describe_configs([ConfigResource(*place)])
        return settings.items() <= {name: value for name, value, *_ in answer.resources[0][-1]}.items()

    await admin.alter_configs([ConfigResource(*place, configs=dict(settings))])
    await until(is_told)


async def is_shared(admin: AIOKafkaAdminClient, group: str, members: int) -> bool:
    """Whether a group has so many members, and each of them its share."""
    (answer,) = await admin.describe_consumer_groups([group])
    ((_, _, state, _, _, found, *_),) = answer.groups
    return state == "Stable" and len(found) == members


async def fetch(
    consumer: AIOKafkaConsumer, *tps: TopicPartition, timeout_ms: int, most: int | None = None
) -> dict[TopicPartition, Columns]:
    """What comes next of these partitions (none: of all that are assigned), at most `most` records of all together.

    Read by aiokafka alone, from a consumer without an `Unpacking`: what the services' own reader is held against.
    """
    found = await consumer.getmany(*tps, timeout_ms=timeout_ms, max_records=most)
    return {tp: Columns.of(tp.topic, tp.partition, map(_row, records)) for tp, records in found.items()}


def _row(record: Any) -> tuple[int, int, bytes | None, bytes | None, Headers]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


class Cluster:
    """A broker as tests see it; use as an async context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._stack = AsyncExitStack()
        self.admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        self.producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)

    async def __aenter__(self) -> Self:
        for client in (self.admin, self.producer):
            await client.start()
            self._stack.push_async_callback(close, client)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def create(self, **partitions: int) -> None:
        """Creates topics that keep records of any age; returns when the broker serves them."""
        topics = {name.replace("__", "-"): count for name, count in partitions.items()}
        await self._create(topics, {"retention.ms": "-1"})

    async def create_compacted(self, name: str) -> None:
        """Creates a compacted topic of one partition; returns when the broker serves it."""
        await self._create({name: 1}, {"cleanup.policy": "compact"})

    async def create_small(self, name: str, largest: int, partitions: int = 1) -> None:
        """Creates a topic that takes no batch of more bytes; returns when the broker serves it."""
        await self._create({name: partitions}, {"max.message.bytes": str(largest), "retention.ms": "-1"})

    async def _create(self, topics: Mapping[str, int], settings: dict[str, str]) -> None:
        await self.admin.create_topics([NewTopic(n, c, 1, topic_configs=settings) for n, c in topics.items()])
        for name, count in topics.items():
            await until(partial(self._serves, name, count))

    async def _serves(self, name: str, count: int) -> bool:
        return len(await partitions_of(self.admin, name)) == count

    async def write(self, topic: str, rows: Iterable[Row], partition: int = 0, timestamp_ms: int | None = None) -> None:
        """Appends records, in order."""
        sent = [
            await self.producer.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)
            for key, value in rows
        ]
        await asyncio.gather(*sent)

    async def read(self, topic: str, *, committed: bool = True) -> list[Record]:
        """All records that the topic holds now, partition by partition."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, isolation_level=level, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            tps = [TopicPartition(topic, p) for p in await partitions_of(self.admin, topic)]
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            found: dict[TopicPartition, list[Record]] = {tp: [] for tp in tps}
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for tp, records in (await fetch(consumer, timeout_ms=200)).items():
                    found[tp] += records
            return [record for tp in tps for record in found[tp] if record.offset < ends[tp]]
        finally:
            await close(consumer)

    async def transactions_end(self, topic: str) -> None:
        """Waits until no transaction of a topic is open: a commit is answered before all consumers see its records."""
        await until(partial(self._all_ended, topic))

    async def _all_ended(self, topic: str) -> bool:
        return await self._ends(topic, "read_committed") == await self._ends(topic, "read_uncommitted")

    async def _ends(self, topic: str, level: str) -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers, isolation_level=level)
        await consumer.start()
        try:
            ends: dict[TopicPartition, int] = await consumer.end_offsets(
                [TopicPartition(topic, p) for p in await partitions_of(self.admin, topic)]
            )
            return ends
        finally:
            await close(consumer)

    async def committed(self, group: str, topic: str) -> dict[int, Committed]:
        """What a group has committed for every partition of a topic."""
        return await read_progress(self.admin, group, topic, await partitions_of(self.admin, topic))

    async def forget(self, group: str) -> None:
        """Drops all that a group has committed, as brokers do when its offsets expire, once it has no members."""
        await until(partial(self._has_left, group))
        coordinator = await self.admin.find_coordinator(group)
        answer = await send_request(self.admin, DeleteGroupsRequest([group]), coordinator)
        ((_, code),) = answer.results
        if code and for_code(code) is not GroupIdNotFound:
            raise for_code(code)(group)

    async def _has_left(self, group: str) -> bool:
        return await self.members(group) == 0

    async def recreate(self, topic: str, partitions: int = 1) -> None:
        """Deletes a topic and creates one of the same name."""
        await self.admin.delete_topics([topic])
        await until(partial(self._is_gone, topic))
        await self.create(**{topic: partitions})

    async def _is_gone(self, topic: str) -> bool:
        return not await partitions_of(self.admin, topic)

    async def members(self, group: str) -> int:
        """Number of members of a group."""
        (description,) = await self.admin.describe_consumer_groups([group])
        ((_, _, _, _, _, members, *_),) = description.groups
        return len(members)


def rows_of(records: Sequence[Record]) -> list[Row]:
    """Keys and values, sorted: what was delivered, whatever the order."""
    return sorted(((record.key, record.value) for record in records), key=repr)
