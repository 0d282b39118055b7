"""Writes the results of each batch exactly once: results, records that were refused and the batch's number in one
Kafka transaction.

Spark runs a batch again after a crash. Its number is the metadata of an offset that the transaction commits to a group
of its own; a batch whose number is there was written before and is skipped. As that group has no members, the broker
forgets it after a while without results: then the copy of the offset counts
(see `keygrouping_service.kafka.positions`).

The metadata also names the checkpoint, and the end of the last window of which there is a result. If the checkpoint is
lost, a new one takes over before it begins: it fences the former driver, leaves out all windows up to there, and the
former checkpoint is out of date from then on. So is an older copy of a checkpoint, which hasn't planned that batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping.job import AGGREGATE_FAILED
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import admin, close, producer, reader, retry, started
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import MIN_TIME, read_offsets
from keygrouping_service.kafka.transactions import AnswerUnknown
from keygrouping_service.observability.final_results import FinalResults
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.record import Record

from keygrouping_spark.checkpoint import ANOTHER, out_of_date
from keygrouping_spark.refused import Refused, append_refused, count_refused, largest_letter
from keygrouping_spark.settings import SparkSettings

log = logging.getLogger(__name__)

_FORMAT = "v1"
_CHUNK, _SENT_AT_ONCE = 5_000, 50_000
"""Results after which the event loop gets its turn, and that are on their way together."""


class Written(NamedTuple):
    """The record of a result: see `aggregator.written`."""

    hash: int
    end: int
    key: bytes
    value: bytes
    fault: str


def records_of(made: pa.Table) -> Iterator[Written]:
    """The rows of `aggregator.written`."""
    for part in made.to_batches(_CHUNK):
        yield from map(Written._make, zip(*(part[name].to_pylist() for name in Written._fields), strict=True))


def failed_result(topic: str, row: Written) -> Refused:
    """A result of which an aggregate's own code failed; it was made of partials of this topic."""
    now_ms = int(time.time() * 1000)
    return Refused(Record(topic, -1, -1, now_ms, row.key, row.value), AGGREGATE_FAILED, row.fault)


@dataclass(frozen=True)
class Noted:
    """The last batch (-1: none yet), whose checkpoint it was, and up to where (end of a window, ms) there are results.

    A version that did not note the last has left None.
    """

    checkpoint: str
    batch: int
    final: int | None

    @classmethod
    def decode(cls, stored: OffsetAndMetadata) -> Noted | None:
        """Reads what was committed; None if nothing was, or not by us."""
        words = stored.metadata.split(" ") if stored.offset >= 0 else []
        if len(words) < 3 or words[0] != _FORMAT:
            return None
        return cls(words[1], int(words[2]), int(words[3]) if words[3:] else None)

    def encode(self) -> OffsetAndMetadata:
        """What is committed."""
        return OffsetAndMetadata(max(self.batch, 0), f"{_FORMAT} {self.checkpoint} {self.batch} {self.final}")


