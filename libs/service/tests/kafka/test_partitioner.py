"""The library's partitioner in a real producer."""

from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer
from keygrouping.partitioner import Partitioner
from keygrouping_service.kafka.clients import started
from keygrouping_service.testing import Cluster

pytestmark = pytest.mark.kafka


async def test_a_producer_spreads_a_hot_key_over_the_partitions(cluster: Cluster, application: str) -> None:
    topic = f"{application}.partitioned"
    await cluster.create(**{topic: 4})
    options = {"bootstrap_servers": cluster.bootstrap_servers, "partitioner": Partitioner("pkg")}
    async with started(AIOKafkaProducer(**options)) as producer:
        for n in range(2000):
            await producer.send(topic, b"value", b"hot" if n % 2 else b"cold-%d" % (n % 40))
        await producer.flush()
    found = Counter((record.key, record.partition) for record in await cluster.read(topic))
    partitions = Counter(key for key, _ in found)
    assert partitions.pop(b"hot") == 2
    assert found.total() == 2000
    assert len(partitions) == 20
    assert max(partitions.values()) <= 2
