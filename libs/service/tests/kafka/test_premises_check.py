"""The premises of real brokers: each wrong setting is found, and sound ones are not complained about."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.admin import CreateAclsRequest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.cluster import EmbeddedCluster
from keygrouping_local.topics import settings_for
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.premises import Role, judge, needs_of
from keygrouping_service.kafka.premises_check import checked, read_facts
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.settings import ServiceSettings, StageSettings
from keygrouping_service.testing import until

pytestmark = pytest.mark.kafka

JOB = '{"window": "1h", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}'
READS: tuple[Role, ...] = ("events",)
WRITES: tuple[Role, ...] = ("routed", "partials", "results", "late", "dead_letters", "quarantine")
ANONYMOUS = "User:ANONYMOUS"
TOPIC, CLUSTER = 2, 4
LITERAL = 3
ALL, DESCRIBE_CONFIGS = 2, 10
DENY, ALLOW = 2, 3


def stage_settings(address: str, application: str) -> StageSettings:
    names = settings_for(address, application).model_dump(exclude_unset=True)
    return StageSettings(**names, job=JOB, quarantine_topic=f"{application}-quarantine")


@pytest.fixture
def settings(broker: EmbeddedBroker, application: str) -> StageSettings:
    return stage_settings(broker.bootstrap_servers, application)


@pytest.fixture
async def admin(settings: StageSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    async with clients.started(clients.admin(settings)) as admin:
        yield admin


async def violated(settings: ServiceSettings) -> dict[str, list[str]]:
    """The lines of each check that is not fulfilled."""
    needs = needs_of(settings, READS, WRITES)
    async with clients.started(clients.admin(settings)) as admin:
        told = judge(await clients.retry(lambda: read_facts(admin, needs), "reading the facts"), needs)
    return {check: [finding.text for finding in findings] for check, findings in told.items() if findings}


async def alter(admin: AIOKafkaAdminClient, topic: str, **settings: str) -> None:
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
    ((code, message, *_),) = answer.resources
    assert code == 0, message


async def test_topics_that_were_made_here_need_one_line_on_a_single_broker(
    settings: StageSettings, admin: AIOKafkaAdminClient
) -> None:
    await create_topics(admin, topics_of(settings))
    assert list(await violated(settings)) == ["one-broker"]


async def test_nothing_is_said_of_topics_that_are_not_there_yet(settings: StageSettings) -> None:
    assert list(await violated(settings)) == ["one-broker"]


@pytest.mark.parametrize(
    ("check", "role", "change", "text"),
    [
        ("min-isr", "routed", {"min_insync_replicas": "2"}, "min.insync.replicas=1"),
        ("cleanup-policy", "routed", {"cleanup_policy": "compact"}, "cleanup.policy=delete"),
        ("retention", "routed", {"retention_ms": "604800000"}, "retention.ms=-1"),
        ("timestamp-type", "routed", {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type=CreateTime"),
        ("timestamp-bounds", "routed", {"message_timestamp_after_max_ms": "60000"}, "message.timestamp.after.max.ms="),
        ("record-size", "dead_letters", {"max_message_bytes": "100000"}, "max.message.bytes="),
        ("disk", "late", {"retention_bytes": "-1"}, "retention.bytes="),
        ("disk", "quarantine", {"retention_bytes": "-1"}, "retention.bytes="),
    ],
)
async def test_a_topics_wrong_setting_is_one_line_with_its_fix(
    settings: StageSettings,
    admin: AIOKafkaAdminClient,
    check: str,
    role: Role,
    change: dict[str, str],
    text: str,
) -> None:
    await create_topics(admin, topics_of(settings))
    topic = getattr(settings, f"{role}_topic")
    sound = {"retention_ms": "-1", "message_timestamp_after_max_ms": str(2**63 - 1), "max_message_bytes": "2097152"}
    bounded = {"retention_bytes": "1073741824"} if role in ("late", "dead_letters", "quarantine") else {}
    await alter(admin, topic, **(sound | bounded | change))

    async def found() -> bool:
        return check in await violated(settings)

    await until(found)
    wrong = await violated(settings)
    assert set(wrong) == {check, "one-broker"}
    assert all(topic in line for line in wrong[check])
    assert any(f"--entity-name {topic} --add-config {text}" in line for line in wrong[check])


async def test_a_start_stops_with_all_faults_in_one_line(
    settings: StageSettings, admin: AIOKafkaAdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    await create_topics(admin, topics_of(settings))
    await alter(admin, settings.routed_topic, cleanup_policy="compact", message_timestamp_type="LogAppendTime")

    async def seen() -> bool:
        return {"cleanup-policy", "timestamp-type"} <= set(await violated(settings))

    await until(seen)
    with caplog.at_level(logging.WARNING), pytest.raises(Fatal) as stopped:
        await checked(settings, asyncio.Event(), reads=READS, writes=WRITES)
    assert "cleanup-policy: " in str(stopped.value)
    assert "timestamp-type: " in str(stopped.value)
    assert [record.message for record in caplog.records if record.message.startswith("premise one-broker")]


async def test_a_stop_ends_the_wait_for_a_broker_that_is_away(application: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, stop.set)
    away = stage_settings("127.0.0.1:1", application)
    assert not await asyncio.wait_for(checked(away, stop, reads=READS, writes=WRITES), 20)


# brokers of their own


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker whose settings are all wrong, and which creates topics that are asked for."""
    wrong = {
        "auto.create.topics.enable": "true",
        "offsets.retention.minutes": "60",
        "transaction.max.timeout.ms": "30000",
        "transactional.id.expiration.ms": "60000",
        "transaction.partition.verification.enable": "false",
        "group.max.session.timeout.ms": "8000",
        "offset.metadata.max.bytes": "40",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("forgetful"), properties=wrong) as broker:
        yield broker


