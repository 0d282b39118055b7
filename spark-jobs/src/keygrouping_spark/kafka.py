"""Options of Spark's Kafka source, and the JSON in which it speaks of offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping

from keygrouping_spark.settings import SparkSettings

_EARLIEST = -2

_FETCH_WAIT_MS = 20
"""A task seeks in a consumer that the last batch has used. What it fetches then waits behind the fetch that was on its
way, which the broker holds for this long at the end of a partition: 500 ms by default, in each task."""

_POLL_RECORDS, _FETCH_BYTES = 20_000, 2 << 20
"""After each poll Spark asks the broker for the first and the last offset of the partition. With Kafka's defaults,
polls of 500 records from fetches of 1 MiB, a third of the tasks' time was for that. A consumer is kept for each
partition, with what it has fetched and polled."""

_LARGEST_REQUEST = 4 << 20
"""Bytes: a partial holds the event's key, which alone may fill a record of the usual limit."""


def source_options(settings: SparkSettings, topic: str) -> dict[str, str]:
    """Options to read a topic's committed records."""
    return {
        **settings.spark_kafka_options(),
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": str(settings.batch_records),
        "failOnDataLoss": "true",
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
        "kafka.max.poll.records": str(_POLL_RECORDS),
        "kafka.max.partition.fetch.bytes": str(_FETCH_BYTES),
    }


def sink_options(settings: SparkSettings, topic: str) -> dict[str, str]:
    """Options to write to a topic."""
    return {**settings.spark_kafka_options(), "topic": topic, "kafka.max.request.size": str(_LARGEST_REQUEST)}


def json_offsets(topic: str, offsets: Mapping[int, int]) -> str:
    """Starting offsets as Spark's JSON; a negative offset stands for the earliest."""
    return json.dumps({topic: {str(p): offset if offset >= 0 else _EARLIEST for p, offset in offsets.items()}})


def read_offsets(offsets: object, topic: str) -> dict[int, int]:
    """Offsets per partition of one topic from Spark's JSON (of a progress report or checkpoint)."""
    data = json.loads(offsets) if isinstance(offsets, str) else offsets
    found = data.get(topic) if isinstance(data, Mapping) else None
    return {int(partition): int(offset) for partition, offset in found.items()} if isinstance(found, Mapping) else {}
