from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import UnknownTopicOrPartitionError
from keygrouping.job import JobSpec
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.premises import CHECKS, Facts, Finding, Needs, Role, TopicFacts, judge, needs_of
from keygrouping_service.kafka.premises_check import read_facts, tell
from keygrouping_service.kafka.topics import topics_of
from keygrouping_service.observability import metrics
from keygrouping_service.settings import StageSettings

UNBOUNDED = str(2**63 - 1)
TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": UNBOUNDED,
    "message.timestamp.after.max.ms": UNBOUNDED,
    "max.message.bytes": "2097152",
}
BROKER = {
    "offsets.retention.minutes": "525600",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "transaction.partition.verification.enable": "true",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "offset.metadata.max.bytes": "4096",
}
NAMES: dict[Role, str] = {
    "events": "events",
    "routed": "routed",
    "partials": "partials",
    "results": "results",
    "late": "late",
    "quarantine": "quarantine",
    "dead_letters": "dead-letters",
    "positions": "positions",
}
JOB = JobSpec.from_json('{"window": "1h", "lateness": "1m", "aggregates": [{"name": "n", "op": "count"}]}')
NEEDS = Needs(
    ("events",),
    ("routed", "partials", "results", "late", "dead_letters", "quarantine", "positions"),
    NAMES,
    60,
    10,
    1 << 20,
    JOB,
)


def topic(role: Role, replicas: int = 3, **settings: str) -> TopicFacts:
    bound = {"retention.bytes": "1000"} if role in ("late", "dead_letters", "quarantine") else {}
    compacted = {"cleanup.policy": "compact"} if role in ("results", "positions") else {}
    return TopicFacts(NAMES[role], replicas, TOPIC | bound | compacted | settings)


def facts(changed: Mapping[Role, TopicFacts] | None = None) -> Facts:
    internal = {name: TopicFacts(name, 3, TOPIC) for name in ("__consumer_offsets", "__transaction_state")}
    topics = {role: topic(role) for role in NAMES} | dict(changed or {})
    return Facts(3, dict.fromkeys((1, 2, 3), BROKER), topics, internal, {9: 10, 22: 5})


def violated(found: Facts, needs: Needs = NEEDS) -> dict[str, list[Finding]]:
    return {check: findings for check, findings in judge(found, needs).items() if findings}


def with_broker(**settings: str) -> Facts:
    return replace(facts(), brokers={1: BROKER, 2: BROKER | {n.replace("_", "."): v for n, v in settings.items()}})


def with_topic(role: Role, replicas: int = 3, **settings: str) -> Facts:
    return facts({role: topic(role, replicas, **{name.replace("_", "."): v for name, v in settings.items()})})


def test_a_sound_cluster_violates_nothing_and_every_check_is_done() -> None:
    assert judge(facts(), NEEDS) == {check: [] for check in CHECKS}


