"""What the worker's query is about to write, told to Kafka before it is written.

Spark writes partials at least once: a batch that is broken off runs again from the checkpoint, with the same offsets
and so with the same partials, and merging counts each once. If the checkpoint is lost, nobody would know where that
batch ended, and a longer one from the same offset would make other partials that pass for the same ones. So before a
batch writes, it commits where it begins (as the offsets of the stage's group) and then where it ends (as those of a
group of its own). A new checkpoint writes that very batch again, and goes on behind it.

Records of a batch that are of no use go to the dead letters when its partials are written, some at a time, each time in
one transaction with the offset up to which that has been done: who writes the batch again goes on there.

The transactional id fences a former driver. If that one is started again on its own checkpoint, the id in the metadata
tells it that another checkpoint has gone on meanwhile; an older copy of the same checkpoint is known by its offsets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import close, producer, retry
from keygrouping_service.kafka.progress import Committed, read_offsets
from keygrouping_service.kafka.topic_ids import same_topic
from keygrouping_service.records.batches import Outbox

from keygrouping_spark.checkpoint import ANOTHER, out_of_date
from keygrouping_spark.refused import Refused, append_refused, count_refused, largest_letter
from keygrouping_spark.settings import SparkSettings

_FORMAT = "v1"


@dataclass(frozen=True)
class Batch:
    """A batch in one partition: the checkpoint that wrote it, and its offsets from `begin` to before `end`.

    `told`: its records of no use are dead letters up to before this offset.
    """

    checkpoint: str
    begin: int
    end: int
    told: int = 0


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
    _former: frozenset[str] = field(default=frozenset(), init=False)
    """Checkpoints that this one goes on for."""
    _largest: int | None = field(default=None, init=False)
    """Bytes of a dead letter, once that has been asked."""

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

    async def take_over(self, partitions: Mapping[int, object]) -> dict[int, Batch]:
        """Like `last`, of which this checkpoint, a new one, goes on for those that it names."""
        last = await self.last(partitions)
        self._former = frozenset(batch.checkpoint for batch in last.values())
        return last

    def _read(self, stored: OffsetAndMetadata) -> Batch | None:
        words = stored.metadata.split(" ") if stored.offset >= 0 else []
        if len(words) < 4 or words[0] != _FORMAT or not same_topic(words[3], self.topic_id):
            return None
        return Batch(words[1], int(words[2]), stored.offset, int(words[4]) if words[4:] else 0)

    async def require(self, ends: Mapping[int, int]) -> None:
        """`Fatal` if another checkpoint has written last, or a later state of this one: it lies in an older copy.

        `ends` of partitions: where the last batch ends that this checkpoint knows of.
        """
        for partition, batch in (await self.last(ends)).items():
            if batch.checkpoint not in {self.checkpoint_id, *self._former}:
                raise out_of_date(self.settings.checkpoint, "worker", ANOTHER)
            if batch.checkpoint == self.checkpoint_id and batch.end > ends[partition]:
                place = f"{self.settings.routed_topic}[{partition}]"
                since = (
                    f"it ends at offset {ends[partition]} of {place}, and has gone on to {batch.end} in another copy"
                )
                raise out_of_date(self.settings.checkpoint, "worker", since)

    async def begin(self, starts: Mapping[int, Committed], ends: Mapping[int, int]) -> None:
        """Commits where a batch begins and ends, before it writes anything. `Fatal` if another driver took over."""
        await retry(lambda: self._begin_once(starts, ends), "committing what is written next")

    async def _begin_once(self, starts: Mapping[int, Committed], ends: Mapping[int, int]) -> None:
        await self._reopen(ends)
        last = self._now or await self.last(ends)
        batches = {p: Batch(self.checkpoint_id, starts[p].offset or 0, end) for p, end in ends.items()}
        batches = {p: replace(each, told=_told(last.get(p), each)) for p, each in batches.items()}
        begins = {TopicPartition(self.settings.routed_topic, p): start.encode() for p, start in starts.items()}
        # aiokafka has one group in a transaction. In this order: between the two, the last batch lies before the group.
        async with self._transactions() as client:
            for offsets, group in ((begins, self.settings.group("worker")), (self._offsets(batches), self._group)):
                async with client.transaction():
                    await client.send_offsets_to_transaction(offsets, group)
        self._now = batches

    def told(self, partition: int) -> int:
        """Up to before which offset the records of no use of a partition's batch are dead letters."""
        return self._now[partition].told

    async def refuse(self, partition: int, refused: Sequence[Refused], after: int) -> None:
        """Makes dead letters of all of no use between `told` and before an offset. `Fatal` as in `begin`."""
        await retry(lambda: self._refuse_once(partition, refused, after), "writing dead letters")

    async def _refuse_once(self, partition: int, refused: Sequence[Refused], after: int) -> None:
        await self._reopen({p: batch.end for p, batch in self._now.items()})
        # If not, the last attempt has written them, and was not answered.
        if self.told(partition) < after:
            if self._largest is None:
                self._largest = await largest_letter(self.admin, self.settings)
            now = {partition: replace(self._now[partition], told=after)}
            async with self._transactions() as client, client.transaction():
                outbox = Outbox(client)
                await append_refused(outbox, self.settings.dead_letters_topic, refused, self._largest)
                await outbox.send()
                await client.send_offsets_to_transaction(self._offsets(now), self._group)
            self._now |= now
        count_refused(refused)

    async def _reopen(self, ends: Mapping[int, int]) -> None:
        """After an error, of which nobody knows what has been committed. `ends` of the batch under way."""
        if self._producer is None:
            await self.open()
            async with self._transactions():
                await self.require(ends)
                last = await self.last(self._now)
            self._now = {p: replace(each, told=_told(last.get(p), each)) for p, each in self._now.items()}

    @asynccontextmanager
    async def _transactions(self) -> AsyncIterator[AIOKafkaProducer]:
        """The producer, which is closed at an error."""
        assert self._producer is not None
        try:
            yield self._producer
        except ProducerFenced:
            raise Fatal("another Spark driver of this application writes partials now: run only one") from None
        except MessageSizeTooLargeError:
            topic = self.settings.dead_letters_topic
            raise Fatal(f"{topic} refuses a dead letter as too large: raise its max.message.bytes") from None
        except BaseException:
            await self.close()
            raise

    def _offsets(self, batches: Mapping[int, Batch]) -> dict[TopicPartition, OffsetAndMetadata]:
        topic = self.settings.routed_topic
        return {TopicPartition(topic, p): OffsetAndMetadata(b.end, self._metadata(b)) for p, b in batches.items()}

    def _metadata(self, batch: Batch) -> str:
        return f"{_FORMAT} {batch.checkpoint} {batch.begin} {self.topic_id} {batch.told}"


def _told(last: Batch | None, batch: Batch) -> int:
    """Up to where the records of no use are dead letters, if a batch is the last one again."""
    return last.told if last is not None and (last.begin, last.end) == (batch.begin, batch.end) else 0
