"""Which topics do not exist: inputs at the start, and those that outputs are for.

A client waits for such a topic until there is one, and all that is committed with it waits, too. So brokers are asked
beforehand: an app does not start without its inputs, and whoever writes refuses what is for a topic they don't have.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError
from aiokafka.protocol.metadata import MetadataRequest

MISSING_SECONDS = 10.0
"""Seconds for which brokers have to say that there is no such topic: not all know at once of one that was created."""
_PAUSE = 0.5
_MOST_MISSING = 1000
"""Names that are known to be missing at most, as they may come from data."""


class MissingTopicError(KafkaError):  # type: ignore[misc]
    """Brokers say that there is no such topic."""


class Topics:
    """What was found of topics, for all producers of an app, and kept while they come and go.

    One that was missing for all of this time is asked for once from then on, so that a wrong name delays others once.
    """

    def __init__(self) -> None:
        self._missing: dict[str, None] = {}
        """In the order in which they were found."""

    async def missing(self, producer: AIOKafkaProducer, topics: Iterable[str]) -> dict[str, MissingTopicError]:
        """Those that do not exist, each with an error that says what to do. KafkaError if no broker tells."""
        unknown = sorted(topic for topic in topics if producer.client.cluster.partitions_for_topic(topic) is None)
        if not unknown:
            return {}
        gone = await self._stay_missing(producer, unknown)
        for there in set(unknown) - gone:
            self._missing.pop(there, None)
        return {
            topic: MissingTopicError(f"it does not exist: create it (kafka-topics --create --topic {topic})")
            for topic in unknown
            if topic in gone
        }

    async def _stay_missing(self, producer: AIOKafkaProducer, topics: list[str]) -> set[str]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + MISSING_SECONDS
        while new := (gone := await _asked(producer, topics)).difference(self._missing):
            if clock() >= deadline:
                self._missing |= dict.fromkeys(new)
                for oldest in [*self._missing][:-_MOST_MISSING]:
                    del self._missing[oldest]
                break
            await asyncio.sleep(_PAUSE)
        return gone


async def all_topics(admin: AIOKafkaAdminClient, needed: Collection[str]) -> set[str]:
    """The names of all topics. Brokers that do not know of one that is `needed` are asked again, see `MISSING_SECONDS`.

    All are asked for: by its name alone a broker might create one.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + MISSING_SECONDS
    while True:
        there = set(await admin.list_topics())
        if there.issuperset(needed) or clock() >= deadline:
            return there
        await asyncio.sleep(_PAUSE)


async def _asked(producer: AIOKafkaProducer, topics: list[str]) -> set[str]:
    """Those that the first broker that answers does not have; where brokers create topics by themselves, this does."""
    error: KafkaError = KafkaConnectionError("no broker is known")
    brokers = list(producer.client.cluster.brokers())
    for broker in random.sample(brokers, len(brokers)):
        try:
            answer = await producer.client.send(broker.nodeId, MetadataRequest(topics))
        except KafkaError as failed:
            error = failed
        else:
            return {name for code, name, *_ in answer.topics if code == UnknownTopicOrPartitionError.errno}
    raise error
