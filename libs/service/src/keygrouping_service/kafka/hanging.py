"""Transactions that hang: open in a partition, though the coordinator that should end them has forgotten them.

A broker that restarts may take the partitions of a transaction for deleted, and drop its markers. Nobody reads past its
first record then, and no offset that it commits is told, until somebody ends it by Kafka's own tool.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code

from keygrouping_service.kafka.requests import ProducersRequest
from keygrouping_service.records.aiokafka_adapter import send_request

log = logging.getLogger(__name__)

_LONG_SECONDS = 120.0
"""Twice as long as a transaction may take by default (`transaction_timeout`)."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition since offset `start`; its last record there is `age` seconds old."""

    tp: TopicPartition
    producer_id: int
    start: int
    age: float

    def __str__(self) -> str:
        return (
            f"a transaction of producer {self.producer_id} is open in {self.tp.topic}[{self.tp.partition}] since "
            f"offset {self.start}; its last record is {self.age:.0f} s old. If kafka-transactions.sh find-hanging "
            "lists it, its coordinator has forgotten it, and it has to be ended by hand (runbook "
            "KeygroupingPartitionRestarting)"
        )


async def open_transactions(
    admin: AIOKafkaAdminClient, tp: TopicPartition, longer_than: float
) -> list[OpenTransaction]:
    """Those whose last record has a time more than so many seconds ago; none where brokers don't tell (before 2.8).

    Raises KafkaError if the partition may not be described or has no leader now.
    """
    (topic,) = await admin.describe_topics([tp.topic])
    leaders = {partition["partition"]: partition["leader"] for partition in topic["partitions"]}
    try:
        answer = await send_request(admin, ProducersRequest(tp), leaders.get(tp.partition))
    except NotImplementedError:
        return []
    (((_, ((_, code, message, producers, _),), _),)) = answer.topics
    if code:
        raise for_code(code)(message or f"the producers of {tp.topic}[{tp.partition}] can't be described")
    now = time.time()
    return [
        OpenTransaction(tp, producer_id, start, now - last_ms / 1000)
        for producer_id, _, _, last_ms, _, start, _ in producers
        if start >= 0 and now - last_ms / 1000 > longer_than
    ]


async def warn_of_open_transactions(admin: AIOKafkaAdminClient, tp: TopicPartition) -> None:
    """Logs those of a partition that are open for longer than transactions last; to be called by who waits for them."""
    try:
        for transaction in await open_transactions(admin, tp, _LONG_SECONDS):
            log.error("%s", transaction)
    except (KafkaError, TimeoutError) as error:
        log.debug("%s[%d]: cannot list open transactions: %r", *tp, error)
