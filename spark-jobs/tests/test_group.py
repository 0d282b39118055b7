"""What the job commits for its queries, on a real broker and without Spark."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka.admin import NewPartitions
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed, Progress, read_progress
from keygrouping_service.testing import Cluster
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.stages import Environment

pytestmark = pytest.mark.kafka


async def test_partitions_that_are_added_are_committed_too(broker: EmbeddedBroker, application: str) -> None:
    settings = SparkSettings(
        bootstrap_servers=broker.bootstrap_servers,
        application=application,
        routed_topic=f"{application}.routed",
        positions_topic=f"{application}.positions",
        checkpoint="none",
        job='{"window": 1000, "aggregates": []}',
    )
    topic = settings.routed_topic
    async with Cluster(broker.bootstrap_servers) as cluster, AsyncExitStack() as stack:
        await cluster.create(**{topic: 1, settings.positions_topic: 1})
        admin = await stack.enter_async_context(clients.started(clients.admin(settings)))
        probe = await stack.enter_async_context(clients.started(clients.reader(settings, committed=False)))
        spark: Any = None
        group = await Environment(settings, spark, admin, probe, stack).open_group("worker", topic)
        entries = {partition: Committed(partition + 5, Progress(partition)) for partition in range(3)}
        await group.commit({0: entries[0]})
        await cluster.admin.create_partitions({topic: NewPartitions(3)})
        await group.commit(entries)
        assert await read_progress(admin, group.name, topic, range(3)) == entries
