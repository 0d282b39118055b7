"""Asks the brokers what the premises are judged by, and says what was found: in the log and as a metric."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import ApiVersionRequest

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.premises import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Facts,
    Finding,
    Needs,
    Role,
    TopicFacts,
    judge,
    needs_of,
)
from keygrouping_service.observability import metrics
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
"""A broker that is listed and does not answer must not hold up a start."""

_GRANT = "grant DescribeConfigs to the user of the service"

_INTERNAL = {
    OFFSETS_TOPIC: ("offsets.topic", "min.insync.replicas"),
    TRANSACTIONS_TOPIC: ("transaction.state.log", "transaction.state.log.min.isr"),
}
"""The brokers' own topics: what the settings of their replicas begin with, and that of their in-sync replicas."""


async def checked(
    settings: ServiceSettings, stop: asyncio.Event, *, reads: Iterable[Role], writes: Iterable[Role]
) -> bool:
    """Checks the premises of a service once Kafka can be reached; False if `stop` was set before.

    Raises `Fatal` with all faults for which results would be wrong; the others are warnings in the log.
    """
    needs = needs_of(settings, reads, writes)
    checking = asyncio.create_task(clients.retry(lambda: check_premises(settings, needs), "checking the premises"))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([checking, stopping], return_when=asyncio.FIRST_COMPLETED)
        if checking.done():
            checking.result()
        return checking.done()
    finally:
        for task in (checking, stopping):
            task.cancel()
        await asyncio.gather(checking, stopping, return_exceptions=True)


async def check_premises(settings: ServiceSettings, needs: Needs) -> None:
    """Reads, judges and tells, once; raises `Fatal`, or a KafkaError while the cluster can't be asked."""
    async with clients.started(clients.admin(settings)) as admin:
        found = judge(await read_facts(admin, needs), needs)
    tell(found)


def tell(found: Mapping[str, Sequence[Finding]]) -> None:
    """Warnings to the log, all checks to the metric; raises `Fatal` with everything that is fatal."""
    for check, findings in found.items():
        metrics.PREMISE.labels(check).set(0 if findings else 1)
        for finding in findings:
            if not finding.fatal:
                log.warning("premise %s: %s", check, finding.text)
    fatal = [f"{check}: {finding.text}" for check, findings in found.items() for finding in findings if finding.fatal]
    if fatal:
        raise Fatal("results could not be exact here: " + "; ".join(fatal))


async def read_facts(admin: AIOKafkaAdminClient, needs: Needs) -> Facts:
    """What the cluster tells of itself; what can't be read is in `hidden`.

    Raises a KafkaError that passes while the brokers do not all know a topic that was created just before.
    """
    nodes = [broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]]
    names = [*(needs.names[role] for role in needs.roles), *_INTERNAL]
    replicas = await _replicas(admin, names)
    there = [name for name in names if name in replicas]
    hidden: list[str] = []
    settings = await _topic_settings(admin, there, hidden)
    topics = {name: TopicFacts(name, replicas[name], settings.get(name)) for name in there}
    brokers = await asyncio.gather(*(_broker_settings(admin, node, hidden) for node in nodes))
    told = {node: given for node, given in zip(nodes, brokers, strict=True) if given is not None}
    return Facts(
        nodes=len(nodes),
        brokers=told,
        topics={role: topics[needs.names[role]] for role in needs.roles if needs.names[role] in topics},
        internal=_internal_to_come(next(iter(told.values()), None))
        | {n: t for n, t in topics.items() if n in _INTERNAL},
        requests=await _requests(admin),
        hidden=tuple(hidden),
    )


def _internal_to_come(broker: Mapping[str, str] | None) -> dict[str, TopicFacts]:
    """The brokers' own topics as they will be created: on a new cluster they are not there at the first start.

    Without those of which the broker does not tell how: what speaks Kafka's protocol need not have all its settings.
    """
    given = broker or {}
    return {
        name: TopicFacts(
            name,
            int(given[replicas]),
            {"min.insync.replicas": given[least], "unclean.leader.election.enable": "false"},
        )
        for name, (prefix, least) in _INTERNAL.items()
        if (replicas := f"{prefix}.replication.factor") in given and least in given
    }


async def _replicas(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, int]:
    """The fewest replicas of a partition, of the topics that exist and may be seen.

    All are described: of those that are asked for by name, a broker may create the missing ones.
    """
    described = await admin.describe_topics()
    return {
        topic["topic"]: min(len(partition["replicas"]) for partition in topic["partitions"])
        for topic in described
        if topic["topic"] in names and topic["partitions"]
    }


async def _topic_settings(
    admin: AIOKafkaAdminClient, names: Sequence[str], hidden: list[str]
) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    found: dict[str, dict[str, str]] = {}
    for answer in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names]):
        for code, _, _, name, entries, *_ in answer.resources:
            if code == UnknownTopicOrPartitionError.errno:
                raise UnknownTopicOrPartitionError(f"topic {name} is not known to all brokers yet")
            if code:
                hidden.append(f"the settings of topic {name} can't be read ({for_code(code).__name__}): {_GRANT}")
            else:
                found[name] = _values(entries)
    return found


async def _broker_settings(admin: AIOKafkaAdminClient, node: int, hidden: list[str]) -> dict[str, str] | None:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(node))])
    except (KafkaError, TimeoutError) as error:
        hidden.append(f"broker {node} does not tell its settings ({type(error).__name__}): see whether it runs")
        return None
    ((code, _, _, _, entries, *_),) = answer.resources
    if code:
        hidden.append(f"the settings of broker {node} can't be read ({for_code(code).__name__}): {_GRANT}")
        return None
    return _values(entries)


def _values(entries: Iterable[Sequence[Any]]) -> dict[str, str]:
    return {name: value for name, value, *_ in entries if value is not None}


async def _requests(admin: AIOKafkaAdminClient) -> dict[int, int]:
    answer = await send_request(admin, ApiVersionRequest())
    return {number: newest for number, _, newest in answer.api_versions}
