"""The rights that the production manifests give the pipeline's Kafka user: enough for it, and for nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from aiokafka.protocol.admin import CreateAclsRequest
from keygrouping.partial import Result
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.logins import PASSWORD, launched, with_passwords
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.settings import PREFIX
from keygrouping_service.testing import fetch

pytestmark = [pytest.mark.kafka]

KAFKA = Path(__file__).parent.parent / "k8s" / "overlays" / "production" / "kafka.yaml"
MADE = list(yaml.safe_load_all(KAFKA.read_text()))
KINDS = {"topic": 2, "group": 3, "cluster": 4, "transactionalId": 5}
PATTERNS = {"literal": 3, "prefix": 4}
OPERATIONS = {"Read": 3, "Write": 4, "Delete": 6, "Describe": 8, "DescribeConfigs": 10}
ALLOW = 3
FOREIGN = "payroll"
"""A topic of somebody else on the same Kafka."""

WANTED = 300
"""Events that must be in final results."""

JOB = '{"window": "1s", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}'
DEADLINE = 300
SETTINGS = {
    "PRODUCER_WORKLOAD": "country-skew-80",
    "PRODUCER_EVENTS": "1000000",
    "PRODUCER_RATE": "500",
    "QUARANTINE_TOPIC": "quarantine",
    "ROUTER_WORKERS": "2",
    "ROUTER_IDLE_TIMEOUT": "2",
    "OBSERVER_INTERVAL": "1",
    "PURGE_AFTER": "0",
}
SERVICES = ("producer", "router", "worker", "aggregator", "observer")


def client(user: str, address: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that allows nobody what no rule allows, but for its own user."""
    properties = {
        **with_passwords(["keygrouping"]),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
    }
    with launched(EmbeddedBroker(tmp_path / "broker", properties=properties)) as broker:
        yield broker


@pytest.fixture
async def address(broker: EmbeddedBroker) -> AsyncIterator[str]:
    """Of a Kafka with the topics and the user of the manifests, and a topic of somebody else."""
    admin = AIOKafkaAdminClient(**client("broker", broker.bootstrap_servers))
    await started(admin)
    try:
        topics = [(item["metadata"]["name"], item["spec"]) for item in MADE if item["kind"] == "KafkaTopic"]
        new = [
            NewTopic(name, spec["partitions"], 1, topic_configs={k: str(v) for k, v in spec.get("config", {}).items()})
            for name, spec in topics
        ]
        await admin.create_topics([*new, NewTopic(FOREIGN, 1, 1)])
        (user,) = (item["spec"]["authorization"]["acls"] for item in MADE if item["kind"] == "KafkaUser")
        for acl in user:
            await allow(admin, acl)
        yield broker.bootstrap_servers
    finally:
        await admin.close()


async def started(admin: AIOKafkaAdminClient) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await admin.start()
            except KafkaError:
                await asyncio.sleep(0.2)
            else:
                return


async def allow(admin: AIOKafkaAdminClient, acl: dict[str, Any]) -> None:
    resource = acl["resource"]
    kind, name = KINDS[resource["type"]], resource.get("name", "kafka-cluster")
    pattern = PATTERNS[resource.get("patternType", "literal")]
    for operation in acl["operations"]:
        request = CreateAclsRequest(kind, name, pattern, "User:keygrouping", "*", OPERATIONS[operation], ALLOW)
        answer = await send_request(admin, request)
        assert answer.to_object()["creation_responses"][0]["error_code"] == 0, acl


@contextlib.contextmanager
def running(address: str, folder: Path) -> Iterator[list[Path]]:
    """The services as the user of the manifests; gives their logs."""
    given = {
        "BOOTSTRAP_SERVERS": address,
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_USERNAME": "keygrouping",
        "SASL_PASSWORD": PASSWORD,
        "JOB": JOB,
        **SETTINGS,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment |= {f"{PREFIX}{name}": value for name, value in given.items()}
    with contextlib.ExitStack() as stack:
        for service in SERVICES:
            command = [sys.executable, "-m", f"keygrouping_{service}"]
            stack.callback(terminate, spawn(command, folder / f"{service}.log", environment), 30.0)
        yield [folder / f"{service}.log" for service in SERVICES]


async def until_final(address: str) -> None:
    """Returns when so many events are in results, as their owner reads them."""
    counted: dict[tuple[bytes, int], int] = {}
    consumer = AIOKafkaConsumer(**client("broker", address), isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([TopicPartition("results", partition) for partition in range(4)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(DEADLINE):
            while sum(counted.values()) < WANTED:
                for records in (await fetch(consumer, timeout_ms=500)).values():
                    found = [Result.decode(record.value) for record in records]
                    counted |= {(result.key, result.start): result.events for result in found if result.final}
    finally:
        await consumer.stop()


async def until_written_and_purged(address: str) -> None:
    """Returns when the observer has written, and what has been read of `routed` is deleted."""
    consumer = AIOKafkaConsumer(**client("broker", address))
    await consumer.start()
    try:
        written, routed = TopicPartition("distribution", 0), [TopicPartition("routed", worker) for worker in range(2)]
        async with asyncio.timeout(DEADLINE):
            while True:
                first = await consumer.beginning_offsets(routed)
                if (await consumer.end_offsets([written]))[written] and any(first.values()):
                    return
                await asyncio.sleep(0.5)
    finally:
        await consumer.stop()


async def test_the_user_may_do_all_that_the_pipeline_does(address: str, tmp_path: Path) -> None:
    with running(address, tmp_path) as logs:
        try:
            await until_final(address)
            await until_written_and_purged(address)
        except TimeoutError:
            pytest.fail("\n".join(line for log in logs for line in last_lines(log)))
        said = "".join(log.read_text() for log in logs)
    assert "uthoriz" not in said
    assert "premise rights" not in said


async def test_the_user_may_not_touch_what_others_own(address: str) -> None:
    producer = AIOKafkaProducer(**client("keygrouping", address))
    await producer.start()
    try:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(FOREIGN, b"forged")
    finally:
        await producer.stop()
    admin = AIOKafkaAdminClient(**client("keygrouping", address))
    await started(admin)
    try:
        assert FOREIGN not in await admin.list_topics()
        answer = await admin.create_topics([NewTopic("anything", 1, 1)])
        assert [code for _, code, *_ in answer.topic_errors] == [TopicAuthorizationFailedError.errno]
    finally:
        await admin.close()
