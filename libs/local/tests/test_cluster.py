"""Laws of the embedded cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.cluster import BROKERS, EmbeddedCluster
from keygrouping_local.errors import LocalError

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


async def test_records_are_taken_and_kept_while_any_one_broker_is_gone(
    cluster: EmbeddedCluster, topic_prefix: str
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic_prefix, BROKERS, BROKERS)])
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True
    ) as producer:
        for gone in range(BROKERS):
            cluster.brokers[gone].kill()
            for partition in range(BROKERS):
                await producer.send_and_wait(topic_prefix, b"without %d" % gone, partition=partition)
            cluster.brokers[gone].start()
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic_prefix, partition) for partition in range(BROKERS)])
        await consumer.seek_to_beginning()
        found = sorted([(await consumer.getone()).value for _ in range(BROKERS * BROKERS)])
    await admin.close()
    assert found == sorted(b"without %d" % gone for gone in range(BROKERS) for _ in range(BROKERS))


def test_only_a_running_broker_can_be_frozen(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="broker 1 does not run"):
        EmbeddedCluster(tmp_path).freeze(1)
