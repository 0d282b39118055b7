"""A look at offsets, of whichever topic workers read."""

import pytest
from aiokafka import TopicPartition
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_observer.offsets import Look, look
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed, commit_progress
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.settings import StagesSettings
from keygrouping_service.testing import Cluster

pytestmark = pytest.mark.kafka


async def commit(settings: StagesSettings, group: str, topic: str, entry: Committed) -> None:
    client = clients.reader(settings, group_id=settings.group(group))
    async with clients.started(client):
        client.assign([TopicPartition(topic, 0)])
        await commit_progress(client, topic, {0: entry})


async def test_topics_that_workers_read_before_are_known_as_long_as_they_are_there(
    broker: EmbeddedBroker, topic_prefix: str
) -> None:
    names = {f"{name}_topic": f"{topic_prefix}-{name}" for name in ("events", "routed", "partials")}
    servers = broker.bootstrap_servers
    routing = StagesSettings(bootstrap_servers=servers, application=topic_prefix).model_copy(update=names)
    combining = routing.model_copy(update={"stages": "combine"})
    async with Cluster(servers) as cluster, clients.started(clients.reader(routing, committed=False)) as probe:
        await cluster.create(**{routing.events_topic: 2, routing.routed_topic: 1, routing.partials_topic: 1})
        events, routed = [await read_topic_id(cluster.admin, t) for t in (routing.events_topic, routing.routed_topic)]
        await cluster.write(routing.events_topic, [(b"k", b"v")] * 9)

        async def seen(settings: StagesSettings) -> Look:
            return await clients.retry(lambda: look(settings, cluster.admin, probe, 0), "reading offsets")

        assert (await seen(combining)).topics == frozenset(), "nothing is known before anything is committed"
        await commit(routing, "router", routing.events_topic, Committed(7, topic_id=events))
        found = await seen(combining)
        both = {events: routing.events_topic, routed: routing.routed_topic}
        assert found == Look(0, {(events, 0): 7}, [2, 0], {0: 0}, frozenset({events, routed}), events, both)
        assert (await seen(routing)).topics == frozenset(), "no worker has said yet which topic it reads"
        await commit(routing, "worker", routing.routed_topic, Committed(0, topic_id=routed))
        found = await seen(routing)
        committed = {(events, 0): 7, (routed, 0): 0}
        assert found == Look(0, committed, [0], {0: 0}, frozenset({events, routed}), routed, both)
        await cluster.forget(routing.group("worker"))
        assert routed in (await seen(combining)).topics, "the broker forgets groups, while partials stay"
