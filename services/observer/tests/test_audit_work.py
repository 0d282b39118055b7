"""The audit's reading, without Kafka."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.reading import Reading
from keygrouping_observer.audit.work import _Session
from keygrouping_observer.settings import ObserverSettings

SETTINGS = ObserverSettings(
    bootstrap_servers="unused:1", job='{"window": 1000, "aggregates": []}', look_interval=0.05, late_topic="tardy"
)


async def test_partitions_that_are_added_are_no_reason_to_look_in_vain_for_ever() -> None:
    books = Books("events", "routed", SETTINGS.job, "r" * 22, lambda: 0)
    reader: Any = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1} if topic == "tardy" else {0})
    source: Any = SimpleNamespace(consumer=reader)
    reading = Reading(SETTINGS, reader, source, reader, books, lambda: False)
    reading.positions = {TopicPartition(topic, 0): 0 for topic in reading.topics}
    owned: Any = SimpleNamespace(stopping=False)
    with pytest.raises(KafkaError, match="tardy has more partitions now"):
        await asyncio.wait_for(_Session(SETTINGS, owned, reader, reading).run(), 60)