async def test_the_wrong_settings_of_a_broker_are_found(forgetful: EmbeddedBroker, application: str) -> None:
    settings = stage_settings(forgetful.bootstrap_servers, application)
    wrong = await violated(settings)
    texts = {
        "offsets-retention": "after 60 minutes: set offsets.retention.minutes=43200",
        "transaction-timeout": "KEYGROUPING_TRANSACTION_TIMEOUT=60 is more than the brokers allow: set it to 30",
        "transactional-ids": "transactional.id.expiration.ms=604800000",
        "transaction-verification": "transaction.partition.verification.enable=true",
        "session-timeout": "KEYGROUPING_SESSION_TIMEOUT=10 is refused by the brokers, which take 6 to 8 seconds",
        "offset-metadata": "offset.metadata.max.bytes=2048",
        "one-broker": "one broker",
    }
    assert set(wrong) == set(texts)
    assert all(text in wrong[check][0] for check, text in texts.items())
    with pytest.raises(Fatal) as stopped:
        await checked(settings, asyncio.Event(), reads=READS, writes=WRITES)
    assert all(
        name in str(stopped.value) for name in ("transaction-timeout: ", "session-timeout: ", "offset-metadata: ")
    )
    async with clients.started(clients.admin(settings)) as admin:
        assert await admin.list_topics() == [], "a check creates no topic"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that goes by its ACLs, and lets everybody do what none speaks of."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        yield broker


async def forbid(admin: AIOKafkaAdminClient, kind: int, name: str, operation: int) -> None:
    for what, verdict in ((ALL, ALLOW), (operation, DENY)):
        request = CreateAclsRequest(kind, name, LITERAL, ANONYMOUS, "*", what, verdict)
        answer = await send_request(admin, request)
        assert answer.to_object()["creation_responses"][0]["error_code"] == 0, answer


async def test_missing_rights_leave_checks_out_and_say_which(guarded: EmbeddedBroker, application: str) -> None:
    settings = stage_settings(guarded.bootstrap_servers, application)
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings))
        await forbid(admin, CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS)
        await forbid(admin, TOPIC, settings.routed_topic, DESCRIBE_CONFIGS)

        async def both_are_hidden() -> bool:
            return len((await violated(settings)).get("rights", [])) == 2

        await until(both_are_hidden)
    wrong = await violated(settings)
    assert set(wrong) == {"rights", "one-broker"}
    assert "the settings of broker 1 can't be read (ClusterAuthorizationFailedError)" in " ".join(wrong["rights"])
    assert f"topic {settings.routed_topic} can't be read" in " ".join(wrong["rights"])
    assert all("grant DescribeConfigs" in line for line in wrong["rights"])
    assert await checked(settings, asyncio.Event(), reads=READS, writes=WRITES)


async def test_copies_on_three_brokers(tmp_path: Path, application: str) -> None:
    with EmbeddedCluster(tmp_path, properties={"min.insync.replicas": "1"}) as brokers:
        settings = stage_settings(brokers.bootstrap_servers, application)
        async with clients.started(clients.admin(settings)) as admin:
            once = {"retention.ms": "-1"}
            await admin.create_topics([NewTopic(settings.events_topic, 1, 1, topic_configs=once)])
            unclean = {"retention.ms": "-1", "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
            await admin.create_topics([NewTopic(settings.routed_topic, 16, 3, topic_configs=unclean)])
            await create_topics(admin, topics_of(settings))
        wrong: dict[str, list[str]] = {}

        async def told() -> bool:
            nonlocal wrong
            wrong = await violated(settings)  # by a broker that may not have heard of each topic yet
            return set(wrong) == {"replication", "min-isr", "unclean-election", "timestamp-bounds"}

        await until(told)
        assert wrong["replication"][0].startswith(f"fewer than 3 replicas of {settings.events_topic} on 3 brokers")
        # What was made here asks for two copies, although the brokers would be content with one.
        weak = f"{settings.routed_topic}, __consumer_offsets"
        assert wrong["min-isr"][0].startswith(f"min.insync.replicas=1 of {weak}: ")
        assert settings.routed_topic in wrong["unclean-election"][0]
