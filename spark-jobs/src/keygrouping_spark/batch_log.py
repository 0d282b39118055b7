"""What the worker's query is about to write, told to Kafka before it is written.

Spark writes partials at least once: a batch that is broken off runs again from the checkpoint, with the same offsets
and so with the same partials, and merging counts each once. If the checkpoint is lost, nobody would know where that
batch ended, and a longer one from the same offset would make other partials that pass for the same ones. So before a
batch writes, it commits where it begins (as the offsets of the stage's group) and then where it ends (as those of a
group of its own). A new checkpoint writes that very batch again, and goes on behind it.

Records of a batch that are of no use go to the dead letters when its partials are written, together with a word behind
where it ends: who writes the batch again reads there that this has been done.

The transactional id fences a former driver. If that one is started again on its own checkpoint, the id in the metadata
tells it that another checkpoint has gone on meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import close, producer, retry
from keygrouping_service.kafka.progress import Committed, read_offsets
from keygrouping_service.kafka.topic_ids import same_topic
from keygrouping_service.records.batches import Outbox

from keygrouping_spark.refused import Refused, append_refused, count_refused
from keygrouping_spark.settings import SparkSettings

_FORMAT = "v1"
_TOLD = "told"


@dataclass(frozen=True)
class Batch:
    """A batch in one partition: the checkpoint that wrote it, and its offsets from `begin` to before `end`.

    `told`: its records of no use are dead letters.
    """

    checkpoint: str
    begin: int
    end: int
    told: bool = False


@dataclass
class BatchLog:
    """The log of one checkpoint of the worker's query; `topic_id` is that of `routed`."""

    settings: SparkSettings
    admin: AIOKafkaAdminClient
    checkpoint_id: str
    topic_id: str
    _producer: AIOKafkaProducer | None = field(default=None, init=False)
    _now: dict[int, Batch] = field(default_factory=dict, init=False)
    """The batch of each partition, once one has begun."""

    @property
    def _group(self) -> str:
        return self.settings.group("worker-batches")

    async def open(self) -> None:
        """Takes over from a former driver, whose next batch fails."""
        await self.close()
        client = producer(self.settings, transactional_id=f"{self.settings.application}-worker-spark")
        try:
            await client.start()
        except BaseException:
            await close(client)
            raise
        self._producer = client

    async def close(self) -> None:
        """Ends the producer."""
        client, self._producer = self._producer, None
        if client is not None:
            await close(client)

    async def last(self, partitions: Mapping[int, object]) -> dict[int, Batch]:
        """The batch that began last in each of these partitions, where one has."""
        tps = [TopicPartition(self.settings.routed_topic, partition) for partition in partitions]
        stored = await read_offsets(self.admin, self._group, tps, stable=True)
        found = {tp.partition: self._read(stored[tp]) for tp in tps}
        return {partition: batch for partition, batch in found.items() if batch}

    def _read(self, stored: OffsetAndMetadata) -> Batch | None:
        words = stored.metadata.split(" ") if stored.offset >= 0 else []
        if len(words) < 4 or words[0] != _FORMAT or not same_topic(words[3], self.topic_id):
            return None
        return Batch(words[1], int(words[2]), stored.offset, words[4:] == [_TOLD])

    async def require(self, partitions: Mapping[int, object]) -> None:
        """`Fatal` if another checkpoint has written last."""
        if any(batch.checkpoint != self.checkpoint_id for batch in (await self.last(partitions)).values()):
            raise Fatal(
                f"the checkpoint {self.settings.checkpoint} of the worker is out of date, as a driver with another one "
                "has gone on since: start that one, or set KEYGROUPING_SPARK_CHECKPOINT to a new folder, which goes on "
                "where the last one was. Run one driver for each application"
            )

    async def begin(self, starts: Mapping[int, Committed], ends: Mapping[int, int]) -> None:
        """Commits where a batch begins and ends, before it writes anything. `Fatal` if another driver took over."""
        await retry(lambda: self._begin_once(starts, ends), "committing what is written next")

    async def _begin_once(self, starts: Mapping[int, Committed], ends: Mapping[int, int]) -> None:
        await self._reopen(ends)
        last = self._now or await self.last(ends)
        batches = {p: Batch(self.checkpoint_id, starts[p].offset or 0, end) for p, end in ends.items()}
        batches = {p: replace(each, told=_is_told(last.get(p), each)) for p, each in batches.items()}
        begins = {TopicPartition(self.settings.routed_topic, p): start.encode() for p, start in starts.items()}
        # aiokafka has one group in a transaction. In this order: between the two, the last batch lies before the group.
        async with self._transactions() as client:
            for offsets, group in ((begins, self.settings.group("worker")), (self._offsets(batches), self._group)):
                async with client.transaction():
                    await client.send_offsets_to_transaction(offsets, group)
        self._now = batches

    async def refuse(self, refused: Sequence[Refused]) -> None:
        """Makes dead letters of records of the batch that has begun, unless they are already. `Fatal` as in `begin`."""
        await retry(lambda: self._refuse_once(refused), "writing dead letters")

    async def _refuse_once(self, refused: Sequence[Refused]) -> None:
        await self._reopen(self._now)
        new = [each for each in refused if not self._now[each.record.partition].told]
        if not new:
            return
        told = {p: replace(self._now[p], told=True) for p in {each.record.partition for each in new}}
        async with self._transactions() as client, client.transaction():
            outbox = Outbox(client)
            await append_refused(outbox, self.settings.dead_letters_topic, new)
            await outbox.send()
            await client.send_offsets_to_transaction(self._offsets(told), self._group)
        self._now |= told
        count_refused(new)

    async def _reopen(self, partitions: Mapping[int, object]) -> None:
        """After an error, of which nobody knows what has been committed."""
        if self._producer is None:
            await self.open()
            await self.require(partitions)
            found = await self.last(self._now)
            self._now = {p: replace(each, told=_is_told(found.get(p), each)) for p, each in self._now.items()}

    @asynccontextmanager
    async def _transactions(self) -> AsyncIterator[AIOKafkaProducer]:
        """The producer, which is closed at an error."""
        assert self._producer is not None
        try:
            yield self._producer
        except ProducerFenced:
            raise Fatal("another Spark driver of this application writes partials now: run only one") from None
        except BaseException:
            await self.close()
            raise

    def _offsets(self, batches: Mapping[int, Batch]) -> dict[TopicPartition, OffsetAndMetadata]:
        topic = self.settings.routed_topic
        return {TopicPartition(topic, p): OffsetAndMetadata(b.end, self._metadata(b)) for p, b in batches.items()}

    def _metadata(self, batch: Batch) -> str:
        said = f"{_FORMAT} {batch.checkpoint} {batch.begin} {self.topic_id}"
        return f"{said} {_TOLD}" if batch.told else said


def _is_told(last: Batch | None, batch: Batch) -> bool:
    """Whether a batch is the last one again, whose records of no use are dead letters."""
    return last is not None and last.told and (last.begin, last.end) == (batch.begin, batch.end)
