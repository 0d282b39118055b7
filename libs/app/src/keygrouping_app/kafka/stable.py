"""Whether what a group has committed is stable: no transaction that has ended is still to be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaTimeoutError, for_code
from keygrouping_kafka.stable_offsets import StableOffsetsRequest

_PAUSE = 0.02
_SECONDS = 15.0


async def until_stable(client: Any, group: str, tps: Iterable[TopicPartition]) -> None:
    """Returns when no offset of these partitions is held by a transaction; at once where brokers are older than 2.5.

    `client` is that of a started producer. KafkaTimeoutError after 15 s, and the KafkaError of what may not be read.
    """
    wanted: dict[str, list[int]] = {}
    for topic, partition in tps:
        wanted.setdefault(topic, []).append(partition)
    request = StableOffsetsRequest(group, wanted)
    try:
        async with asyncio.timeout(_SECONDS):
            while True:
                if not await _held(client, request):
                    return
                await asyncio.sleep(_PAUSE)
    except NotImplementedError:
        return
    except TimeoutError:
        raise KafkaTimeoutError(f"a transaction that commits offsets of group {group!r} does not end") from None


async def _held(client: Any, request: StableOffsetsRequest) -> bool:
    node = await client.coordinator_lookup(CoordinationType.GROUP, request.group)
    answer = await client.send(node, request)
    codes = {answer.error_code, *(entry[4] for _, entries, _ in answer.topics for entry in entries)} - {0}
    for code in codes - {StableOffsetsRequest.UNSTABLE}:
        raise for_code(code)(f"the offsets of group {request.group!r} can't be read")
    return bool(codes)