CASES: list[tuple[str, bool, Facts, str]] = [
    ("one-broker", False, replace(facts(), nodes=1), "one broker"),
    ("broker-version", True, replace(facts(), requests={9: 1}), "upgrade Kafka"),
    ("broker-version", False, replace(facts(), requests={9: 6, 22: 1}), "older than Kafka 2.5"),
    ("offsets-retention", False, with_broker(offsets_retention_minutes="10080"), "copies in positions"),
    ("offsets-retention", False, with_broker(offsets_retention_minutes="10080"), "offsets.retention.minutes=43200"),
    ("transaction-timeout", True, with_broker(transaction_max_timeout_ms="30000"), "set it to 30 or less"),
    (
        "transactional-ids",
        False,
        with_broker(transactional_id_expiration_ms="60000"),
        "transactional.id.expiration.ms=",
    ),
    (
        "transaction-verification",
        False,
        with_broker(transaction_partition_verification_enable="false"),
        "transaction.partition.verification.enable=true",
    ),
    ("session-timeout", True, with_broker(group_min_session_timeout_ms="20000"), "20 to 1800 seconds"),
    ("session-timeout", True, with_broker(group_max_session_timeout_ms="9000"), "6 to 9 seconds"),
    ("offset-metadata", True, with_broker(offset_metadata_max_bytes="40"), "offset.metadata.max.bytes=2048"),
    ("replication", False, with_topic("routed", 2), "fewer than 3 replicas of routed on 3 brokers"),
    ("min-isr", True, with_topic("routed", min_insync_replicas="4"), "min.insync.replicas=2"),
    ("min-isr", False, with_topic("events", min_insync_replicas="1"), "min.insync.replicas=1 of events"),
    (
        "unclean-election",
        False,
        with_topic("partials", unclean_leader_election_enable="true"),
        "--entity-name partials",
    ),
    ("cleanup-policy", False, with_topic("events", cleanup_policy="compact"), "events is compacted"),
    ("cleanup-policy", True, with_topic("routed", cleanup_policy="compact"), "--add-config cleanup.policy=delete"),
    ("cleanup-policy", True, with_topic("late", cleanup_policy="compact,delete"), "late is compacted"),
    ("cleanup-policy", True, with_topic("positions", cleanup_policy="delete"), "positions --add-config cleanup"),
    ("cleanup-policy", True, with_topic("positions", cleanup_policy="compact,delete"), "deletes copies of offsets"),
    (
        "retention",
        True,
        with_topic("routed", retention_ms="604800000"),
        "--entity-name routed --add-config retention.ms=-1",
    ),
    ("retention", True, with_topic("partials", retention_ms="3660000"), "be their windows open"),
    ("retention", False, with_topic("partials", retention_ms="3660001"), "--entity-name partials"),
    ("retention", False, with_topic("late", retention_ms="1000"), "late deletes records after 1 seconds"),
    ("retention", False, with_topic("results", cleanup_policy="delete", retention_ms="7200000"), "after 2 hours"),
    ("retention", False, with_topic("routed", retention_bytes="1000"), "retention.bytes=-1"),
    ("timestamp-type", True, with_topic("routed", message_timestamp_type="LogAppendTime"), "=CreateTime"),
    ("timestamp-type", False, with_topic("late", message_timestamp_type="LogAppendTime"), "late replaces"),
    ("timestamp-bounds", True, with_topic("routed", message_timestamp_before_max_ms="1"), f"before.max.ms={UNBOUNDED}"),
    ("timestamp-bounds", True, with_topic("routed", message_timestamp_after_max_ms="3599999"), "ahead of the clock"),
    ("timestamp-bounds", False, with_topic("routed", message_timestamp_after_max_ms="3600000"), "after.max.ms"),
    ("timestamp-bounds", False, with_topic("dead_letters", message_timestamp_after_max_ms="1"), "dead-letters refuses"),
    (
        "record-size",
        False,
        with_topic("events", max_message_bytes="3000000"),
        "does not take all that fits into events",
    ),
    ("record-size", False, with_topic("partials", max_message_bytes="1000"), "BATCH_BYTES is 1048576"),
    ("disk", False, with_topic("late", retention_bytes="-1"), "late grows without end"),
    ("rights", False, replace(facts(), hidden=("broker 1 does not tell",)), "tell; the checks that need it"),
]


@pytest.mark.parametrize(("check", "fatal", "found", "text"), CASES)
def test_each_premise_that_is_not_given_is_told_with_its_fix(check: str, fatal: bool, found: Facts, text: str) -> None:
    wrong = violated(found)
    assert list(wrong) == [check]
    assert any(text in finding.text and finding.fatal == fatal for finding in wrong[check]), wrong


def test_every_check_has_a_case() -> None:
    assert {check for check, *_ in CASES} == set(CHECKS)


def test_times_in_a_field_do_not_depend_on_the_timestamps_of_routed() -> None:
    job = JobSpec.from_json('{"time": {"field": "at"}, "aggregates": [{"name": "n", "op": "count"}]}')
    (finding,) = violated(with_topic("routed", message_timestamp_type="LogAppendTime"), replace(NEEDS, job=job))[
        "timestamp-type"
    ]
    assert not finding.fatal


def test_what_may_not_be_read_is_neither_right_nor_wrong() -> None:
    hidden = {role: TopicFacts(name, 3, None) for role, name in NAMES.items()}
    unknown = replace(facts(), brokers={}, topics=hidden, hidden=("nothing is told",))
    told = judge(unknown, NEEDS)
    assert set(told) == {"rights", "broker-version", "one-broker", "replication"}


