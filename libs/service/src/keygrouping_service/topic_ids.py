"""The ids of topics: a topic that is deleted and created again has the same name and offsets, but another id."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code

from keygrouping_service.kafka_requests import NO_ID, TopicIdsRequest

__all__ = ["NO_ID", "read_topic_ids"]


async def read_topic_ids(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, UUID]:
    """The id of each topic; topics that don't exist are left out.

    All have `NO_ID` where the brokers are older than 2.8 or give no ids. Raises the KafkaError of a topic that may not
    be described.
    """
    wanted = sorted(set(topics))
    if not wanted:
        return {}
    try:
        answer = await admin._send_request(TopicIdsRequest(wanted))
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
