"""Laws of the topics of an application."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.topics import delete_topics, environment_of, settings_for
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.kafka.topics import Topic, TopicsSettings, create_topics, prepare, topics_of
from keygrouping_service.settings import ServiceSettings

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(broker: EmbeddedBroker, application: str) -> ServiceSettings:
    return settings_for(broker.bootstrap_servers, application)


@pytest.fixture
async def admin(settings: ServiceSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    async with clients.started(clients.admin(settings)) as client:
        yield client


async def setting(admin: AIOKafkaAdminClient, topic: str, name: str) -> str:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    found = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    return str(found[name])


async def test_topics_have_their_partitions_and_never_expire(
    admin: AIOKafkaAdminClient, settings: ServiceSettings
) -> None:
    wanted = topics_of(settings, partitions=3, max_workers=5)
    await create_topics(admin, wanted)
    counts = {topic.name.rpartition(".")[2]: len(await partitions_of(admin, topic.name)) for topic in wanted}
    ones = {"late": 1, "dead-letters": 1, "positions": 1, "receipts": 1}
    assert counts == {"events": 3, "partials": 3, "routed": 5, "results": 3, **ones}
    for topic in wanted:
        assert await setting(admin, topic.name, "retention.ms") == "-1"
    for compacted in (settings.results_topic, settings.positions_topic):
        assert await setting(admin, compacted, "cleanup.policy") == "compact"
    assert await setting(admin, settings.routed_topic, "cleanup.policy") == "delete"


async def test_creating_twice_changes_nothing(admin: AIOKafkaAdminClient, settings: ServiceSettings) -> None:
    for _ in range(2):
        await create_topics(admin, topics_of(settings))
    assert len(await partitions_of(admin, settings.routed_topic)) == 16


async def test_another_number_of_partitions_is_told_in_one_line(
    admin: AIOKafkaAdminClient, settings: ServiceSettings
) -> None:
    await create_topics(admin, [Topic(settings.routed_topic, 2)])
    with pytest.raises(Fatal, match=f"{settings.routed_topic} has 2 partitions, not 16: delete it") as error:
        await create_topics(admin, topics_of(settings))
    assert "\n" not in str(error.value)


async def test_a_name_that_kafka_refuses_is_told_in_one_line(admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(Fatal, match="can't be created"):
        await create_topics(admin, [Topic("no spaces allowed", 1)])


async def test_only_topics_with_the_prefix_are_deleted(
    admin: AIOKafkaAdminClient, settings: ServiceSettings, application: str
) -> None:
    await create_topics(admin, [*topics_of(settings), Topic(f"{application}2.events", 1)])
    await delete_topics(admin, f"{application}.")

    async def left() -> list[str]:
        return [name for name in await admin.list_topics() if name.startswith(application)]

    # The controller deletes at once, the metadata that clients see follow.
    for _ in range(1000):
        if len(await left()) == 1:
            break
        await asyncio.sleep(0.01)
    assert await left() == [f"{application}2.events"]


def test_the_environment_makes_a_service_use_these_names(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    assert ServiceSettings() == settings


def command(settings: ServiceSettings, **own: object) -> TopicsSettings:
    return TopicsSettings.model_validate(settings.model_dump() | own)


async def test_the_step_of_a_deployment_creates_all_and_then_changes_nothing(
    admin: AIOKafkaAdminClient, settings: ServiceSettings
) -> None:
    for _ in range(2):
        await prepare(command(settings, partitions=2, max_workers=3))
    counts = [len(await partitions_of(admin, topic.name)) for topic in topics_of(settings)]
    assert counts == [2, 2, 3, 2, 1, 1, 1, 1]


async def test_nothing_is_routed_where_workers_combine(admin: AIOKafkaAdminClient, settings: ServiceSettings) -> None:
    await prepare(command(settings, stages="combine"))
    found = {topic.name for topic in topics_of(settings)} & set(await admin.list_topics())
    assert found == {topic.name for topic in topics_of(settings)} - {settings.routed_topic}


async def test_the_users_own_topic_may_have_any_number_of_partitions(
    admin: AIOKafkaAdminClient, settings: ServiceSettings
) -> None:
    await create_topics(admin, [Topic(settings.events_topic, 7)])
    await prepare(command(settings))
    assert len(await partitions_of(admin, settings.events_topic)) == 7


async def test_a_topic_that_must_exist_is_not_created(admin: AIOKafkaAdminClient, settings: ServiceSettings) -> None:
    with pytest.raises(Fatal, match=f"topic {settings.events_topic} does not exist: create it"):
        await prepare(command(settings, create_events=False))
    assert not await partitions_of(admin, settings.events_topic)


def test_the_command_ends_with_0(settings: ServiceSettings) -> None:
    environment = {**os.environ, **environment_of(settings), "KEYGROUPING_TOPICS_MAX_WORKERS": "5"}
    subprocess.run([sys.executable, "-m", "keygrouping_service.kafka.topics"], env=environment, check=True, timeout=300)
