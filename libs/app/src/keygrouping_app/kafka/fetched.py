"""Has a consumer give records as aiokafka's compiled reader makes them, with no object of the client's own around each.

Those objects cost more than all else that reading takes. What an event needs of them, its topic and partition, it has
from its source.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchResult

from keygrouping_app.events import Raw


def give_bare_records(consumer: AIOKafkaConsumer) -> None:
    """From now on `getmany` gives `Raw` records; the consumer has been started, and nothing fetched yet."""
    consumer._fetcher._records = _Fetched()


class _Fetched(OrderedDict[TopicPartition, Any]):
    """What was fetched and not given yet, as results or errors."""

    def __setitem__(self, tp: TopicPartition, fetched: Any) -> None:
        if isinstance(fetched, FetchResult):
            fetched._partition_records._consumer_record = _bare
        super().__setitem__(tp, fetched)


def _bare(_: TopicPartition, record: Raw) -> Raw:
    return record