class ResultWriter:
    """The transactional writer of one checkpoint; a second driver with the same application fences the first."""

    def __init__(self, settings: SparkSettings, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        self._settings = settings
        self._group = settings.group("aggregator-batches")
        self._slot = TopicPartition(settings.results_topic, 0)
        self._positions = Positions(settings, self._group)
        self._finals = FinalResults(settings.group("aggregator"), settings.job.lateness_ms)
        self._producer: AIOKafkaProducer | None = None
        self._noted: Noted | None = None
        self._unknown: int | None = None
        """The batch whose commit was not answered: the next `open` shows whether it was written."""

    async def open(self) -> None:
        """Takes over the transactional id, which ends what a predecessor left, and reads its last batch."""
        await self.close()
        identity = f"{self._settings.application}-aggregator-spark"
        client = producer(self._settings, transactional_id=identity)
        try:
            await client.start()
            self._noted = await self._read_noted()
        except BaseException:
            await close(client)
            raise
        self._producer = client

    async def close(self) -> None:
        """Ends the producer; an open transaction is aborted by the broker or the successor."""
        client, self._producer = self._producer, None
        if client is not None:
            await close(client)

    async def take_over(self) -> int:
        """Lets this checkpoint, a new one, go on; gives up to where (end of a window, ms) there are results."""
        await retry(self._take_over_once, "taking over from a former driver")
        return self._final

    async def _take_over_once(self) -> None:
        if self._producer is None:
            await self.open()
        if self._noted is None or self._noted.checkpoint != self.checkpoint_id:
            await self._write_now(-1, [], [])

    def require(self, planned: int) -> None:
        """`Fatal` if another checkpoint has gone on, or this one beyond `planned`, its last batch: in another copy."""
        noted = self._noted
        if noted is None:
            return
        if noted.checkpoint == self.checkpoint_id and noted.batch > planned:
            since = f"its last batch is {planned}, and it has gone on to {noted.batch} in another copy"
            raise out_of_date(self._settings.checkpoint, "aggregator", since)
        # Versions that did not note what is final did not take over before they had results.
        if noted.checkpoint != self.checkpoint_id and noted.final is not None:
            raise out_of_date(self._settings.checkpoint, "aggregator", ANOTHER)

    @property
    def written(self) -> int:
        """The last batch of this checkpoint."""
        return self._noted.batch if self._noted and self._noted.checkpoint == self.checkpoint_id else -1

    @property
    def _final(self) -> int:
        final = self._noted.final if self._noted else None
        return MIN_TIME if final is None else final

    async def write(self, batch: int, results: Iterable[Written], refused: Sequence[Refused] = ()) -> int:
        """Writes a batch unless it has been written; gives how many results. `Fatal` if another driver took over.

        Of one without results its number is written, so that an older copy of the checkpoint is always known.
        `refused` goes to the dead letters: once for each checkpoint, as a new one reads `partials` from its beginning.
        """
        rows = list(results)
        return await retry(lambda: self._write_once(batch, rows, refused), f"writing the results of batch {batch}")

    async def _write_once(self, batch: int, rows: list[Written], refused: Sequence[Refused]) -> int:
        if self._producer is None:
            await self.open()
            self.require(batch)
        if batch <= self.written and batch != self._unknown:
            log.info("batch %d was already written", batch)
            return 0
        if batch > self.written:
            await self._write_now(batch, rows, refused)
        self._unknown = None
        if rows:
            self._finals.written({row.end for row in rows})
        if refused:
            count_refused(refused)
        return len(rows)

    async def _write_now(self, batch: int, rows: list[Written], refused: Sequence[Refused]) -> None:
        noted = Noted(self.checkpoint_id, batch, max([self._final, *(row.end for row in rows)]))
        try:
            await self._transaction(noted, rows, refused)
        except ProducerFenced:
            raise Fatal("another Spark driver of this application writes results now: run only one") from None
        except MessageSizeTooLargeError:
            topics = f"{self._settings.results_topic} or {self._settings.dead_letters_topic}"
            raise Fatal(f"{topics} refuses a record as too large: raise its max.message.bytes") from None
        except BaseException as error:
            if isinstance(error, AnswerUnknown):
                self._unknown = batch
            await self.close()
            raise
        self._noted = noted

    async def _transaction(self, noted: Noted, rows: list[Written], refused: Sequence[Refused]) -> None:
        client = self._producer
        assert client is not None
        async with client.transaction():
            for begin in range(0, len(rows), _SENT_AT_ONCE):
                await self._send(client, rows[begin : begin + _SENT_AT_ONCE])
            outbox = Outbox(client)
            if refused:
                async with started(admin(self._settings)) as asking:
                    largest = await largest_letter(asking, self._settings)
                await append_refused(outbox, self._settings.dead_letters_topic, refused, largest)
            self._positions.append(outbox, self._slot, noted.encode())
            await outbox.send()
            await client.send_offsets_to_transaction({self._slot: noted.encode()}, self._group)

    async def _send(self, client: AIOKafkaProducer, rows: Iterable[Written]) -> None:
        """To where the native aggregator writes them: a key's windows are all in one partition."""
        topic, now_ms, outbox = self._settings.results_topic, int(time.time() * 1000), Outbox(client)
        partitions = len(await client.partitions_for(topic))
        for count, row in enumerate(rows, 1):
            outbox.append(topic, row.hash % partitions, now_ms, row.key, row.value)
            if count % _CHUNK == 0:
                await asyncio.sleep(0)
        await outbox.send()

    async def _read_noted(self) -> Noted | None:
        async with started(admin(self._settings)) as client, started(reader(self._settings, committed=False)) as probe:
            stored = (await read_offsets(client, self._group, [self._slot], stable=True))[self._slot]
            if stored.offset < 0:
                stored = (await self._positions.find(client, probe, [self._slot])).get(self._slot, stored)
        return Noted.decode(stored)
