"""aiokafka's clients, made alike, and what to do when the broker is away."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InconsistentGroupProtocolError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)

from keygrouping_app.moments import Moment

log = logging.getLogger(__name__)

_FATAL = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InconsistentGroupProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)
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
    max_events: int = 10_000
    max_bytes: int = 64 << 20
    start: Moment = "earliest"
    until: Moment | None = None

    @property
    def connection(self) -> dict[str, Any]:
        """What every client is made with."""
        return {"bootstrap_servers": self.brokers, "client_id": self.group, **self.options}


def may_pass(error: BaseException) -> bool:
    """Whether an error may pass by itself: a broker away, a coordinator moving; not missing rights."""
    return isinstance(error, TimeoutError | OSError | KafkaError) and not isinstance(error, _FATAL)


def backoff(first: float = 0.1, most: float = 5.0) -> Iterator[float]:
    """Seconds before each retry, doubling, with jitter. Endless."""
    pause = first
    while True:
        yield pause * random.uniform(0.7, 1.3)
        pause = min(most, pause * 2)


@contextmanager
def given_up_calls() -> Iterator[None]:
    """Makes a connection error of a call that a client itself has cancelled, as when it drops a connection.

    Without this it would look as if somebody had cancelled the task that waits for the call.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise KafkaConnectionError("a call was given up, as its connection is gone") from error


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """Starts a client, and closes it within seconds, even while the broker is away."""
    try:
        try:
            await client.start()
        except AssertionError as error:  # just after an outage brokers answer before they count as alive
            raise KafkaConnectionError("the cluster names no broker yet") from error
        yield client
    finally:
        finish = client.close if hasattr(client, "close") and not hasattr(client, "stop") else client.stop
        try:
            with given_up_calls():
                await asyncio.wait_for(finish(), _CLOSE_SECONDS)
        except (KafkaError, TimeoutError, OSError) as error:
            log.warning("closing a client of Kafka failed: %r", error)
