"""The stage behind the router, seen through Kafka: what it has yet to process, and how many workers run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of, read_progress

from keygrouping_router.settings import RouterSettings

_STAGE = "worker"


class WorkerStage(NamedTuple):
    """Events that each worker has not processed, and members of the workers' group (0 for a Spark job).

    There is a lag for each partition of the routed topic.
    """

    lags: Mapping[int, int]
    members: int


class LooksAtWorkers(Protocol):
    """What tells of the worker stage."""

    async def look(self) -> WorkerStage:
        """The stage now; raises what Kafka clients raise."""

    async def close(self) -> None:
        """Gives up connections."""


class KafkaWorkerStage:
    """Compares what the workers' group has committed with the ends of the routed topic.

    Both runners commit there. Transaction markers count as events, so a lag of some is none.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._group = settings.group(_STAGE)
        self._stack = AsyncExitStack()
        self._clients: tuple[AIOKafkaAdminClient, AIOKafkaConsumer] | None = None

    async def look(self) -> WorkerStage:
        """The stage now; after an error the next look begins with new connections."""
        try:
            return await self._look(*await self._connected())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Gives up connections."""
        self._clients = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def _connected(self) -> tuple[AIOKafkaAdminClient, AIOKafkaConsumer]:
        if self._clients is None:
            admin = await self._stack.enter_async_context(clients.started(clients.admin(self._settings)))
            probe = clients.reader(self._settings, committed=False)
            self._clients = (admin, await self._stack.enter_async_context(clients.started(probe)))
        return self._clients

    async def _look(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> WorkerStage:
        topic = self._settings.routed_topic
        partitions = await partitions_of(admin, topic)
        committed = await read_progress(admin, self._group, topic, partitions)
        tps = [TopicPartition(topic, partition) for partition in partitions]
        ends = await probe.end_offsets(tps)
        begins = await probe.beginning_offsets(tps)
        lags = {}
        for tp in tps:
            offset = committed[tp.partition].offset
            lags[tp.partition] = max(0, ends[tp] - (begins[tp] if offset is None else offset))
        return WorkerStage(lags, await self._members(admin))

    async def _members(self, admin: AIOKafkaAdminClient) -> int:
        (description,) = await admin.describe_consumer_groups([self._group])
        ((_, _, _, _, _, members, *_),) = description.groups
        return len(members)
