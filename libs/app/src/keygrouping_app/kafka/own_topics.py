"""The topics that an app creates for itself: how one is created, and what its settings are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from keygrouping_app.kafka.ranges import partitions_of

log = logging.getLogger(__name__)

_SAFE_COPIES = 3
_LOOKS, _LOOK_SECONDS = 100, 0.1


class Size(NamedTuple):
    """Of a topic: its partitions, and the copies of each."""

    partitions: int
    copies: int


async def size_of(admin: AIOKafkaAdminClient, topic: str) -> Size:
    """Of a topic that exists. The broker that is asked may yet have to hear of it."""
    for _ in range(_LOOKS):
        (described,) = await admin.describe_topics([topic])
        if described["partitions"]:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return Size(len(described["partitions"]), len(described["partitions"][0]["replicas"]))


async def create(admin: AIOKafkaAdminClient, name: str, size: Size, settings: Mapping[str, str], why: str) -> list[str]:
    """Creates a topic unless it exists; gives what is wrong. `why`: what it is for, as told then.

    With three copies or more, what is acknowledged is in two of them at least.
    """
    if name in await admin.list_topics():
        return []
    safe = {"min.insync.replicas": "2"} if size.copies >= _SAFE_COPIES else {}
    topic = NewTopic(name, size.partitions, size.copies, topic_configs={**settings, **safe})
    answer = await admin.create_topics([topic])
    for _, code, *reason in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            configs = " ".join(f"--config {setting}={value}" for setting, value in topic.topic_configs.items())
            return [
                f"topic {name!r}, {why}, can't be created: {(reason or [None])[0] or error.__name__}. "
                f"Create it: kafka-topics --create --topic {name} --partitions {size.partitions} "
                f"--replication-factor {size.copies} {configs}"
            ]
    return []


async def until_known(admin: AIOKafkaAdminClient, topic: str) -> list[TopicPartition]:
    """The partitions of a topic that may have been created just now, when the broker that is asked has heard of it."""
    for _ in range(_LOOKS):
        if found := await partitions_of(admin, [topic]):
            return found
        await asyncio.sleep(_LOOK_SECONDS)
    return []


async def config_of(admin: AIOKafkaAdminClient, name: str) -> dict[str, str]:
    """A topic's settings; empty if we may not know them. The broker that is asked may yet have to hear of the topic."""
    for _ in range(_LOOKS):
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        ((code, _, _, _, entries),) = answer.resources
        if code != UnknownTopicOrPartitionError.errno:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    if code:
        log.warning("the settings of topic %s can't be read: %s", name, for_code(code).__name__)
        return {}
    return {entry[0]: entry[1] for entry in entries}
