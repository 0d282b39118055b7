from uuid import UUID

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.kafka.requests import TopicIdsRequest
from keygrouping_service.kafka.topic_ids import NO_ID, UNKNOWN, read_topic_ids, topic_id_text
from keygrouping_service.testing import Cluster

pytestmark = pytest.mark.kafka


async def test_a_topic_keeps_its_id_and_one_that_is_made_again_gets_another(cluster: Cluster, application: str) -> None:
    first, other = f"{application}-first", f"{application}-other"
    await cluster.create(**{first: 2, other: 1})
    before = await read_topic_ids(cluster.admin, [first, other])
    assert before[first] != before[other]
    assert NO_ID not in before.values()
    assert all(isinstance(topic_id, UUID) for topic_id in before.values())

    await cluster.recreate(first, 2)

    after = await read_topic_ids(cluster.admin, [first, other])
    assert after[first] != before[first]
    assert after[other] == before[other]


async def test_a_topic_that_does_not_exist_has_no_id_and_is_not_created(cluster: Cluster, application: str) -> None:
    missing = f"{application}-missing"
    assert await read_topic_ids(cluster.admin, [missing]) == {}
    assert await read_topic_ids(cluster.admin, []) == {}
    assert missing not in await cluster.admin.list_topics()


async def test_an_old_broker_has_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(request: TopicIdsRequest, _node: int | None) -> None:
        request.prepare({3: (0, 9)})

    admin = AIOKafkaAdminClient(bootstrap_servers="localhost:1")
    monkeypatch.setattr(admin, "_send_request", refuse)
    assert await read_topic_ids(admin, ["events"]) == {"events": NO_ID}
    assert topic_id_text(NO_ID) == UNKNOWN
