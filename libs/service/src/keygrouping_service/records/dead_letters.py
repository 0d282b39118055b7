"""Records that a stage can't take, on their way to `dead-letters`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from prometheus_client import Counter

from keygrouping_service.records.batches import origin_headers
from keygrouping_service.records.protocols import Sink
from keygrouping_service.records.record import DeadLetter


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where one session's dead letters go to."""

    topic: str
    producer: AIOKafkaProducer
    counter: Counter | None = None

    async def write(self, letters: Sequence[DeadLetter], outbox: Sink) -> None:
        """Puts them into an outbox, stamped with the current time: theirs may be what is wrong with them."""
        partitions = len(await self.producer.partitions_for(self.topic))
        now_ms = int(time.time() * 1000)
        for letter in letters:
            record = letter.record
            headers = origin_headers(record, letter.reason, letter.detail)
            headers.append(("keygrouping-timestamp", str(record.timestamp).encode()))
            if letter.last is not None:
                headers.append(("keygrouping-last-offset", str(letter.last).encode()))
            outbox.append(self.topic, record.partition % partitions, now_ms, record.key, record.value, headers)
            if self.counter is not None:
                self.counter.labels(letter.reason).inc()