def test_only_what_has_one_copy_needs_brokers_that_keep_the_ends_of_transactions() -> None:
    newer = {9: 10, 22: 5, 35: 5}
    assert not violated(replace(facts(), requests=newer))
    alone = violated(replace(facts(), nodes=1, requests=newer))
    assert set(alone) == {"one-broker", "broker-version"}
    assert "run 4.2" in alone["broker-version"][0].text and not alone["broker-version"][0].fatal
    assert "broker-version" in violated(replace(with_topic("routed", 1), requests=newer))
    assert set(violated(replace(facts(), nodes=1, requests=newer | {35: 4}))) == {"one-broker"}


def test_two_brokers_can_hold_two_copies() -> None:
    single = topic("routed", 1, **{"min.insync.replicas": "1"})
    assert list(violated(replace(facts({"routed": single}), nodes=2))) == ["replication"]


def test_all_faults_stand_in_one_line_and_warnings_name_their_check(caplog: pytest.LogCaptureFixture) -> None:
    found: dict[str, Any] = {
        "disk": [Finding("a is full")],
        "retention": [Finding("b goes", fatal=True)],
        "min-isr": [Finding("c fails", fatal=True)],
        "rights": [],
    }
    with pytest.raises(Fatal) as stopped:
        tell(found)
    assert "retention: b goes; min-isr: c fails" in str(stopped.value)
    assert [record.message for record in caplog.records] == ["premise disk: a is full"]
    shown = {check: metrics.PREMISE.labels(check)._value.get() for check in found}
    assert shown == {"disk": 0, "retention": 0, "min-isr": 0, "rights": 1}


@pytest.mark.parametrize("aside", [None, "aside"])
def test_the_quarantine_topic_is_made_and_judged_if_there_is_one(aside: str | None) -> None:
    settings = StageSettings(bootstrap_servers="none:9", job=JOB, quarantine_topic=aside)
    needs = needs_of(settings, ("events",), ("routed", "quarantine"))
    wanted = {"aside"} if aside else set()
    assert set(needs.names.values()) == {"events", "routed"} | wanted
    assert needs.writes == ("routed", "quarantine")[: 1 + len(wanted)]
    assert {topic.name for topic in topics_of(settings)} & {"aside"} == wanted


class OtherBrokers:
    """Stands for the admin client of brokers that speak the protocol and have few of Kafka's settings."""

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"node_id": 1}]}

    async def describe_topics(self) -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": [{"replicas": [1]}]} for name in [*NAMES.values(), "another"]]

    async def describe_configs(self, asked: list[Any]) -> list[Any]:
        return [SimpleNamespace(resources=[(0, None, 0, each.name, [("log.dirs", "/data")]) for each in asked])]

    async def _send_request(self, *_: object) -> Any:
        return SimpleNamespace(api_versions=[(9, 0, 8), (22, 0, 4)])


async def test_brokers_that_tell_few_settings_stop_no_start() -> None:
    brokers: Any = OtherBrokers()
    facts = await read_facts(brokers, NEEDS)
    assert facts.brokers == {1: {"log.dirs": "/data"}} and facts.internal == {}
    tell(judge(facts, NEEDS))


class SlowBrokers(OtherBrokers):
    """One knows a topic that the other has not heard of, which does not tell its settings either."""

    behind = True

    async def describe_configs(self, asked: list[Any]) -> list[Any]:
        if asked[0].resource_type is ConfigResourceType.BROKER:
            raise TimeoutError
        behind, self.behind = self.behind, False
        return [SimpleNamespace(resources=[(3 if behind else 0, None, 0, each.name, []) for each in asked])]


async def test_brokers_that_have_not_heard_of_a_topic_are_asked_later_and_no_right_is_said_to_be_missing() -> None:
    brokers: Any = SlowBrokers()
    with pytest.raises(UnknownTopicOrPartitionError) as unknown:
        await read_facts(brokers, NEEDS)
    assert can_be_retried(unknown.value)
    facts = await read_facts(brokers, NEEDS)
    assert facts.hidden == ("broker 1 does not tell its settings (TimeoutError): see whether it runs",)
