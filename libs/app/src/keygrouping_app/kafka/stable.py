"""Whether what a group has committed is stable: no transaction that has ended is still to be shown.

Ending a transaction is answered before its offsets can be seen. Who reads them in between would begin behind what is
done. Brokers since 2.5 tell of such offsets (KIP-447); aiokafka has no version of the request that asks for it yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaTimeoutError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

_UNSTABLE = 88
_PAUSE = 0.02
_SECONDS = 15.0


async def until_stable(client: Any, group: str, tps: Iterable[TopicPartition]) -> None:
    """Returns when no offset of these partitions is held by a transaction; at once where brokers are older than 2.5.

    `client` is that of a started producer. KafkaTimeoutError after 15 s, and the KafkaError of what may not be read.
    """
    wanted: dict[str, list[int]] = {}
    for topic, partition in tps:
        wanted.setdefault(topic, []).append(partition)
    request = _StableOffsetsRequest(group, wanted)
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


async def _held(client: Any, request: _StableOffsetsRequest) -> bool:
    node = await client.coordinator_lookup(CoordinationType.GROUP, request.group)
    answer = await client.send(node, request)
    codes = {answer.error_code, *(entry[4] for _, entries, _ in answer.topics for entry in entries)} - {0}
    for code in codes - {_UNSTABLE}:
        raise for_code(code)(f"the offsets of group {request.group!r} can't be read")
    return bool(codes)


class _OffsetFetchResponseV7(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString()),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchRequestV7(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetchResponseV7
    SCHEMA = Schema(
        ("group", CompactString()),
        (
            "topics",
            CompactArray(("topic", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _StableOffsetsRequest(Request[_OffsetFetchRequestV7]):  # type: ignore[misc]
    API_KEY = 9

    def __init__(self, group: str, partitions: dict[str, list[int]]) -> None:
        self.group = group
        self._partitions = partitions

    def build(self, request_struct_class: type[_OffsetFetchRequestV7]) -> _OffsetFetchRequestV7:
        """The request as it is sent."""
        partitions = self._partitions.items()
        return request_struct_class(self.group, [(topic, numbers, {}) for topic, numbers in partitions], True, {})
