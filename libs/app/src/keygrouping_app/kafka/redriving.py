"""Dead letters are sent again, each once: what is sent and the receipt of it are one transaction.

The transactional id is the app's: a run that begins ends what another one of the same app had begun, and reads what
was committed of it before it sends anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IllegalOperation, ProducerFenced

from keygrouping_app.events import Outgoing, Placed
from keygrouping_app.handlers import AppError
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.topics import all_topics
from keygrouping_app.redrive import DONE, NOT_CHOSEN, Choice, Letter, Report, letter_of, receipt, redriven

log = logging.getLogger(__name__)

_MOST_LETTERS = 500
_MOST_BYTES = 8 << 20
"""Of one transaction."""
_WAIT_MS = 1000


class Redriving:
    """One run over all dead letters that there are when it begins."""

    def __init__(self, settings: Settings, choice: Choice) -> None:
        self._settings = settings
        self._choice = choice
        self._report = Report()

    async def run(self, *, dry: bool) -> Report:
        """Sends the chosen letters, or only counts them. AppError if there is no topic of dead letters.

        KafkaError if it can't go on: what was committed stays, and the next run goes on with the rest.
        """
        connection = self._settings.connection
        async with started(AIOKafkaAdminClient(**connection)) as admin:
            topics = await all_topics(admin, [self._settings.dead_letters])
            if self._settings.dead_letters not in topics:
                raise AppError([f"topic {self._settings.dead_letters!r} does not exist on {self._settings.brokers}"])
            (described,) = await admin.describe_topics([self._settings.dead_letters])
        self._partitions = sorted(each["partition"] for each in described["partitions"])
        if dry:
            await self._look(topics, None)
        else:
            options = {"transactional_id": f"{self._settings.group}.redrive", "acks": "all"}
            async with started(AIOKafkaProducer(**connection, **options)) as producer:
                await self._look(topics, producer)
        return self._report

    async def _look(self, topics: Collection[str], producer: Any) -> None:
        options = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with started(AIOKafkaConsumer(**self._settings.connection, **options)) as consumer:
            reading = _Reading(consumer)
            await reading.begin([TopicPartition(self._settings.dead_letters, each) for each in self._partitions])
            done = await self._redriven_before(reading)
            chosen: list[Letter] = []
            size = 0
            async for raw in reading.records():
                letter = letter_of(raw, self._settings.group)
                if letter is None or not self._is_chosen(letter, done[raw.partition], topics):
                    continue
                self._report.choose(letter)
                if producer is None:
                    continue
                chosen.append(letter)
                size += len(raw.value or b"") + len(raw.key or b"")
                if len(chosen) >= _MOST_LETTERS or size >= _MOST_BYTES:
                    await self._send(producer, chosen)
                    chosen, size = [], 0
            if chosen:
                await self._send(producer, chosen)

    async def _redriven_before(self, reading: _Reading) -> defaultdict[int, set[int]]:
        """The offsets of what receipts name, by partition."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        async for raw in reading.records():
            try:
                found[raw.partition].update(redriven(raw, self._settings.group))
            except ValueError as error:
                log.warning("cannot read the receipt at %s/%d/%d: %s", raw.topic, raw.partition, raw.offset, error)
        return found

    def _is_chosen(self, letter: Letter, done: set[int], topics: Collection[str]) -> bool:
        if letter.raw.offset in done:
            why: str | None = DONE
        elif letter not in self._choice:
            why = NOT_CHOSEN
        else:
            why = letter.fault(topics)
        if why is not None:
            self._report.left[why] += 1
        return why is None

    async def _send(self, producer: Any, letters: list[Letter]) -> None:
        places: defaultdict[int, list[int]] = defaultdict(list)
        for letter in letters:
            places[letter.raw.partition].append(letter.raw.offset)
        partitions = {topic: await producer.partitions_for(topic) for topic in {letter.topic for letter in letters}}
        outgoing = [letter.event(partitions[letter.topic]) for letter in letters]
        app, topic = self._settings.group, self._settings.dead_letters
        outgoing += [receipt(app, topic, partition, offsets) for partition, offsets in places.items()]
        try:
            async with producer.transaction():
                sent = [await _sent(producer, one) for one in outgoing]
                # All are heard, so that none of a run that was fenced is told of again as never looked at.
                for result in await asyncio.gather(*sent, return_exceptions=True):
                    if isinstance(result, BaseException):
                        raise result
        except IllegalOperation as error:
            # Another run has fenced the producer between two sends.
            raise ProducerFenced from error


class _Reading:
    """All records that partitions hold when it begins, as often as they are asked for."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def begin(self, tps: list[TopicPartition]) -> None:
        """Takes note of where they end."""
        self._consumer.assign(tps)
        self._ends = await self._consumer.end_offsets(tps)

    async def records(self) -> AsyncIterator[Placed]:
        """The records, those of a partition in their order."""
        firsts = await self._consumer.beginning_offsets(list(self._ends))
        for tp, first in firsts.items():
            self._consumer.seek(tp, first)
        while rest := [tp for tp, end in self._ends.items() if await self._consumer.position(tp) < end]:
            for tp, records in (await self._consumer.getmany(*rest, timeout_ms=_WAIT_MS)).items():
                for record in records:
                    if record.offset < self._ends[tp]:
                        yield record


async def _sent(producer: Any, one: Outgoing) -> Any:
    time = one.time if one.time >= 0 else None
    return await producer.send(one.topic, one.value, one.key, one.partition, time, headers=list(one.headers))
