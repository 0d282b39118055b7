"""Kafka clients of all services, built alike, and what to do when the broker is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from keygrouping_kafka.calls import backoff, given_up_calls, start
from keygrouping_kafka.errors import can_be_retried

from keygrouping_service.kafka.transactions import TransactionalProducer
from keygrouping_service.records.aiokafka_adapter import PartitionsSource, client_of, drop_pending, transports_of
from keygrouping_service.records.unpacking import DEFAULT_LARGEST, Unpacking
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_CLOSE_TIMEOUT = 5.0


async def retry(action: Callable[[], Awaitable[Result]], what: str) -> Result:
    """Runs `action` until it succeeds, waiting between attempts; raises what can't be retried."""
    for delay in backoff():
        try:
            with given_up_calls():
                return await action()
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("%s failed, trying again in %.1f s: %s", what, delay, _one_line(error))
        await asyncio.sleep(delay)
    raise AssertionError("backoff is endless")


class Cluster(Protocol):
    """A cluster, and how to log in there."""

    def kafka_options(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client takes."""


def reader(
    settings: Cluster,
    *,
    committed: bool = True,
    wait_ms: int = 2000,
    unpacking: Unpacking | None = None,
    **options: Any,
) -> AIOKafkaConsumer:
    """A consumer outside of any group; partitions are assigned and sought by the caller.

    The broker answers after `wait_ms` if there is nothing to read; a sought position has to wait for that answer.
    `unpacking`: it reads in bounded memory, and what it can't read or is too large is left out as `letters`.
    """
    return AIOKafkaConsumer(
        **settings.kafka_options(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=wait_ms,
        isolation_level="read_committed" if committed else "read_uncommitted",
        value_deserializer=unpacking,
        **options,
    )


def source(settings: Cluster, *, largest: int = DEFAULT_LARGEST, **options: Any) -> PartitionsSource:
    """A source of several partitions, and its `consumer`, a `reader` with such `options` that is to be started.

    Records of more than `largest` bytes are left out.
    """
    unpacking = Unpacking(largest)
    return PartitionsSource(reader(settings, unpacking=unpacking, **options), unpacking)


def producer(
    settings: ServiceSettings,
    *,
    transactional_id: str | None = None,
    idempotent: bool = True,
    compression: str = "none",
    batch_bytes: int = 1 << 20,
    **options: Any,
) -> AIOKafkaProducer:
    """A producer that waits for all replicas; transactional if an id is given: then see `TransactionalProducer`."""
    common = {
        **settings.kafka_options(),
        "acks": "all",
        "compression_type": None if compression == "none" else compression,
        "max_batch_size": batch_bytes,
        **options,
    }
    if transactional_id is None:
        return AIOKafkaProducer(enable_idempotence=idempotent, **common)
    return TransactionalProducer(transactional_id=transactional_id, **common)


def admin(settings: ServiceSettings) -> AIOKafkaAdminClient:
    """An admin client; to be started and closed by the caller (see `started`)."""
    return AIOKafkaAdminClient(**settings.kafka_options())


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """Starts a consumer, producer or admin client, and closes it whatever state it is in."""
    try:
        await start(client)
        yield client
    finally:
        await close(client)


async def close(client: Any) -> None:
    """Closes a client within seconds, even while the broker is away or takes nothing."""
    connections = _Connections(client)
    if isinstance(client, AIOKafkaProducer):
        await _close_producer(client, connections)
        return
    finish = client.close if isinstance(client, AIOKafkaAdminClient) else client.stop
    try:
        with given_up_calls():  # a consumer cancels its own fetches, and may raise that
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await finish()
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning("closing a Kafka client failed: %s", _one_line(error))
        await connections.drop()


async def _close_producer(client: AIOKafkaProducer, connections: _Connections) -> None:
    """Stops a producer and drops what it has not sent.

    `AIOKafkaProducer.stop` waits for undelivered batches for ever while the broker is away; so it is given a moment.
    """
    try:
        with given_up_calls():  # a sender that had been cancelled before may raise that
            async with asyncio.timeout(1.0):
                await client.stop()
        return
    except (KafkaError, TimeoutError, OSError) as error:
        log.info("abandoning a producer that does not stop: %s", _one_line(error))
    closed = KafkaError("the producer was closed")
    if isinstance(client, TransactionalProducer):
        client.failure = client.failure or closed
    await drop_pending(client, closed)
    await connections.drop()


class _Connections:
    """The connections of a client. aiokafka's own `close` waits until the broker has taken what was written to them."""

    def __init__(self, client: Any) -> None:
        self._client = client_of(client)
        self._transports = transports_of(self._client)

    async def drop(self) -> None:
        """Closes them at once; what was not sent is lost."""
        for transport in self._transports:
            transport.abort()
        with contextlib.suppress(KafkaError, TimeoutError), given_up_calls():
            async with asyncio.timeout(1.0):
                await self._client.close()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
