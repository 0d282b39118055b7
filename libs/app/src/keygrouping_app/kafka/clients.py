"""aiokafka's clients, made alike, and what to do when the broker is away."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from keygrouping_kafka.calls import given_up_calls, start

from keygrouping_app.moments import Moment

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one member; seconds, events and bytes as `App` says."""

    group: str
    brokers: str
    dead_letters: str
    options: Mapping[str, Any] = field(default_factory=dict)
    instance_id: str | None = None
    session_timeout: float = 45.0
    commit_interval: float = 0.05
    max_events: int = 50_000
    max_bytes: int = 64 << 20
    start: Moment = "earliest"
    until: Moment | None = None

    @property
    def connection(self) -> dict[str, Any]:
        """What every client is made with."""
        return {"bootstrap_servers": self.brokers, "client_id": self.group, **self.options}


def new_producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """One that waits for all replicas; to be started, see `started`."""
    return AIOKafkaProducer(**settings.connection | options, acks="all")


def timeout_within(settings: Settings, seconds: float) -> dict[str, int]:
    """The option of a client that waits for an answer no longer than so many seconds, nor than the app says."""
    own = settings.options.get("request_timeout_ms", math.inf)
    return {"request_timeout_ms": int(min(own, 1000 * seconds))}


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """Starts a client, and closes it within seconds, even while the broker is away."""
    try:
        await start(client)
        yield client
    finally:
        finish = client.close if hasattr(client, "close") and not hasattr(client, "stop") else client.stop
        try:
            with given_up_calls():
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await finish()
        except (KafkaError, TimeoutError, OSError) as error:
            log.warning("closing a client of Kafka failed: %r", error)
