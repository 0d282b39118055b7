"""The ids of topics: a topic that is deleted and created again has the same name and offsets, but another id."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from uuid import UUID

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code
from keygrouping.partial import NO_TOPIC

from keygrouping_service.kafka.requests import NO_ID, TopicIdsRequest
from keygrouping_service.records.aiokafka_adapter import send_request

__all__ = ["NO_ID", "UNKNOWN", "read_topic_id", "read_topic_id_if_any", "read_topic_ids", "same_topic", "topic_id_text"]


def topic_id_text(topic_id: UUID) -> str:
    """An id as Kafka's own tools show it (`kafka-topics.sh --describe`): 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


UNKNOWN = NO_TOPIC
"""Text of an id that is not known: of a broker without topic ids, or an offset that a tool has committed."""


def same_topic(one: str, other: str) -> bool:
    """Whether two ids (as text) may be of the same topic: they are equal, or one is not known."""
    return one == other or UNKNOWN in (one, other)


async def read_topic_ids(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, UUID]:
    """The id of each topic; topics that don't exist are left out.

    All have `NO_ID` where the brokers are older than 2.8 or give no ids. Raises the KafkaError of a topic that may not
    be described.
    """
    wanted = sorted(set(topics))
    if not wanted:
        return {}
    try:
        answer = await send_request(admin, TopicIdsRequest(wanted))
    except NotImplementedError:
        return dict.fromkeys(wanted, NO_ID)
    found = {}
    for code, topic, topic_id, *_ in answer.topics:
        error = for_code(code)
        if error is UnknownTopicOrPartitionError:
            continue
        if code and error is not LeaderNotAvailableError:
            raise error(f"the id of topic {topic} can't be read")
        found[topic] = topic_id
    return found


async def read_topic_id(admin: AIOKafkaAdminClient, topic: str) -> str:
    """The id of a topic as text; UnknownTopicOrPartitionError (it may be about to be created) if there is none."""
    found = await read_topic_ids(admin, [topic])
    if topic not in found:
        raise UnknownTopicOrPartitionError(f"create the topic {topic!r}")
    return topic_id_text(found[topic])


async def read_topic_id_if_any(admin: AIOKafkaAdminClient, topic: str) -> str:
    """The id of a topic as text; `UNKNOWN` if there is no such topic."""
    found = await read_topic_ids(admin, [topic])
    return topic_id_text(found[topic]) if topic in found else UNKNOWN
