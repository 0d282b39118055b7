"""What of `routed` is in no partial yet, where workers read the events themselves."""

import logging
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.leftovers import Leftovers
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import Committed, commit_progress
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster

pytestmark = pytest.mark.kafka


class Routed:
    """A topic `routed` with two partitions, of which the first holds ten records."""

    def __init__(self, cluster: Cluster, settings: StageSettings, probe: AIOKafkaConsumer) -> None:
        self.cluster, self.settings, self.probe = cluster, settings, probe
        self.leftovers = Leftovers(settings)

    async def write(self) -> None:
        await self.cluster.write(self.settings.routed_topic, [(b"k", b"v")] * 10)

    async def left(self) -> int:
        return await self.leftovers.count(self.cluster.admin, self.probe)

    async def commit(self, offset: int) -> None:
        """As a worker does: the offset, and its copy."""
        settings, topic = self.settings, self.settings.routed_topic
        group = settings.group("worker")
        entry = Committed(offset, topic_id=await read_topic_id(self.cluster.admin, topic))
        client = clients.reader(settings, group_id=group)
        async with clients.started(client):
            client.assign([TopicPartition(topic, 0)])
            await commit_progress(client, topic, {0: entry})
        copies = Positions(settings, group)
        await copies.send(self.cluster.producer, [(TopicPartition(topic, 0), entry.encode())])


@pytest.fixture
async def routed(cluster: Cluster, settings: StageSettings, topic_prefix: str) -> AsyncIterator[Routed]:
    settings = settings.model_copy(update={"routed_topic": f"{topic_prefix}-routed"})
    async with clients.started(clients.reader(settings, committed=False)) as probe:
        yield Routed(cluster, settings, probe)


async def test_nothing_is_left_although_the_broker_has_forgotten_the_workers(routed: Routed) -> None:
    """Without members their group's offsets expire, while the end of `routed`, which nobody purges, stays."""
    await routed.cluster.create(**{routed.settings.routed_topic: 2})
    await routed.write()
    await routed.commit(10)
    await routed.cluster.forget(routed.settings.group("worker"))
    assert await routed.left() == 0
    await routed.write()
    assert await routed.left() == 10, "a router still runs"


async def test_what_is_left_is_told_once_per_figure(routed: Routed, caplog: pytest.LogCaptureFixture) -> None:
    await routed.cluster.create(**{routed.settings.routed_topic: 2})
    await routed.write()
    with caplog.at_level(logging.INFO):
        assert [await routed.left() for _ in range(3)] == [10, 10, 10]
        await routed.commit(4)
        assert [await routed.left() for _ in range(2)] == [6, 6]
        await routed.commit(10)
        assert [await routed.left() for _ in range(2)] == [0, 0]
    told = [record.getMessage() for record in caplog.records if record.name.endswith("leftovers")]
    assert [line.split(" ")[0] for line in told] == ["10", "6", "all"]


async def test_an_offset_of_a_topic_that_was_deleted_means_nothing_in_the_next_one(routed: Routed) -> None:
    await routed.cluster.create(**{routed.settings.routed_topic: 2})
    await routed.write()
    await routed.commit(10)
    assert await routed.left() == 0
    await routed.cluster.recreate(routed.settings.routed_topic, 2)
    await routed.write()
    assert await routed.left() == 10


async def test_where_nothing_was_ever_routed_nothing_is_left(routed: Routed) -> None:
    assert await routed.left() == 0
    await routed.cluster.create(**{routed.settings.routed_topic: 2})
    assert await routed.left() == 0
