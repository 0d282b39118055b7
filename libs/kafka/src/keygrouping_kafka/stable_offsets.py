"""The request for a group's offsets that waits for no transaction: it tells which offsets one still holds.

Ending a transaction is answered before its offsets can be seen. Who reads them in between would begin behind what is
done. Brokers since 2.5 tell of such offsets (KIP-447); aiokafka has no version of the request that asks for it yet.
Sending it to an older broker raises NotImplementedError.
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields


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


class StableOffsetsRequest(Request[_OffsetFetchRequestV7]):  # type: ignore[misc]
    """Committed offsets of a group (brokers since 2.5); error `UNSTABLE` where a transaction still holds another."""

    API_KEY = 9
    UNSTABLE = 88

    def __init__(self, group: str, partitions: dict[str, list[int]]) -> None:
        self.group = group
        """Whose offsets are asked for."""
        self._partitions = partitions

    def build(self, request_struct_class: type[_OffsetFetchRequestV7]) -> _OffsetFetchRequestV7:
        """The request as it is sent."""
        topics = self._partitions.items()
        return request_struct_class(self.group, [(topic, numbers, {}) for topic, numbers in topics], True, {})
