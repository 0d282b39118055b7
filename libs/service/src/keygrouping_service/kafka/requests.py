"""Versions of Kafka's requests that aiokafka does not have yet.

A broker that is too old for one of them makes sending it raise NotImplementedError.
"""

from __future__ import annotations

import uuid
from io import BytesIO

from aiokafka import TopicPartition
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)


class Uuid(AbstractType[uuid.UUID]):  # type: ignore[misc]
    """A topic's id on the wire."""

    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        """Its 16 bytes."""
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        """Reads 16 bytes."""
        return uuid.UUID(bytes=data.read(16))


class _MetadataResponseV10(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString()),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequestV10(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponseV10
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", Uuid), ("topic", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


NO_ID = uuid.UUID(int=0)
"""Kafka's own value for "no topic id"."""


class TopicIdsRequest(Request[_MetadataRequestV10]):  # type: ignore[misc]
    """Metadata of some topics with their ids (brokers since 2.8); creates none."""

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequestV10]) -> _MetadataRequestV10:
        """The request as it is sent."""
        return request_struct_class([(NO_ID, topic, {}) for topic in self._topics], False, False, False, {})


class _ProducersResponseV0(Response):  # type: ignore[misc]
    API_KEY = 61
    API_VERSION = 0
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
                        ("error_code", Int16),
                        ("error_message", CompactString()),
                        (
                            "producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("transaction_start_offset", Int64),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ProducersRequestV0(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 61
    API_VERSION = 0
    RESPONSE_TYPE = _ProducersResponseV0
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("tags", TaggedFields),
    )


class ProducersRequest(Request[_ProducersRequestV0]):  # type: ignore[misc]
    """Who writes to a partition, and in which open transactions (brokers since 2.8); for the partition's leader."""

    API_KEY = 61

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp

    def build(self, request_struct_class: type[_ProducersRequestV0]) -> _ProducersRequestV0:
        """The request as it is sent."""
        return request_struct_class([(self._tp.topic, [self._tp.partition], {})], {})
