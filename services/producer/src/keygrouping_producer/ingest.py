"""Takes events from outside: an idempotent producer that answers only when the broker has them, or soon says no."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordTooLargeError
from keygrouping_service import kafka, metrics, tracing
from keygrouping_service.batches import Outbox, partition_of
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import from_json, to_json

from keygrouping_producer.settings import ProducerSettings

log = logging.getLogger(__name__)

_LARGEST_TIME = 253_402_300_799_999


class Event(BaseModel):
    """An event as it comes by HTTP: key text or null, any JSON as value, headers of text, timestamp in ms."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: StrictStr | None = None
    value: Any
    headers: dict[str, StrictStr] = {}
    timestamp: Annotated[StrictInt, Field(ge=0, le=_LARGEST_TIME)] | None = None

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        if self.key is None and self.value is None:
            raise ValueError("key and value are both null")
        return self


class Record(BaseModel):
    """An event in bytes; a null value stays null."""

    model_config = ConfigDict(frozen=True)

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int | None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return (
            len(self.key or b"")
            + len(self.value or b"")
            + sum(len(name.encode()) + len(value) for name, value in self.headers)
        )


def parse(text: bytes) -> Record:
    """One event from its JSON; raises ValueError (pydantic's ValidationError among them) if it is none."""
    event = Event.model_validate(from_json(text, allow_inf_nan=False))
    return Record(
        key=None if event.key is None else event.key.encode(),
        value=None if event.value is None else to_json(event.value),
        headers=[(name, value.encode()) for name, value in event.headers.items()],
        timestamp=event.timestamp,
    )


class Unavailable(Exception):
    """The broker did not acknowledge in time; some of the events may still be there."""


class Refused(Exception):
    """The broker takes no event as large as this."""


class Ingest:
    """Writes requests' events, in their order; keys by Kafka's default partitioner, keyless round robin.

    Memory is bounded: requests waiting for the broker hold at most `max_pending_bytes`; when the broker does not
    answer, the producer is dropped with all it holds, and requests are refused until a new one is connected.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._dropped = asyncio.Event()
        self._pending = 0
        self._turn = itertools.count()

    @property
    def ready(self) -> bool:
        """Whether a producer is connected."""
        return self._producer is not None

    async def run(self) -> None:
        """Keeps a producer connected until cancelled; raises what can't be retried."""
        while True:
            await kafka.retry(self._serve, "connecting the HTTP producer")

    async def accept(self, records: Sequence[Record]) -> None:
        """Returns when the broker has all of them. Raises Unavailable, Refused."""
        size = sum(record.size for record in records)
        producer = self._producer
        if producer is None:
            raise Unavailable("the broker is away")
        if self._pending and self._pending + size > self._settings.max_pending_bytes:
            raise Unavailable("too many events are waiting for the broker")
        self._pending += size
        try:
            async with asyncio.timeout(self._settings.acknowledge_timeout):
                await self._write(producer, records)
        except (MessageSizeTooLargeError, RecordTooLargeError) as error:
            raise Refused("the broker refuses an event as too large") from error
        except (KafkaError, TimeoutError) as error:
            self._drop(producer)
            raise Unavailable("the broker did not acknowledge in time") from error
        finally:
            self._pending -= size
        metrics.PRODUCER_ACCEPTED.inc(len(records))

    async def _serve(self) -> None:
        settings = self._settings
        producer = kafka.producer(settings, compression=settings.compression, batch_bytes=settings.batch_bytes)
        async with kafka.started(producer):
            self._dropped.clear()
            self._producer = producer
            try:
                await self._dropped.wait()
            finally:
                self._producer = None

    def _drop(self, producer: AIOKafkaProducer) -> None:
        if self._producer is producer:
            self._producer = None
            self._dropped.set()

    async def _write(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> None:
        topic = self._settings.events_topic
        count = len(await producer.partitions_for(topic))
        now = int(time.time() * 1000)
        outbox = Outbox(producer)
        spans = tracing.active()
        trace = spans.headers() if spans else []
        for record in records:
            partition = next(self._turn) % count if record.key is None else partition_of(record.key, count)
            timestamp = now if record.timestamp is None else record.timestamp
            outbox.append(topic, partition, timestamp, record.key, record.value, [*trace, *record.headers])
        await outbox.send()
