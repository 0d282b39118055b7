"""Records that are left out, on their way to the dead letters."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.events.sorting import largest_records, size_of
from keygrouping_service.records.batches import Outbox, origin_headers
from keygrouping_service.records.record import Record, truncated

from keygrouping_spark import metrics
from keygrouping_spark.settings import SparkSettings

log = logging.getLogger(__name__)

_CHUNK = 5_000
"""Records after which the event loop gets its turn."""


class Refused(NamedTuple):
    """A record that goes to the dead letters, the reason, and what is wrong with it in one line."""

    record: Record
    reason: str
    detail: str


async def largest_letter(admin: AIOKafkaAdminClient, settings: SparkSettings) -> int:
    """Bytes of the largest record that the topic of dead letters takes; any number if it doesn't tell."""
    topic = settings.dead_letters_topic
    return (await largest_records(admin, topic)).get(topic, sys.maxsize)


async def append_refused(outbox: Outbox, topic: str, refused: Sequence[Refused], largest: int) -> None:
    """Puts them into the outbox, for the topic of dead letters; of one that is too large what of it is small."""
    for count, (record, reason, detail) in enumerate(refused, 1):
        headers = origin_headers(record, reason, detail)
        kept = record
        if size_of(record, headers) > largest:
            kept = truncated(record)
            headers = origin_headers(kept, reason, detail)
        outbox.append(topic, 0, kept.timestamp, kept.key, kept.value, headers)
        if count % _CHUNK == 0:
            await asyncio.sleep(0)


def count_refused(refused: Sequence[Refused]) -> None:
    """Tells of those that have been written."""
    for reason, count in Counter(each.reason for each in refused).items():
        metrics.DEAD.labels(reason).inc(count)
    record, _, detail = refused[0]
    log.warning("%d records of %s are unusable and went to dead letters, %s", len(refused), record.topic, detail)
