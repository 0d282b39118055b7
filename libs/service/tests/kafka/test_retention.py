"""What retention is about to delete unread is known before it does, and what it deleted is counted from 0 on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import ClusterAuthorizationFailedError
from keygrouping_service.kafka import clients
from keygrouping_service.kafka import runner as running_partitions
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.retention import Retention
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, configure, until
from prometheus_client import REGISTRY

pytestmark = pytest.mark.kafka

HOUR = 3_600_000


@asynccontextmanager
async def running(runner: PartitionRunner) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def expiring(cluster: Cluster, settings: StageSettings, topic: str, unread: dict[int, tuple[int, int]]) -> int:
    async with clients.started(clients.reader(settings, committed=False)) as probe:
        found = await Retention(cluster.admin, probe, topic).expiring(unread, int(time.time() * 1000))
    assert found is not None
    return found


async def keep(cluster: Cluster, topic: str, **settings: int) -> None:
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    await configure(cluster.admin, topic, named)


async def aged(cluster: Cluster, topic: str, ages_ms: list[int]) -> None:
    now = int(time.time() * 1000)
    for age in ages_ms:
        await cluster.producer.send_and_wait(topic, b"v", key=b"k", partition=0, timestamp_ms=now - age)


async def test_records_that_are_older_than_three_quarters_of_the_time_kept_expire(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    await cluster.create(**{topic_prefix: 1})
    await keep(cluster, topic_prefix, retention_ms=4 * HOUR)
    await aged(cluster, topic_prefix, [int(3.5 * HOUR)] * 3 + [HOUR] * 2)
    assert await expiring(cluster, settings, topic_prefix, {0: (1, 5)}) == 2
    assert await expiring(cluster, settings, topic_prefix, {0: (3, 5)}) == 0
    assert await expiring(cluster, settings, topic_prefix, {0: (5, 5)}) == 0
    await keep(cluster, topic_prefix, retention_ms=5 * HOUR)
    assert await expiring(cluster, settings, topic_prefix, {0: (1, 5)}) == 0
    await keep(cluster, topic_prefix, retention_ms=-1)
    assert await expiring(cluster, settings, topic_prefix, {0: (0, 5)}) == 0


async def test_the_oldest_quarter_of_a_topic_of_limited_size_expires_once_something_was_deleted(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    await cluster.create(**{topic_prefix: 1})
    await keep(cluster, topic_prefix, retention_ms=-1, retention_bytes=1 << 30)
    await aged(cluster, topic_prefix, [0] * 50)
    assert await expiring(cluster, settings, topic_prefix, {0: (0, 50)}) == 0
    await cluster.admin.delete_records({TopicPartition(topic_prefix, 0): RecordsToDelete(before_offset=10)})
    assert await expiring(cluster, settings, topic_prefix, {0: (12, 50)}) == 8
    assert await expiring(cluster, settings, topic_prefix, {0: (20, 50)}) == 0


async def test_a_compacted_topic_loses_nothing(cluster: Cluster, settings: StageSettings, topic_prefix: str) -> None:
    await cluster.create(**{topic_prefix: 1})
    await configure(cluster.admin, topic_prefix, {"cleanup.policy": "compact", "retention.ms": str(HOUR)})
    await aged(cluster, topic_prefix, [5 * HOUR])
    assert await expiring(cluster, settings, topic_prefix, {0: (0, 1)}) == 0


async def test_a_stage_shows_what_expires_and_its_losses_from_0_on(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    await cluster.create(**{topic_prefix: 1})
    await keep(cluster, topic_prefix, retention_ms=4 * HOUR)
    await aged(cluster, topic_prefix, [int(3.5 * HOUR)] * 3 + [HOUR] * 2)

    async def work(owned: OwnedPartition) -> None:
        await until(lambda: owned.stopping)

    runner = PartitionRunner(settings, "expiring", topic_prefix, work)

    def value(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"keygrouping_{name}", {"group": runner.group})

    assert value("expired_offsets_total") == 0
    assert {
        value(f"{name}_total") for name in ("commits", "rebalances", "partition_restarts", "transaction_aborts")
    } == {0}
    async with running(runner):
        await until(lambda: value("expiring_records") == 3)


async def test_a_stage_works_on_where_retention_can_not_be_seen(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(**{topic_prefix: 1})
    looked = asyncio.Event()

    async def refused(*_: object) -> int:
        looked.set()
        raise ClusterAuthorizationFailedError

    monkeypatch.setattr(Retention, "expiring", refused)
    monkeypatch.setattr(running_partitions, "_RETENTION_SECONDS", 0.0)
    read: list[bytes | None] = []

    async def work(owned: OwnedPartition) -> None:
        while not owned.stopping:
            read.extend((await owned.poll(10, 0.2)).values)

    runner = PartitionRunner(settings, "refused", topic_prefix, work)
    async with running(runner):
        await asyncio.wait_for(looked.wait(), 60)
        await cluster.write(topic_prefix, [(b"k", b"v")])
        await until(lambda: read == [b"v"])
