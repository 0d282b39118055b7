"""The Kafkas that come with the manifests fulfil what exactness rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from chart_files import MANIFESTS
from keygrouping.job import JobSpec
from keygrouping_observer.settings import ObserverSettings
from keygrouping_service.kafka.premises import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Facts,
    Role,
    TopicFacts,
    judge,
    needs_of,
)
from keygrouping_service.kafka.topics import topics_of
from keygrouping_service.settings import StageSettings
from keygrouping_spark.settings import SparkSettings

Render = Callable[..., list[dict[str, Any]]]

STRIMZI = [*yaml.safe_load_all((MANIFESTS / "overlays" / "production" / "kafka.yaml").read_text())]
JOB = '{"aggregates": [{"name": "n", "op": "count"}]}'
QUARANTINE = "quarantine"
SETTINGS = StageSettings(bootstrap_servers="none:9", job=JobSpec.from_json(JOB), quarantine_topic=QUARANTINE)
ALL_SETTINGS = (
    SETTINGS,
    ObserverSettings(bootstrap_servers="none:9", job=SETTINGS.job, quarantine_topic=QUARANTINE),
    SparkSettings(bootstrap_servers="none:9", job=SETTINGS.job, checkpoint="file:///none", quarantine_topic=QUARANTINE),
)
ROLES: tuple[Role, ...] = ("events", "routed", "partials", "results", "late", "dead_letters", "quarantine")
REQUESTS = {9: 10, 22: 5}
OF_KAFKA_4 = {
    "transaction.max.timeout.ms": "900000",
    "transaction.partition.verification.enable": "true",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "offset.metadata.max.bytes": "4096",
}
TOPICS_OF_KAFKA_4 = {"message.timestamp.before.max.ms": str(2**63 - 1), "cleanup.policy": "delete"}


def text(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [item for item in STRIMZI if item["kind"] == kind]


def violated(facts: Facts) -> set[str]:
    needs = needs_of(SETTINGS, (), ROLES)
    return {check for check, findings in judge(facts, needs).items() if findings}


def test_strimzis_kafka_and_topics_fulfil_all_premises() -> None:
    (kafka,) = (text(item["spec"]["kafka"]["config"]) for item in of_kind("Kafka"))
    broker = OF_KAFKA_4 | kafka
    inherited = {name: kafka[name] for name in ("min.insync.replicas", "unclean.leader.election.enable")}
    made = {item["metadata"]["name"]: item["spec"] for item in of_kind("KafkaTopic")}
    topics = {
        role: TopicFacts(name, made[name]["replicas"], TOPICS_OF_KAFKA_4 | inherited | text(made[name]["config"]))
        for role in ROLES
        for name in [getattr(SETTINGS, f"{role}_topic")]
    }
    internal = {
        OFFSETS_TOPIC: TopicFacts(OFFSETS_TOPIC, int(kafka["offsets.topic.replication.factor"]), inherited),
        TRANSACTIONS_TOPIC: TopicFacts(
            TRANSACTIONS_TOPIC,
            int(kafka["transaction.state.log.replication.factor"]),
            inherited | {"min.insync.replicas": kafka["transaction.state.log.min.isr"]},
        ),
    }
    facts = Facts(3, dict.fromkeys((0, 1, 2), broker), topics, internal, REQUESTS)
    assert violated(facts) == set()


def test_strimzis_topics_are_those_that_the_program_would_make() -> None:
    made = {item["metadata"]["name"]: item["spec"] for item in of_kind("KafkaTopic")}
    for topic in topics_of(SETTINGS):
        assert (made[topic.name]["partitions"], text(made[topic.name]["config"])) == (topic.partitions, topic.settings)


def test_strimzis_user_has_rights_by_name_alone() -> None:
    values = yaml.safe_load((MANIFESTS / "overlays" / "production" / "values.yaml").read_text())
    assert values["settings"] == {"quarantineTopic": QUARANTINE}, "all other topics have their default names"
    (user,) = of_kind("KafkaUser")
    acls = user["spec"]["authorization"]["acls"]
    by_name = {acl["resource"]["name"]: acl["operations"] for acl in acls if acl["resource"]["type"] == "topic"}
    made = {item["metadata"]["name"] for item in of_kind("KafkaTopic")}
    named = {
        getattr(settings, name) for settings in ALL_SETTINGS for name in type(settings).model_fields if "_topic" in name
    }
    named.discard(None)  # A topic that is not set is none.
    assert set(by_name) == made == named, "what the pipeline reads and writes is made here, and allowed by name"
    assert all(acl["resource"].get("patternType") == "literal" for acl in acls if acl["resource"]["type"] == "topic")
    prefixes = {acl["resource"]["name"] for acl in acls if acl["resource"].get("patternType") == "prefix"}
    assert prefixes == {f"{SETTINGS.application}-", "spark-kafka-"}
    assert {operation for operations in by_name.values() for operation in operations} == {
        *("Describe", "DescribeConfigs", "Read", "Write", "Delete")
    }
    purged = {SETTINGS.routed_topic, SETTINGS.partials_topic, SETTINGS.receipts_topic}
    assert {name for name, operations in by_name.items() if "Delete" in operations} == purged
    (cluster,) = (acl["operations"] for acl in acls if acl["resource"]["type"] == "cluster")
    assert cluster == ["Describe", "DescribeConfigs"]


def test_the_bundled_broker_fulfils_all_premises_but_that_of_one_copy(render: Render) -> None:
    (kafka,) = (
        item for item in render() if item["kind"] == "StatefulSet" and item["metadata"]["name"].endswith("kafka")
    )
    (container,) = kafka["spec"]["template"]["spec"]["containers"]
    given = {
        entry["name"].removeprefix("KAFKA_").lower().replace("_", "."): entry["value"]
        for entry in container["env"]
        if "value" in entry
    }
    single = {"min.insync.replicas": "1"}
    topics = {
        role: TopicFacts(topic.name, 1, TOPICS_OF_KAFKA_4 | single | topic.settings)
        for role in ROLES
        for topic in topics_of(SETTINGS)
        if topic.name == getattr(SETTINGS, f"{role}_topic")
    }
    internal = {TRANSACTIONS_TOPIC: TopicFacts(TRANSACTIONS_TOPIC, 1, single)}
    assert given["transaction.state.log.min.isr"] == "1"
    facts = Facts(1, {1: OF_KAFKA_4 | given}, topics, internal, REQUESTS)
    assert violated(facts) == {"one-broker"}
    assert "offsets.retention.minutes" in given
    assert "transactional.id.expiration.ms" in given
