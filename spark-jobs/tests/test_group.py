"""What the job commits for its queries, on a real broker and without Spark."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import NewPartitions
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed, Progress, read_progress
from keygrouping_service.testing import Cluster
from keygrouping_spark.reports import Reading
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.stages import Environment, _Beginning

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


async def test_a_topic_that_ends_before_what_was_read_of_it_stops_the_job() -> None:
    """As after an unclean election of a leader: Spark plans such a batch, and would report it as lost data."""
    plans: dict[int, dict[int, int]] = {0: {0: 5, 1: 9}, 1: {0: 7, 1: 4}}
    checkpoint: Any = SimpleNamespace(planned=lambda batch, _: plans[batch])
    group: Any = SimpleNamespace(topic="routed")
    progress: Any = SimpleNamespace(reading=Reading("routed", {}))
    none: Any = None
    beginning = _Beginning(checkpoint, group, none, progress, {}, asyncio.get_running_loop(), none)
    with pytest.raises(Fatal, match=r"routed\[1\] ends at offset 4 and has been read up to 9: the broker has lost"):
        await asyncio.to_thread(beginning.begin, 1)
    assert isinstance(beginning.failure, Fatal), "it is told as it is, not as Spark wraps it"
