"""Takes events from outside: an idempotent producer that answers only when the broker has them, or soon says no."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordTooLargeError
from keygrouping_service.kafka import clients
from keygrouping_service.observability import tracing
from keygrouping_service.records.batches import Outbox, partition_of
from keygrouping_service.records.protocols import Header
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import from_json, to_json

from keygrouping_producer import metrics
from keygrouping_producer.settings import ProducerSettings

log = logging.getLogger(__name__)

_LARGEST_TIME = 253_402_300_799_999
_RECORD_BYTES = 24
"""What a record takes in a batch besides its key, value and headers, at most."""


class PostedEvent(BaseModel):
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


class EncodedEvent(NamedTuple):
    """An event in bytes; a null value stays null."""

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


def parse(text: bytes) -> EncodedEvent:
    """One event from its JSON; raises ValueError (pydantic's ValidationError among them) if it is none."""
    event = PostedEvent.model_validate(from_json(text, allow_inf_nan=False))
    return EncodedEvent(
        key=None if event.key is None else event.key.encode(),
        value=None if event.value is None else _encoded(event.value),
        headers=[(name, value.encode()) for name, value in event.headers.items()],
        timestamp=event.timestamp,
    )


def _encoded(value: Any) -> bytes:
    data = to_json(value)
    # Only an unusual value has these letters: a number beyond the floats was read as infinite.
    if (b"Infinity" in data or b"NaN" in data) and not _is_finite(value):
        raise ValueError("a number is beyond the floats, so that no JSON could say it")
    return data


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_is_finite, value))
        case dict():
            return all(map(_is_finite, value.values()))
    return True


class Unavailable(Exception):
    """The broker did not acknowledge in time; some of the events may still be there."""


class Refused(Exception):
    """The broker takes no event as large as this."""


class Intake:
    """The events of one request on their way: added one by one, in any thread, as the batches that will be written."""

    def __init__(self, outbox: Outbox, topic: str, partitions: int, turn: Iterator[int]) -> None:
        self._outbox = outbox
        self._topic = topic
        self._partitions = partitions
        self._turn = turn
        self._now = int(time.time() * 1000)
        spans = tracing.active()
        self._trace: list[Header] = list(spans.headers()) if spans else []
        self._more = _RECORD_BYTES + sum(len(name) + len(value or b"") for name, value in self._trace)
        self.bytes = 0
        """What they take in memory."""

    @property
    def events(self) -> int:
        """How many there are."""
        return self._outbox.records

    def add(self, record: EncodedEvent) -> None:
        """One event more."""
        key = record.key
        partition = next(self._turn) % self._partitions if key is None else partition_of(key, self._partitions)
        timestamp = self._now if record.timestamp is None else record.timestamp
        headers = [*self._trace, *record.headers]
        self._outbox.append(self._topic, partition, timestamp, key, record.value, headers)
        self.bytes += record.size + self._more

    async def send(self) -> None:
        """Returns when the broker has all of them."""
        await self._outbox.send()


class Place:
    """What a request may hold in memory; grows as it goes on."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self.bytes = 0

    def hold(self, size: int) -> None:
        """At least so many bytes in all; raises Unavailable if there is no room for them."""
        more = size - self.bytes
        if more > 0:
            self._ingest.reserve(more)
            self.bytes = size


class Ingest:
    """Writes requests' events, in their order; keys by Kafka's default partitioner, keyless round robin.

    Memory is bounded: all requests together hold at most `max_pending_bytes`, and at most `max_requests` are taken at
    once; when the broker does not answer, the producer is dropped with all it holds, and requests are refused until a
    new one is connected.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._dropped = asyncio.Event()
        self._pending = 0
        self._requests = 0
        self._turn = itertools.count()

    @property
    def ready(self) -> bool:
        """Whether a producer is connected."""
        return self._producer is not None

    async def run(self) -> None:
        """Keeps a producer connected until cancelled; raises what can't be retried."""
        while True:
            await clients.retry(self._serve, "connecting the HTTP producer")

    @contextlib.contextmanager
    def place(self) -> Iterator[Place]:
        """Room for one request; raises Unavailable if too many are under way."""
        if self._producer is None:
            raise Unavailable("the broker is away")
        if self._requests >= self._settings.max_requests:
            raise Unavailable(f"{self._requests} requests with events are under way")
        place = Place(self)
        self._requests += 1
        try:
            yield place
        finally:
            self._requests -= 1
            self._pending -= place.bytes

    def reserve(self, size: int) -> None:
        """Takes so many bytes more; raises Unavailable if there is no room for them."""
        if self._pending and self._pending + size > self._settings.max_pending_bytes:
            raise Unavailable("too many events are waiting for the broker")
        self._pending += size

    async def intake(self) -> Intake:
        """Begins with a request's events; raises Unavailable."""
        producer, topic = self._connected(), self._settings.events_topic
        async with self._in_time(producer):
            partitions = len(await producer.partitions_for(topic))
        return Intake(Outbox(producer), topic, partitions, self._turn)

    async def write(self, intake: Intake) -> None:
        """Returns when the broker has all of them. Raises Unavailable, Refused."""
        async with self._in_time(self._connected()):
            await intake.send()
        metrics.ACCEPTED.inc(intake.events)

    def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise Unavailable("the broker is away")
        return self._producer

    @contextlib.asynccontextmanager
    async def _in_time(self, producer: AIOKafkaProducer) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.acknowledge_timeout):
                yield
        except (MessageSizeTooLargeError, RecordTooLargeError) as error:
            raise Refused("the broker refuses an event as too large") from error
        except (KafkaError, TimeoutError) as error:
            self._drop(producer)
            raise Unavailable("the broker did not acknowledge in time") from error

    async def _serve(self) -> None:
        settings = self._settings
        producer = clients.producer(settings, compression=settings.compression, batch_bytes=settings.batch_bytes)
        async with clients.started(producer):
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
